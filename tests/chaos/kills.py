"""SIGKILL at random moments under load, start again, drain, and read what the verdict needs.

Daemons have a process each, Switchboard and Messenger two; the sandbox is the journal and is never killed. The
whole order of victims and pauses follows from the seed; what they hit does not, since processes race.
"""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import asyncpg

from shared.db import prepare_connection
from tests.chaos.load import CALLERS, Heard, Load, approve_of, as_json, people
from tests.chaos.verdict import Row, Sent, Verdict, verdict
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet, Rows
from tests.rig.forks import Process
from tests.rig.outside import SENDS, Entry

FIGURES: Final = Path(__file__).resolve().parents[2] / "build" / "figures"
PAIRS: Final = ("messenger", "switchboard")
VICTIMS: Final = ("messenger", "messenger", "switchboard", "switchboard", "greeter", "health")
SHORTEST, LONGEST = 0.2, 1.0
# Between two kills some answers come, or the load is no load; on a machine too busy for that it is waited so long.
ANSWERS_BETWEEN, AT_MOST = 4, 1.5
# Leases of 7 s, the poller's 10 s, a provider's wish to wait, and whatever piled up behind them.
DRAIN_SECONDS: Final = 60.0
# An observer only: which delivery left a state, and whether by way of a lease that had run out.
OBSERVER: Final = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.turns (delivery_id uuid, class text, was text, became text, overdue boolean,
    at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO chaos.turns VALUES (NEW.id, NEW.class, OLD.status, NEW.status, OLD.lease_until <= clock_timestamp());
    RETURN NULL; END $$;
CREATE TRIGGER note AFTER UPDATE ON messenger.deliveries FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION chaos.note();
"""
LEFT_BEHIND: Final = """
SELECT was || ' -> ' || became AS turn, count(*) FROM chaos.turns
WHERE overdue AND was IN ('claimed', 'sending') GROUP BY 1 ORDER BY 1
"""
STATES: Final = "SELECT status, count(*) FROM messenger.deliveries GROUP BY status"
OPEN: Final = """
SELECT (SELECT count(*) FROM shared.notifications WHERE status = 'queued' OR status LIKE 'pending%')
    + (SELECT count(*) FROM messenger.deliveries WHERE status IN ('queued', 'claimed', 'sending', 'parked'))
    + (SELECT count(*) FROM shared.pending_actions WHERE status IN ('pending', 'approved', 'executing'))
"""
ROWS: Final = """
SELECT n.id::text, n.envelope #>> '{delivery,message}' AS text, n.third_party, n.status, d.status AS delivery,
    d.address,
    ARRAY(SELECT p.provider_id FROM messenger.parts p WHERE p.delivery_id = d.id ORDER BY p.n) AS receipts,
    EXISTS (SELECT FROM shared.rule_uses u WHERE u.notification_id = n.id)
        OR EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = n.id AND a.decided_by IS NOT NULL
            AND a.status IN ('executing', 'executed', 'uncertain')) AS authority,
    EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = n.id
        AND a.status IN ('pending', 'approved', 'executing')) AS open_action
FROM shared.notifications n LEFT JOIN messenger.deliveries d ON d.notification_id = n.id ORDER BY n.created_at
"""


@dataclass(frozen=True, slots=True)
class Kill:
    """Who dies, which instance of it, and how many seconds after the one before."""

    name: str
    instance: int
    after: float


@dataclass(slots=True)
class Landed:
    """Where kills hit: per daemon, and in how many of them some delivery was in which state; answers until the last."""

    daemons: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is over: the verdict, all else that must not be, and the figures."""

    verdict: Verdict
    strange: Sequence[str]
    share_repeated: float
    figures: Mapping[str, object]


def plan(rng: Random, count: int) -> list[Kill]:
    """That many kills; the same for the same seed."""
    return [Kill(rng.choice(VICTIMS), rng.randrange(2), rng.uniform(SHORTEST, LONGEST)) for _ in range(count)]


async def run(bench: Bench, count: int, seed: int, code: Path | None = None) -> Run:
    """Kill so often under load, drain, stop, and judge; `code` as in Bench.house."""
    house = await bench.house(code=code, BUTLERS_SWEEP_SECONDS="0.5", BUTLERS_CARD_BURST="1000")
    fleet = await Fleet.start(house, "each")
    try:
        rows: Rows = await asyncpg.connect(house.dsn)
        await prepare_connection(rows)
        await rows.execute(OBSERVER)
        for name in PAIRS:
            start_one(fleet, name)
        done = await _run(fleet, rows, count, seed)
        await rows.close()
        await fleet.stop()
    except BaseException:
        await fleet.abandon()
        raise
    return done


