"""What every rig reads at the end: the rows, the journal, and how much is still open; and what it writes down.

The sandbox is the journal and is never killed.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.load import REST, Heard, name_of
from tests.chaos.verdict import Row, Sent, Verdict
from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.fleet import Fleet, Rows
from tests.rig.forks import Process
from tests.rig.outside import SENDS

# While PostgreSQL restarts no token can be looked up, and all callers are turned away again and again for seconds.
MOST_UNHEARD: Final = 0.15
MOST_UNHEARD_AFTER_RESTARTS: Final = 0.35
UNHEARD: Final = ("gave_up", "turned_away")
BEGUN: Final = ("told", "told_again")
FIGURES: Final = Path(__file__).resolve().parents[2] / "build" / "figures"
# Leases of 7 s, the poller's 10 s, a provider's wish to wait, and whatever piled up behind them.
DRAIN_SECONDS: Final = 60.0
OWNERS: Final = frozenset({str(OWNER), OWNER_EMAIL})
MADE_HERE: Final = re.compile(r"\w[\w ]* <\d+>( again, in other words)?")
REPEATED: Final = re.compile(r"\u25a3 Possibly a repeat \(ref \w+\)\n")
# An observer only: which delivery left a state, and whether by way of a lease that had run out; when rules held.
OBSERVER: Final = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.turns (delivery_id uuid, class text, was text, became text, overdue boolean,
    at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO chaos.turns VALUES (NEW.id, NEW.class, OLD.status, NEW.status, OLD.lease_until <= clock_timestamp());
    RETURN NULL; END $$;
CREATE TRIGGER note AFTER UPDATE ON messenger.deliveries FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION chaos.note();
CREATE TABLE chaos.rules (rule_id uuid, active boolean, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION chaos.rule() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO chaos.rules VALUES (NEW.id, NEW.active); RETURN NULL; END $$;
CREATE TRIGGER rule AFTER UPDATE OF active ON shared.approval_rules FOR EACH ROW EXECUTE FUNCTION chaos.rule();
"""
LEFT_BEHIND: Final = """
SELECT was || ' -> ' || became AS turn, count(*) FROM chaos.turns
WHERE overdue AND was IN ('claimed', 'sending') GROUP BY 1 ORDER BY 1
"""
OPEN: Final = """
SELECT (SELECT count(*) FROM shared.notifications WHERE status = 'queued' OR status LIKE 'pending%')
    + (SELECT count(*) FROM messenger.deliveries WHERE status IN ('queued', 'claimed', 'sending', 'parked'))
    + (SELECT count(*) FROM shared.pending_actions WHERE status IN ('pending', 'approved', 'executing'))
"""
ROWS: Final = """
SELECT n.id::text, n.envelope #>> '{delivery,message}' AS text, n.third_party, n.status, d.status AS delivery,
    d.address, d.reason, (n.answer #>> '{error,retryable}')::boolean AS retryable,
    (SELECT extract(epoch FROM max(t.marked_at))::float8 FROM messenger.attempts t WHERE t.delivery_id = d.id)
        AS marked_at,
    NOT EXISTS (SELECT FROM messenger.attempts t WHERE t.delivery_id = d.id AND t.marked_at IS NOT NULL)
        OR EXISTS (SELECT FROM messenger.attempts t JOIN messenger.parts p ON p.delivery_id = d.id AND p.n = t.n
            WHERE t.delivery_id = d.id AND t.marked_at IS NOT NULL AND p.status <> 'sent'
            AND coalesce(t.outcome, 'none') IN ('none', 'lease_lost', 'timeout', 'connection_lost', 'server_error',
                'unreadable', 'late_receipt')) AS doubted,
    said.again, said.vouched, said.left, n.answer #>> '{error,message}' LIKE '%may have arrived%' AS warned,
    EXISTS (SELECT FROM messenger.attempts t JOIN messenger.attempts next USING (delivery_id, n)
        WHERE t.delivery_id = d.id AND next.attempt > t.attempt AND t.marked_at IS NOT NULL
            AND next.marked_at IS NOT NULL AND coalesce(t.outcome, 'none') IN ('none', 'lease_lost', 'timeout',
                'connection_lost', 'server_error', 'unreadable', 'late_receipt', 'sent')
            AND NOT EXISTS (SELECT FROM shared.resolutions s WHERE s.delivery_id = d.id AND s.word = 'again'
                AND s.outcome = 'done' AND s.attempt >= t.attempt AND s.attempt < next.attempt)) AS unasked,
    ARRAY(SELECT p.provider_id FROM messenger.parts p WHERE p.delivery_id = d.id ORDER BY p.n) AS receipts,
    EXISTS (SELECT FROM messenger.attempts t WHERE t.delivery_id = d.id AND t.marked_at IS NOT NULL)
        AND NOT EXISTS (SELECT FROM (SELECT max(t.marked_at) AS at FROM messenger.attempts t
            WHERE t.delivery_id = d.id AND t.marked_at IS NOT NULL GROUP BY t.n) m
        WHERE NOT EXISTS (SELECT FROM shared.rule_uses u WHERE u.notification_id = n.id AND coalesce(
                (SELECT r.active FROM chaos.rules r WHERE r.rule_id = u.rule_id AND r.at < m.at
                    ORDER BY r.at DESC LIMIT 1), true))
            AND NOT EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = n.id
                AND a.decided_by IS NOT NULL AND a.decided_at < m.at
                AND a.status IN ('executing', 'executed', 'failed', 'uncertain')))
        AND NOT EXISTS (SELECT FROM messenger.attempts t JOIN shared.brakes b ON b.made_at < t.marked_at
                AND coalesce(b.lifted_at, 'infinity') > t.marked_at AND coalesce(b.until, 'infinity') > t.marked_at
            WHERE t.delivery_id = d.id AND coalesce(b.butler, n.origin_butler) = n.origin_butler
                AND coalesce(b.channel, d.channel) = d.channel
                AND (b.contact_id IS NULL OR b.contact_id = n.contact_id)) AS authority,
    EXISTS (SELECT FROM shared.pending_actions a WHERE a.notification_id = n.id
        AND a.status IN ('pending', 'approved', 'executing')) AS open_action
FROM shared.notifications n LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE word = 'again') AS again,
    count(*) FILTER (WHERE word = 'arrived') AS vouched, count(*) FILTER (WHERE word = 'leave') AS left
    FROM shared.resolutions WHERE delivery_id = d.id AND outcome = 'done') said
ORDER BY n.created_at
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is over: the verdict, all else that must not be, and the figures."""

    verdict: Verdict
    strange: Sequence[str]
    share_repeated: float
    figures: Mapping[str, object]

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be, in words."""
        left, silent = self.figures["left_open"], share_unheard(self.figures)
        most = MOST_UNHEARD_AFTER_RESTARTS if self.figures["restarts"] else MOST_UNHEARD
        return [
            *self.verdict.broken,
            *self.strange,
            *([f"{left} left open"] if left else []),
            *([f"{silent:.1%} of the calls gave up or were turned away"] if silent >= most else []),
        ]


def share_unheard(figures: Mapping[str, object]) -> float:
    """Callers that gave up, and answers that nobody can be looked up (503), by the calls that were begun."""
    silent, begun = (sum(int(str(figures[name])) for name in names) for names in (UNHEARD, BEGUN))
    return silent / max(1, begun)


def start_one(fleet: Fleet, name: str) -> Process:
    """One more process of that daemon; it is known by its URL as soon as it says it."""
    process = fleet.house.spawn(["run", name], f"{name}-{len(fleet.started) + 1}")
    fleet.running[name].append(process)
    fleet.started.append(process)
    return process


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


async def drain(rows: Rows, seconds: float = DRAIN_SECONDS) -> int:
    """Wait until nothing is open, or too long; how much is open then."""
    deadline = time.monotonic() + seconds
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
    """What reached somebody; changes of what is there reach nobody new.

    What the Messenger asks or tells the owner by itself is told apart by its words: the messages of these tests
    are made alike. A message it repeats to the owner says so.
    """
    found = []
    for entry in await fleet.outside.journal():
        if entry.method not in SENDS:
            continue
        if entry.to not in OWNERS:
            part = 2 if entry.text.startswith(REST) else 1
            found.append(Sent(entry.to, name_of(entry.text.removeprefix(REST)), entry.provider_id, part=part))
            continue
        repeated = REPEATED.match(entry.text)
        text = entry.text[repeated.end() :] if repeated else entry.text
        asking = not MADE_HERE.fullmatch(text)
        found.append(Sent(entry.to, text, entry.provider_id, asking=asking, repeat=repeated is not None))
    return found


async def rows_of(rows: Rows) -> list[Row]:
    """Every notification with what became of it."""
    return [
        Row(
            row["id"],
            name_of(row["text"]),
            row["third_party"],
            row["status"],
            row["delivery"],
            row["address"],
            tuple(row["receipts"]),
            row["authority"],
            row["open_action"],
            row["reason"],
            row["marked_at"],
            2 if "\n" in row["text"] else 1,
            row["retryable"] is not False,
            row["doubted"],
            row["again"],
            row["vouched"],
            row["left"],
            row["unasked"],
            bool(row["warned"]),
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
