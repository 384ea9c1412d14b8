"""A campaign: a whole fleet under load, in which everything dies that can die, and the verdict of it all.

Two to four Messengers and two Switchboards race. Processes end themselves at named failpoints, or are killed and
stopped from outside; PostgreSQL is restarted at once; the providers lie; the sandbox is the journal and lives.
The order of all that is chosen follows from the seed; what it hits does not, since processes race.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import asyncpg

from tests.chaos.crew import Crew, Place, Schedule
from tests.chaos.ledger import LEFT_BEHIND, OBSERVER, Run, drain, end, journal_of, rows_of, strange
from tests.chaos.load import TURNED_AWAY, as_json, people
from tests.chaos.owner import Person
from tests.chaos.recovery import recoveries
from tests.chaos.verdict import verdict
from tests.chaos.world import Talker
from tests.rig.bench import Bench
from tests.rig.failpoints import FAILPOINTS
from tests.rig.fleet import Fleet, Rows
from tests.rig.forks import ROOT, Forks

DRAIN_SECONDS: Final = 60.0
# No standing rule denies anything, and the times are 24 h and 72 h; what its butler withdraws is cancelled.
NEVER_SO: Final = frozenset({"dead", "expired", "refused"})
SOON_SECONDS: Final = 20.0
REST_SECONDS: Final = 45.0
# A message that failed again and again waits for minutes; that it would wait is known.
NEXT_TRY: Final = "UPDATE messenger.deliveries SET send_at = clock_timestamp() WHERE status = 'queued'"
# How many of the blows stop a Messenger past its lease instead of killing.
STILL: Final = 0.04
SPARING: Final = 0.8
# How many people at a time are told something before it is known where.
STRANGERS: Final = 2
# Telegram refused the card, so it was mailed, and a mail decides nothing.
ASKED_BY_MAIL: Final = """
SELECT a.id::text FROM shared.pending_actions a WHERE a.status = 'pending' AND EXISTS (
    SELECT FROM messenger.deliveries c WHERE c.action_id = a.id AND c.revision = a.revision
        AND c.channel = 'telegram' AND c.status = 'failed')
"""
LEFT_OPEN: Final = """
SELECT n.envelope #>> '{delivery,message}', n.status, a.id, a.status, a.revision, d.status, d.reason, d.attempt,
    (SELECT string_agg(concat_ws(' ', c.channel, c.revision, c.status, c.reason, c.attempt), ', ')
        FROM messenger.deliveries c WHERE c.action_id = a.id),
    (SELECT string_agg(concat_ws(' ', u.outcome, u.body #>> '{callback_query,message,message_id}'), ', ')
        FROM messenger.updates u WHERE u.body #>> '{callback_query,data}' LIKE 'a1:' || translate(rtrim(encode(
            uuid_send(a.id), 'base64'), '='), '+/', '-_') || '%')