async def _run(fleet: Fleet, rows: Rows, count: int, seed: int) -> Run:
    rng, started = Random(seed), time.monotonic()
    kills = plan(rng, count)
    tokens = {name: await fleet.token(name) for name in ("health", "greeter")}
    load = Load(fleet, await people(fleet), tokens, Random(rng.getrandbits(64)))
    person = asyncio.create_task(load.say_yes_for_ever())
    weather = asyncio.create_task(load.weather_for_ever())
    callers = [asyncio.create_task(load.call_for_ever()) for _ in range(CALLERS)]
    landed = await strike(fleet, rows, kills, load.heard)
    killed = time.monotonic()
    load.stopping.set()
    await end(weather)
    await fleet.outside.clear_faults()
    await asyncio.gather(*callers)
    await all_ready(fleet)
    left_open = await drain(rows)
    drained = time.monotonic()
    await end(person)
    judged = verdict(await journal_of(fleet), load.heard.answers, await rows_of(rows))
    figures = {
        "seed": seed,
        "kills": count,
        "seconds_of_kills": round(killed - started, 1),
        "seconds_of_drain": round(drained - killed, 1),
        "left_open": left_open,
        "killed": dict(sorted(landed.daemons.items())),
        "kills_while_a_delivery_was": dict(sorted(landed.states.items())),
        "left_behind": {row["turn"]: row["count"] for row in await rows.fetch(LEFT_BEHIND)},
        **as_json(load.heard),
        **judged.figures,
    }
    share = load.heard.repeated / (load.heard.told + load.heard.repeated)
    return Run(judged, strange(load.heard), share, figures)


def start_one(fleet: Fleet, name: str) -> Process:
    """One more process of that daemon; it is known by its URL as soon as it says it."""
    process = fleet.house.spawn(["run", name], f"{name}-{len(fleet.started) + 1}")
    fleet.running[name].append(process)
    fleet.started.append(process)
    return process


async def strike(fleet: Fleet, rows: Rows, kills: Sequence[Kill], heard: Heard) -> Landed:
    """Carry out the plan; whoever was killed is started again at once, and may be hit while it starts."""
    landed = Landed()
    for kill in kills:
        await asyncio.sleep(kill.after)
        await answered(heard, landed.answers + ANSWERS_BETWEEN)
        landed.answers = len(heard.answers)
        living = fleet.running[kill.name]
        victim = living.pop(kill.instance % len(living))
        states = {row["status"] for row in await rows.fetch(STATES)}
        assert victim.alive, f"{kill.name} ended by itself with {victim.code}\n{fleet.logs()}"
        victim.send(signal.SIGKILL)
        await victim.wait()
        start_one(fleet, kill.name)
        landed.daemons[kill.name] += 1
        landed.states.update(states)
    return landed


async def answered(heard: Heard, count: int) -> None:
    """Wait for so many answers in all, but not for long."""
    deadline = time.monotonic() + AT_MOST
    while len(heard.answers) < count and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


async def all_ready(fleet: Fleet) -> None:
    """Every daemon came back by itself."""
    async with asyncio.timeout(30):
        for name, processes in fleet.running.items():
            while len(urls := fleet.urls(name)) < len(processes):
                assert all(process.alive for process in processes), fleet.logs()
                await asyncio.sleep(0.05)
            for url in urls:
                while name != "sandbox" and await fleet.status(f"{url}/readyz") != 200:
                    await asyncio.sleep(0.05)


async def drain(rows: Rows) -> int:
    """Wait until nothing is open, or too long; how much is open then."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while (left := int(await rows.fetchval(OPEN))) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return left


async def end(task: "asyncio.Task[None]") -> None:
    """Cancel a task that never ends; what broke it before is raised."""
    task.cancel()
    [ended] = await asyncio.gather(task, return_exceptions=True)
    if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
        raise ended


async def journal_of(fleet: Fleet) -> list[Sent]:
    """What reached somebody, cards told apart; changes of a card reach nobody new."""
    return [
        Sent(entry.to, entry.text, entry.provider_id, asking=approve_of(entry) is not None or is_mailed_card(entry))
        for entry in await fleet.outside.journal()
        if entry.method in SENDS
    ]


def is_mailed_card(entry: Entry) -> bool:
    """Whether it is the mail that asks where Telegram did not take the card in time."""
    return str(entry.payload.get("subject", "")).endswith(" asks: may this go out?")


async def rows_of(rows: Rows) -> list[Row]:
    """Every notification with what became of it."""
    return [
        Row(
            row["id"],
            row["text"],
            row["third_party"],
            row["status"],
            row["delivery"],
            row["address"],
            tuple(row["receipts"]),
            row["authority"],
            row["open_action"],
        )
        for row in await rows.fetch(ROWS)
    ]


def strange(heard: Heard) -> list[str]:
    """What no caller may ever get, however many daemons die: refusals, tool errors, other HTTP answers."""
    return [f"{told} ({count} times)" for told, count in Counter(heard.strange).items()]


def write_figures(name: str, run_: Run) -> None:
    """Keep the figures for build/verdict.json."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / f"{name}.json").write_text(json.dumps(run_.figures, indent=1) + "\n")
