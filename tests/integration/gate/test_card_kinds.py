"""The kinds of cards: each card's row says its kind, and a new kind is one value that is registered."""

from collections.abc import Iterator
from importlib import import_module
from typing import Final
from uuid import UUID

import asyncpg
import pytest

from butlers.butler import Context
from messenger.cards import base, kinds
from messenger.cards.base import CardKind, Press, Presser
from messenger.storage import cards, queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.auth.mac import tag, tag_matches
from shared.channels.telegram import Button
from shared.config.timings import Timings
from shared.db.pool import Connection, Record
from shared.display.owner import Sheet
from shared.hashing import reference
from shared.model import Decision, Finding
from tests.integration.delivery.test_uncertain import pressed as press_by_owner
from tests.integration.doubts import all_cards, cards_written, closed, shown
from tests.integration.house import House, button_data
from tests.integration.workers import friend, in_queue, new_chat, work

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWERED: Final = "fu"
ASK: Final = f"""
WITH a AS (SELECT 'follow_up' AS card_kind, {cards.ABOUT}
    WHERE class = 'third_party' AND status = 'sent' AND reason IS NULL)
{cards.QUEUE}
"""
NOTE: Final = "UPDATE messenger.deliveries SET reason = 'answered' WHERE id = $1"
OVER: Final = f"""
SELECT d.id::text, d.address, u.realm, p.provider_id, p.shown, 'closed' AS shows
FROM messenger.deliveries d JOIN messenger.deliveries u ON u.id = d.about {queries.SHOWN_IN_TELEGRAM}
    AND d.card_kind = 'follow_up' AND u.reason = 'answered'
"""
KINDS_ABOUT: Final = "SELECT card_kind, status, reason FROM messenger.deliveries WHERE about = $1 ORDER BY created_at"


async def ask(connection: Connection, _burst: int, timings: Timings) -> int:
    return len(await connection.fetch(ASK, timings.card_elsewhere))


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    row = await queries.doubt(connection, str(claimed.about))
    assert row is not None
    stopped = await base.elsewhere(connection, claimed, row["realm"], context)
    if stopped is not None:
        return stopped
    data = base.packed(row["id"], ANSWERED, tag(context.secret, "follow_up", row["id"]))
    wires = await base.told(connection, claimed, "", Sheet(f"Did anybody answer? (ref {reference(row['id'])})"))
    wires = base.with_keyboard(wires, [[Button("Yes", data)]])
    return Authorized(wires, Decision("allow", (Finding("follow_up", "A question to the owner."),)))


async def pressed(connection: Connection, press: Press, _presser: Presser, context: Context) -> tuple[str, str]:
    if not tag_matches(context.secret, press.tag, "follow_up", press.about):
        return base.STALE, base.NOT_VALID
    await connection.execute(NOTE, UUID(press.about))
    return "answered", "It is noted."


async def over(connection: Connection) -> list[Record]:
    return list(await connection.fetch(OVER))


async def outcome(_connection: Connection, _card: Record) -> str:
    return "Somebody answered."


FOLLOW_UP: Final = CardKind("follow_up", authorize, ask, {ANSWERED}, pressed, over=over, outcome=outcome)


@pytest.fixture
def registered() -> Iterator[None]:
    """A house that knows one kind more."""
    kinds.KINDS[FOLLOW_UP.name] = FOLLOW_UP
    yield
    del kinds.KINDS[FOLLOW_UP.name]


@pytest.mark.usefixtures("registered")
async def test_a_new_kind_of_card_is_one_value(still_house: House, message: str) -> None:
    """It is asked, shown, pressed and closed, and nothing else knows of it."""
    told = await in_queue(still_house, message, contact_id=await friend(still_house))
    await work(still_house.worker())
    delivery = await still_house.delivery(told)
    assert await cards_written(still_house) == 1
    assert await cards_written(still_house) == 0
    await all_cards(still_house)
    [card] = still_house.cards(f"Did anybody answer? (ref {reference(delivery['id'])})")
    assert [data.split(":")[2] for data in button_data(card)] == [ANSWERED]
    await press_by_owner(still_house, card, ANSWERED)
    await closed(still_house)
    assert "Somebody answered." in shown(still_house, card)
    rows = await still_house.sql.fetch(KINDS_ABOUT, delivery["id"])
    assert [tuple(row) for row in rows] == [("follow_up", "sent", "closed")]


@pytest.mark.parametrize(("kind", "of_card"), [("card", None), ("owner", "approval")])
async def test_cards_and_only_cards_have_a_kind(still_house: House, kind: str, of_card: str | None) -> None:
    insert = "INSERT INTO messenger.deliveries (class, card_kind, channel, address) VALUES ($1, $2, 'telegram', $3)"
    with pytest.raises(asyncpg.CheckViolationError):
        await still_house.sql.execute(insert, kind, of_card, new_chat())


# Rows as they were before their kind was said: what lacked a name was told apart by what is set.
BEFORE: Final = """
ALTER TABLE messenger.deliveries DROP CONSTRAINT deliveries_check1;
UPDATE messenger.deliveries SET card_kind = NULL;
ALTER TABLE messenger.deliveries RENAME COLUMN card_kind TO notice;
ALTER TABLE messenger.deliveries ADD CONSTRAINT deliveries_notice_check CHECK (notice IN ('strangers', 'restored'));
INSERT INTO shared.pending_actions (id, origin_butler, tool_args, status, expires_at)
    VALUES ('00000000-0000-0000-0000-000000000001', 'greeter', '{}', 'denied', clock_timestamp());
INSERT INTO messenger.digests (id, origin_butler) VALUES ('00000000-0000-0000-0000-000000000002', 'greeter');
INSERT INTO messenger.deliveries (id, class, channel, address, attempt)
    VALUES ('00000000-0000-0000-0000-000000000003', 'card', 'telegram', 'old', 3);
INSERT INTO messenger.deliveries (class, channel, address, action_id, digest_id, about, revision, notice)
SELECT 'card', 'telegram', 'old', action_id::uuid, digest_id::uuid, about::uuid, revision, notice FROM (VALUES
    ('00000000-0000-0000-0000-000000000001', NULL, NULL, 7, NULL),
    (NULL, '00000000-0000-0000-0000-000000000002', NULL, 1, NULL),
    (NULL, NULL, '00000000-0000-0000-0000-000000000003', 2, NULL),
    (NULL, NULL, '00000000-0000-0000-0000-000000000003', 3, NULL),
    (NULL, NULL, '00000000-0000-0000-0000-000000000003', 4, NULL),
    (NULL, NULL, NULL, NULL, 'strangers')) AS v (action_id, digest_id, about, revision, notice)
"""
NAMED: Final = "SELECT card_kind, revision FROM messenger.deliveries WHERE address = 'old' ORDER BY card_kind, revision"


async def test_cards_of_before_are_named_by_what_they_are_about(still_house: House) -> None:
    """A card about the attempt after the last one told of what came back, and is about the last one."""
    try:
        await still_house.sql.execute(f"BEGIN; {BEFORE}")
        await still_house.sql.execute(import_module("migrations.versions.0032_card_kinds").KINDS)
        named = [tuple(row) for row in await still_house.sql.fetch(NAMED)]
    finally:
        await still_house.sql.execute("ROLLBACK")
    assert named == [
        ("approval", 7),
        ("bounced", 3),
        ("channel_paused", None),
        ("digest", 1),
        ("strangers", None),
        ("uncertain", 2),
        ("uncertain", 3),
    ]
