"""Flips of brake, deny rule and contact value against busy Messengers, judged by the order of commits.

What a flip sees of the marks is evidence: it holds the authority's row until its commit, and no marker commits while
somebody does. A mark that the flip's own last snapshot does not see was committed after it. No clock is asked.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final
from uuid import uuid4

from shared.auth import keystore
from shared.db import dsn
from shared.db.pool import Database
from shared.gate.owner_decision import OwnerDecision, apply
from shared.rpc import request_of, tool_object
from shared.storage import brakes, contacts, rules
from shared.storage.brakes import Scope
from shared.storage.rules import NewRule
from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.fleet import Fleet
from tests.rig.outside import SENDS

FIRST_CHAT: Final = 7_500_000_001
# So few that each always has something on its way.
PEOPLE: Final = 4
# Where the owner is told and asked.
OWN: Final = {str(OWNER), OWNER_EMAIL}
KINDS: Final = ("brake", "deny", "value")
# A marker stands still for so long before its commit, so that flips have something to wait for.
STANDS: Final = 0.01
# How long a flip lasts at most, in seconds, and how long it is before the next.
HOLDS: Final = 0.02
# For so long flips go on until enough was marked: on a busy machine the first message takes its time.
LONGEST: Final = 60
WATCH: Final = f"""
CREATE SCHEMA flips;
CREATE TABLE flips.marks (xid xid8, epoch bigint, contact_id uuid, origin text, address text);
CREATE TABLE flips.flips (n int, kind text, contact_id uuid, old text, put_on pg_snapshot, lifted pg_snapshot);
GRANT USAGE ON SCHEMA flips TO PUBLIC;
GRANT SELECT, INSERT, UPDATE ON flips.flips TO PUBLIC;
CREATE FUNCTION flips.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ BEGIN
        INSERT INTO flips.marks SELECT pg_current_xact_id(), (SELECT epoch FROM shared.authority), n.contact_id,
            n.origin_butler, d.address
        FROM messenger.deliveries d JOIN shared.notifications n ON n.id = d.notification_id
        WHERE d.id = NEW.delivery_id AND n.third_party;
        PERFORM pg_sleep({STANDS});
        RETURN NULL;
    END $$;
CREATE TRIGGER noted AFTER INSERT ON messenger.attempts FOR EACH ROW WHEN (NEW.marked_at IS NOT NULL)
    EXECUTE FUNCTION flips.note();
"""
FLIPPED: Final = "INSERT INTO flips.flips VALUES ($1, $2, $3::text::uuid, $4, pg_current_snapshot(), NULL)"
LIFTED: Final = "UPDATE flips.flips SET lifted = pg_current_snapshot() WHERE n = $1"
MOVE: Final = "UPDATE shared.contact_info SET value = $2 WHERE contact_id = $1::text::uuid AND type = 'telegram'"
# What was committed after the flip and before its end, although it concerns it.
AFTER: Final = """
SELECT f.n, f.kind, m.address, m.epoch FROM flips.flips f JOIN flips.marks m
    ON (f.contact_id IS NULL OR m.contact_id = f.contact_id) AND (f.kind <> 'value' OR m.address = f.old)