FROM shared.notifications n LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
LEFT JOIN shared.pending_actions a ON a.notification_id = n.id
WHERE n.status = 'queued' OR n.status LIKE 'pending%' OR d.status IN ('queued', 'claimed', 'sending', 'parked')
LIMIT 10
"""
SENT_AT: Final = """
SELECT extract(epoch FROM at)::float8 AS at FROM chaos.turns WHERE became = 'sent' ORDER BY at
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how hard: it goes on until so many kills, answered calls and restarts are done, or time is over.

    Then there are no more blows until every failpoint was hit at least `hits` times, or `mopping` seconds are over.
    """

    seed: int
    kills: int
    seconds: float
    calls: int = 0
    restarts: int = 0
    hits: int = 0
    mopping: float = 180
    messengers: int = 4
    callers: int = 50
    mean_pause: float = 0.35
    failpoints: Sequence[str] = field(default_factory=lambda: [one.name for one in FAILPOINTS])


async def run(bench: Bench, plan: Plan, code: Path | None = None) -> Run:
    """Carry the plan out on a fresh fleet, drain, stop, and judge; `code` as in Bench.house."""
    # Of all that is done here, starting what was killed takes longest.
    forks = Forks(code or ROOT)
    try:
        house = await bench.house(code=code, BUTLERS_SWEEP_SECONDS="0.5", BUTLERS_CARD_BURST="100000")
        fleet = await Fleet.start(replace(house, forks=forks), "each")
        try:
            await fleet.db.execute(OBSERVER)
            done = await _run(fleet, bench, plan)
            await fleet.stop()
        except BaseException:
            await fleet.abandon()
            raise
    finally:
        forks.close()
    return done


async def _run(fleet: Fleet, bench: Bench, plan: Plan) -> Run:
    rng, started = Random(plan.seed), time.monotonic()
    schedule = Schedule(Random(rng.getrandbits(64)), plan.failpoints, plan.hits)
    counts = {"messenger": plan.messengers, "switchboard": 2, "greeter": 2, "health": 1}
    crew = Crew(fleet, bench, counts, schedule)
    await crew.begin()
    who = await people(fleet)
    tokens = {name: await fleet.token(name) for name in ("health", "greeter")}
    talker = Talker(crew, who, tokens, Random(rng.getrandbits(64)))
    talker.excused = frozenset({TURNED_AWAY})
    person = Person(crew, talker, who, Random(rng.getrandbits(64)))
    tasks: list[asyncio.Task[None]] = []
    try:
        blows, killed = await _under_load(crew, talker, person, plan, tasks)
        left_open = await _drained(fleet)
    finally:
        for task in tasks:
            task.cancel()
    for task in tasks:
        await end(task)
    drained = time.monotonic()
    journal, rows, aimed_since = await journal_of(fleet), await crew.ask(rows_of), crew.deaths.aimed_since
    judged = verdict(journal, talker.heard.answers, rows, never=NEVER_SO, aimed_since=aimed_since)
    figures = {
        "seed": plan.seed,
        "seconds_of_blows": round(blows - started, 1),
        "seconds_of_mopping": round(killed - blows, 1),
        "seconds_of_drain": round(drained - killed, 1),
        "left_open": left_open,
        **figures_of(crew, await crew.ask(_sent_at), max(1, plan.hits)),
        "left_behind": {row["turn"]: row["count"] for row in await crew.ask(lambda rows: rows.fetch(LEFT_BEHIND))},
        "reworded": talker.reworded,
        "taken_back": talker.taken_back,
        "owner_said": dict(sorted(person.said.items())),
        **as_json(talker.heard),
        **judged.figures,
    }
    if left_open:
        figures["open"] = [
            " ".join(map(str, row.values())) for row in await crew.ask(lambda rows: rows.fetch(LEFT_OPEN))
        ]
    asked = talker.heard.told - talker.reworded + talker.heard.repeated
    share = talker.heard.repeated / asked
    return Run(judged, [*strange(talker.heard), *crew.deaths.by_themselves], share, figures)


async def _under_load(
    crew: Crew, talker: Talker, person: Person, plan: Plan, tasks: "list[asyncio.Task[None]]"
) -> tuple[float, float]:
    """Do it all until every caller has its answers; when the last blow fell, and when the last daemon died.

    `tasks` go on until they are ended.
    """

    def begin(*ones: Coroutine[Any, Any, None]) -> "list[asyncio.Task[None]]":
        made = [asyncio.create_task(one) for one in ones]
        tasks.extend(made)
        return made

    for_good = begin(crew.keep(), person.decides())
    restless = begin(talker.weather_for_ever(), person.changes_rules(), person.brakes(), person.writes())
    restless += begin(person.counts_what_waits(), person.answers_doubts(), person.resolves())
    callers = begin(*(talker.call_for_ever() for _ in range(plan.callers)))
    callers += begin(talker.carries(), *(person.adds_identifiers(talker.stopping) for _ in range(STRANGERS)))
    beside = [*for_good, *restless, *callers]
    await _watched(nemesis(crew, talker, plan, Random(plan.seed)), beside)
    blows = time.monotonic()
    await _watched(mop_up(crew, plan), beside)
    killed = time.monotonic()
    await come_to_rest(crew, person, restless)
    talker.stopping.set()
    await _watched(asyncio.gather(*callers), for_good)
    return blows, killed


async def nemesis(crew: Crew, talker: Talker, plan: Plan, rng: Random) -> None:
    """Kill, stop and crash until the plan is fulfilled or its time is over."""
    deadline = time.monotonic() + plan.seconds
    deaths = crew.deaths
    while time.monotonic() < deadline:
        called = talker.heard.calls >= plan.calls
        if len(deaths.at) >= plan.kills and len(deaths.restarts_at) >= plan.restarts and called:
            return
        await asyncio.sleep(rng.expovariate(1 / plan.mean_pause))
        due = plan.restarts * len(deaths.at) / max(1, plan.kills)
        if plan.restarts and len(deaths.restarts_at) < min(plan.restarts, due):
            await crew.crash_postgres()
        elif rng.random() < STILL and not any(place.still_until for place in crew.places):
            crew.stand(rng.choice(crew.of("messenger")))
        else:
            for place in aimed_at(crew, rng):
                crew.strike(place)


async def mop_up(crew: Crew, plan: Plan) -> None:
    """No more blows: whoever comes to a failpoint that was not hit so often ends there, until none is left."""
    deadline = time.monotonic() + plan.mopping
    if crew.schedule.missing(plan.hits):
        crew.mop_up()
    while crew.schedule.missing(plan.hits) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)


def aimed_at(crew: Crew, rng: Random) -> list[Place]:
    """One to three of those who are up and not about to end themselves; mostly somebody is left to do the work."""
    up = [place for place in crew.places if place.is_up]
    aim = [place for place in up if not place.armed and place.still_until is None]
    chosen = rng.sample(aim, min(len(aim), rng.choice((1, 1, 2, 3))))
    if rng.random() < SPARING:
        left = Counter(place.name for place in up if place not in chosen)
        chosen = [place for place in chosen if left[place.name] or len(crew.of(place.name)) == 1]
    return chosen


async def come_to_rest(crew: Crew, person: Person, restless: Sequence["asyncio.Task[None]"]) -> None:
    """No more evil: what is armed goes, what stands goes on, and everybody is there."""
    for task in restless:
        await end(task)
    await crew.fleet.outside.clear_faults()
    await person.comes_to_rest()
    crew.calm = True
    for place in crew.places:
        if place.armed:
            crew.strike(place)
    try:
        async with asyncio.timeout(REST_SECONDS):
            while not all(p.process and p.process.alive and not p.armed and not p.still_until for p in crew.places):
                await asyncio.sleep(0.05)
            for name, count in Counter(place.name for place in crew.places).items():
                while await _readiness(crew.fleet, name) != [200] * count:
                    await asyncio.sleep(0.05)
    except TimeoutError:
        found = {name: await _readiness(crew.fleet, name) for name in {place.name for place in crew.places}}
        raise AssertionError(f"no rest: {crew.places}; they answer {found}\n{crew.fleet.logs(8)}") from None


async def _readiness(fleet: Fleet, name: str) -> list[int]:
    return [await fleet.status(f"{url}/readyz") for url in fleet.urls(name)]


async def _watched(what: Awaitable[object], beside: Sequence["asyncio.Task[None]"]) -> None:
    """Wait for it; what breaks beside it is raised at once."""
    task = asyncio.ensure_future(what)
    waiting: set[asyncio.Future[object]] = {task, *beside}  # type: ignore[arg-type]  # what they return is not asked
    try:
        while not task.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def figures_of(crew: Crew, moments: Sequence[float], least: int) -> Mapping[str, object]:
    """What was done to the fleet, and how long after each blow the first delivery came; `missing`: not hit so often."""
    deaths = crew.deaths
    last_blow = max([*deaths.at, *deaths.restarts_at], default=0.0)
    return {
        "kills": len(deaths.at),
        "restarts": len(deaths.restarts_at),
        "killed": dict(sorted(deaths.daemons.items())),
        "kills_at_failpoints": sum(deaths.failpoints.values()),
        "failpoints_hit": len({*deaths.failpoints, *deaths.stops} - {"at random"}),
        "failpoints_missing": crew.schedule.missing(least),
        "failpoints": dict(sorted(deaths.failpoints.items())),
        "stops": dict(sorted(deaths.stops.items())),
        "in_hand_of_the_dead": dict(sorted(deaths.in_hand.items())),
        **recoveries(deaths.at, deaths.restarts_at, moments, deaths.aimed_since),
        "last_blow_to_last_sent": round(moments[-1] - last_blow, 1) if moments else None,
    }


async def _drained(fleet: Fleet) -> int:
    """How much is open when nothing more is to come; by a connection of its own, since the crew goes on asking."""
    rows: Rows = await asyncpg.connect(fleet.house.dsn)
    try:
        await rows.execute(NEXT_TRY)
        await drain(rows, SOON_SECONDS)
        for row in await rows.fetch(ASKED_BY_MAIL):
            await fleet.house.butlers("approvals", "approve", row["id"])
        left = await drain(rows, DRAIN_SECONDS)
        while left and (later := await drain(rows, DRAIN_SECONDS)) < left:
            left = later  # a slow machine; what stands still is found in as long
        return left
    finally:
        await rows.close()


async def _sent_at(rows: Rows) -> list[float]:
    return [row["at"] for row in await rows.fetch(SENT_AT)]
