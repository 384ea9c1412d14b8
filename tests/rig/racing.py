"""Approval races at the deciding statement: many deciders on one question at once, and exactly one effect.

Rows as the gate makes them, real connections in the roles that may decide, and the very functions that a press, a form,
a command and the Messenger's tidying call. Each decider speaks of what it was shown; who is slower is told who won.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final
from uuid import uuid4

from messenger.maintenance import reaper
from shared.auth import keystore
from shared.db.dsn import role_of
from shared.db.pool import Database, Record
from shared.display.fates import ANSWERED
from shared.errors import InvalidInput
from shared.gate import owner_decision
from shared.gate.accept import accept
from shared.gate.admit import Admitter, admit
from shared.storage import contacts
from tests.rig.bench import House

MOST_DECIDERS: Final = 40
LANES: Final = 3
AT_ONCE: Final = 400
LASTS: Final = timedelta(hours=72)
SURFACES: Final = {"telegram": "messenger", "console": "console", "cli": keystore.OWNER}
WORDS: Final = ("approve", "deny", "edit", "expire")
WATCH: Final = """
CREATE SCHEMA races;
CREATE TABLE races.let_go (notification_id uuid);
CREATE FUNCTION races.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ BEGIN INSERT INTO races.let_go VALUES (NEW.id); RETURN NULL; END $$;
CREATE TRIGGER let_go AFTER UPDATE ON shared.notifications FOR EACH ROW
    WHEN (NEW.status = 'queued') EXECUTE FUNCTION races.note();
"""
# The question that was asked of the gate, as often as there are to be races.
CLONE: Final = """
WITH told AS (
    INSERT INTO shared.notifications (origin_butler, admitted_by, realm, key, lineage, request_sha, content_sha,
        envelope, whom, contact_id, contact_info_id, third_party, status, answer)
    SELECT origin_butler, admitted_by, realm, gen_random_uuid()::text, gen_random_uuid()::text, request_sha,
        content_sha, envelope, whom, contact_id, contact_info_id, third_party, status, answer
    FROM shared.notifications, generate_series(1, $2) WHERE id = $1::text::uuid RETURNING id)
INSERT INTO shared.pending_actions (origin_butler, tool_args, content_sha, agent_summary, notification_id)
SELECT a.origin_butler, a.tool_args, a.content_sha, a.agent_summary, told.id
FROM shared.pending_actions a, told WHERE a.notification_id = $1::text::uuid
RETURNING id::text
"""
HURRY: Final = "UPDATE shared.pending_actions SET expires_at = clock_timestamp() + $2 WHERE id = $1::text::uuid"
EFFECTS: Final = """
SELECT a.id::text, a.status, a.revision,
    array(SELECT e.event_type FROM shared.approval_events e WHERE e.action_id = a.id ORDER BY e.seq) AS events,
    (SELECT count(*) FROM races.let_go g WHERE g.notification_id = a.notification_id) AS let_go,
    n.status AS answer, n.owner_text
FROM shared.pending_actions a JOIN shared.notifications n ON n.id = a.notification_id
WHERE a.id = ANY ($1::text[]::uuid[])
"""
# What the notification says after which effect, and how often it was put on its way.
AFTER: Final = {
    "approved": ("approved", "queued", 1),
    "denied": ("denied", "error", 0),
    "expired": ("expired", "error", 0),
    "edited": ("pending", "pending_approval", 0),
}
OUTCOMES: Final = {"approve": "approved", "deny": "denied", "edit": "edited"}


@dataclass(slots=True)
class Raced:
    """How many races and deciders there were, and which effect won how often."""

    races: int = 0
    deciders: int = 0
    most: int = 0
    won: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Track:
    """Where it is raced: one pool, and the question that is asked again and again."""

    pool: Database
    dsn: str
    owner: str
    asked: str

    def by(self, surface: str) -> Database:
        """The way in of that surface, in its own role."""
        return self.pool.acting_as(role_of(self.dsn, SURFACES[surface]))


@asynccontextmanager
async def track(house: House) -> AsyncIterator[Track]:
    """A still installation: nothing moves in it but by the deciders' hands."""
    async with AsyncExitStack() as held:
        pool = await Database.open(house.dsn, most=MOST_DECIDERS + 8)
        held.push_async_callback(pool.close)
        async with pool.work() as connection:
            await connection.execute(WATCH)
            owner = await contacts.owner(connection)
            assert owner is not None
            contact = await contacts.add_contact(connection, "Anna", [])
            await contacts.add_address(connection, contact, "telegram", "7000000001")
        call = accept("health", {"channel": "telegram", "message": "Lunch?", "contact_id": contact})
        by = Admitter("health", pool.acting_as(role_of(house.dsn, "health")), LASTS, lambda: str(uuid4()))
        yield Track(pool, house.dsn, owner["id"], (await admit(by, call)).notification_id)