WHERE NOT pg_visible_in_snapshot(m.xid, f.put_on) AND (f.kind = 'value' OR pg_visible_in_snapshot(m.xid, f.lifted))
ORDER BY f.n
"""
MARKS: Final = "SELECT address, count(*) FROM flips.marks GROUP BY address"
TIMES: Final = "SELECT count(DISTINCT epoch) FROM flips.marks"
BUSY: Final = "SELECT count(*), count(DISTINCT epoch) FROM flips.marks"
VALUE: Final = "SELECT value FROM shared.contact_info WHERE contact_id = $1::text::uuid AND type = 'telegram'"
# What flips stopped: refused, asked about, delayed.
STOPPED: Final = """
SELECT (SELECT count(*) FROM shared.notifications WHERE answer #>> '{error,class}' = 'forbidden'),
    (SELECT count(*) FROM shared.approval_events WHERE event_type IN ('parked', 'revised')),
    (SELECT count(*) FROM messenger.deliveries WHERE reason = 'braked')
"""


@dataclass(slots=True)
class Flipped:
    """How many flips, how long each commit of one took in seconds, and what went on meanwhile."""

    flips: int = 0
    seconds: list[float] = field(default_factory=list)
    marks: int = 0
    # In how many different states of the authority something was marked.
    between: int = 0
    refused: int = 0
    parked: int = 0
    braked: int = 0
    answered: Counter[str] = field(default_factory=Counter)

    def p99(self) -> float:
        """Milliseconds that 99 of 100 commits of a flip do not exceed, waiting for markers included."""
        ordered = sorted(self.seconds)
        return round(1000 * ordered[int(0.99 * (len(ordered) - 1))], 1)


@dataclass(frozen=True, slots=True)
class Context:
    """The fleet, the owner's way to its rows, and whom messages go to."""

    fleet: Fleet
    owner: Database
    by: str
    people: Sequence[str]
    # Whom only the owner's yes lets a message out to.
    asked: str


@asynccontextmanager
async def context(fleet: Fleet) -> AsyncIterator[Context]:
    """A fleet with a second Messenger, people to whom a rule lets messages out, and one for whom the owner is asked."""
    second = fleet.house.spawn(["run", "messenger"], "second-messenger")
    fleet.started.append(second)
    fleet.running["second"] = [second]
    await fleet.until_ready(second)
    async with AsyncExitStack() as held:
        pool = await Database.open(fleet.house.dsn, most=6)
        held.push_async_callback(pool.close)
        async with pool.work() as connection:
            await connection.execute(WATCH)
            by = await contacts.owner(connection)
            assert by is not None
        people = [await fleet.contact(f"Friend {n}", telegram=FIRST_CHAT + n) for n in range(PEOPLE + 1)]
        owner = pool.acting_as(dsn.role_of(fleet.house.dsn, keystore.OWNER))
        for one in people[1:]:
            async with owner.work() as connection:
                await rules.add(connection, NewRule("allow", {"contact_id": one}), by["id"])
        yield Context(fleet, owner, by["id"], people[1:], people[0])
        codes = await fleet.kill("second", signal.SIGTERM)
        assert codes == [0], fleet.logs()


async def flip(on: Context, many: int, random: Random) -> Flipped:
    """So many flips while messages flow, and more for a while until enough was marked to prove something.

    AssertionError for what was marked after what forbids it.
    """
    flipped, stop = Flipped(), asyncio.Event()
    talking = [asyncio.create_task(_talk(on, stop, flipped, n)) for n in range(PEOPLE)]
    talking.append(asyncio.create_task(_ask(on, stop, flipped)))
    try:
        chats = iter(range(FIRST_CHAT + 1_000, FIRST_CHAT + 1_000_000))
        until = time.monotonic() + LONGEST
        while not any(task.done() for task in talking) and (
            flipped.flips < many or (time.monotonic() < until and not await _busy(on, many))
        ):
            await _flip(on, flipped, random, f"{next(chats)}")
    finally:
        stop.set()
        await asyncio.gather(*talking)
    await _judge(on, flipped)
    return flipped


async def _busy(on: Context, many: int) -> bool:
    """Whether enough was marked for so many flips, and in enough states of the authority."""
    [(marks, between)] = await on.fleet.sql(BUSY)
    return bool(marks > many / 2 and between > many / 4)


async def _flip(on: Context, flipped: Flipped, random: Random, chat: str) -> None:
    n, kind = flipped.flips, KINDS[flipped.flips % len(KINDS)]
    # Now and then the brake of everything a butler says.
    who = None if kind == "brake" and random.random() < 0.3 else random.choice([*on.people, on.asked])
    scope = Scope(contact_id=who, butler="health" if who is None else None)
    old, rule = None, ""
    started = time.monotonic()
    async with on.owner.work() as connection:
        if kind == "brake":
            await brakes.put_on(connection, scope, on.by)
        elif kind == "deny":
            rule = await rules.add(connection, NewRule("deny", {"contact_id": str(who)}), on.by)
        else:
            old = await connection.fetchval(VALUE, who)
            await connection.execute(MOVE, who, chat)
        await connection.execute(FLIPPED, n, kind, who, old)
    flipped.seconds.append(time.monotonic() - started)
    flipped.flips += 1
    await asyncio.sleep(random.random() * HOLDS)
    if kind == "value":
        return
    started = time.monotonic()
    async with on.owner.work() as connection:
        if kind == "brake":
            await brakes.lift(connection, scope, on.by)
        else:
            await rules.revoke(connection, rule, on.by)
        await connection.execute(LIFTED, n)
    flipped.seconds.append(time.monotonic() - started)
    await asyncio.sleep(random.random() * HOLDS)


async def _notify(on: Context, flipped: Flipped, contact_id: str) -> Mapping[str, object]:
    """One message of the butler's, and its answer."""
    asked = {"channel": "telegram", "contact_id": contact_id, "message": f"words {uuid4()}"}
    headers, body = request_of(await on.fleet.token("health"), "notify", asked, 1)
    async with on.fleet.http.post(f"{on.fleet.url('health')}/mcp", json=body, headers=headers) as answer:
        told = tool_object(await answer.read(), "health", "notify")
    flipped.answered[str(told["status"])] += 1
    return told


async def _talk(on: Context, stop: asyncio.Event, flipped: Flipped, n: int) -> None:
    """By a standing rule, without end."""
    while not stop.is_set():
        await _notify(on, flipped, on.people[n])


async def _ask(on: Context, stop: asyncio.Event, flipped: Flipped) -> None:
    """By the owner's yes, without end."""
    while not stop.is_set():
        told = await _notify(on, flipped, on.asked)
        if "action_id" in told:
            word = OwnerDecision(
                str(told["action_id"]), approve=True, by=on.by, surface="cli", lasts=timedelta(hours=72)
            )
            async with on.owner.work() as connection:
                await apply(connection, word)


async def _judge(on: Context, flipped: Flipped) -> None:
    after = [tuple(row) for row in await on.fleet.sql(AFTER)]
    assert not after, (
        f"{len(after)} marked after what forbids it was committed, (flip, kind, address, epoch): {after[:5]}"
    )
    # What left first: on a busy machine there is still a queue, and what is marked now may leave before the next line.
    sent = Counter(entry.to for entry in await on.fleet.outside.journal() if entry.method in SENDS)
    marked = {row["address"]: row["count"] for row in await on.fleet.sql(MARKS)}
    counts = {chat: (count, marked.get(chat, 0)) for chat, count in sent.items() if chat not in OWN}
    unmarked = {chat: both for chat, both in counts.items() if both[0] > both[1]}
    assert not unmarked, f"left without a mark (sent, marked): {unmarked}"
    flipped.marks = sum(marked.values())
    flipped.between = int(str(await on.fleet.value(TIMES)))
    [stopped] = await on.fleet.sql(STOPPED)
    flipped.refused, flipped.parked, flipped.braked = stopped