@dataclass(frozen=True, slots=True)
class Decider:
    """One who decides: what, by which surface, and how long after the signal."""

    word: str
    surface: str
    late: float


async def race(on: Track, many: int, random: Random) -> Raced:
    """So many races; AssertionError names the first that had more or less than one effect, or told a loser wrong."""
    raced = Raced()
    while raced.races < many:
        some = min(AT_ONCE, many - raced.races)
        async with on.pool.work() as connection:
            ids = [row["id"] for row in await connection.fetch(CLONE, on.asked, some)]
        fields = {action_id: _field(random) for action_id in ids}
        told: dict[str, list[tuple[str, str]]] = {}
        waiting = iter(fields.items())
        await asyncio.gather(*(_lane(on, waiting, told) for _ in range(LANES)))
        async with on.pool.work() as connection:
            for row in await connection.fetch(EFFECTS, ids):
                raced.won[_judge(row, fields[row["id"]], told[row["id"]])] += 1
        raced.races += some
        raced.deciders += sum(len(deciders) for deciders in fields.values())
        raced.most = max(raced.most, *(len(deciders) for deciders in fields.values()))
    return raced


def _field(random: Random) -> Sequence[Decider]:
    """Two to forty deciders, mostly few; all at once, or within a few milliseconds."""
    spread = random.choice((0.0, 0.0, 0.002, 0.01))
    count = 2 + int((MOST_DECIDERS - 1) * random.random() ** 16)
    words = random.choices(WORDS, weights=(4, 4, 2, 1), k=count)
    return [Decider(word, random.choice(list(SURFACES)), random.random() * spread) for word in words]


async def _lane(
    on: Track, waiting: Iterator[tuple[str, Sequence[Decider]]], told: dict[str, list[tuple[str, str]]]
) -> None:
    for action_id, deciders in waiting:
        if any(one.word == "expire" for one in deciders):
            async with on.pool.work() as connection:
                await connection.execute(HURRY, action_id, timedelta(milliseconds=len(deciders)))
        told[action_id] = await asyncio.gather(*(_decide(on, action_id, one) for one in deciders))
        if any(one.word == "expire" for one in deciders):
            await _expire(on)


async def _decide(on: Track, action_id: str, one: Decider) -> tuple[str, str]:
    """What one decider is told: code and sentence."""
    if one.late:
        await asyncio.sleep(one.late)
    if one.word == "expire":
        await _expire(on)
        return "expire", ""
    try:
        async with on.by(one.surface).work() as connection:
            if one.word == "edit":
                change = owner_decision.Edit(action_id, f"Dinner? {uuid4()}", on.owner, one.surface, LASTS, 1)
                outcome = await owner_decision.edit(connection, change)
            else:
                word = owner_decision.OwnerDecision(
                    action_id, one.word == "approve", on.owner, one.surface, LASTS, None, 1
                )
                outcome = await owner_decision.apply(connection, word)
    except InvalidInput as refused:
        return "refused", refused.message
    return outcome.code, outcome.text


async def _expire(on: Track) -> None:
    async with on.by("telegram").work() as connection:
        await reaper.close_unanswered(connection)


def _judge(row: Record, deciders: Sequence[Decider], told: Sequence[tuple[str, str]]) -> str:
    """The one effect; everybody was told the truth about it."""
    words = [(one.word, one.surface, *said) for one, said in zip(deciders, told, strict=True)]
    case = f"{row['events']} {row['status']} {row['answer']}, let go {row['let_go']}: {words}"
    effects = [event for event in row["events"] if event != "parked"]
    assert len(effects) == 1, f"not one effect: {case}"
    won = str(effects[0])
    assert (row["status"], row["answer"], row["let_go"]) == AFTER[won], case
    assert (row["owner_text"] is not None) == (won == "edited"), case
    winners = [word for word, _, code, _ in words if code in OUTCOMES.values()]
    assert winners == ([] if won == "expired" else [word for word, to in OUTCOMES.items() if to == won]), case
    for word, _, code, said in words:
        if code in {*OUTCOMES.values(), "expire"}:
            continue
        assert code == ("changed" if won == "edited" else "late"), f"{word} was told {code}: {case}"
        assert won == "edited" or ANSWERED[won] in said, f"{word} was told {said!r}: {case}"
    return won
