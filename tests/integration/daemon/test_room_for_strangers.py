"""Which strangers' words are shown now, where more of them wait than there is room for."""

from typing import Final
from uuid import uuid4

import pytest

from messenger.storage.kinds import stranger_cards
from shared.storage import contacts
from switchboard import incoming
from tests.integration.daemon.test_routing import bring, event, letter
from tests.integration.house import House
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROW: Final = "SELECT * FROM switchboard.inbox WHERE text = $1"
LIVE: Final = "UPDATE shared.channels SET realm = '77' WHERE channel = 'telegram'"
BY_THE_BOT_BEFORE: Final = "UPDATE switchboard.inbox SET endpoint_identity = '66' WHERE text = $1"
# A process that is under somebody's control writes them by the Switchboard's own login.
FROM_NOWHERE: Final = """
INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, thread, sender, contact_id, text,
    request_context, kind)
SELECT 'telegram', '1', gen_random_uuid(), '1:' || n, (7000000000000000 + n)::text, $1::text::uuid, $2 || n, '{"a": 1}',
    'message' FROM generate_series(1, 6) n
"""
WAIT: Final = "UPDATE switchboard.inbox SET stranger = 'waits' WHERE stranger IS NULL"
SHOWN_THERE: Final = """
SELECT i.text FROM messenger.deliveries d JOIN switchboard.inbox i ON i.id = d.about WHERE d.realm = '77'
"""


async def no_strangers(house: House) -> None:
    """Nobody waits for a card, and none was made lately."""
    await house.sql.execute("UPDATE switchboard.inbox SET stranger = 'ignored' WHERE stranger = 'waits'")
    await house.sql.execute("UPDATE messenger.deliveries SET created_at = '2026-01-01Z' WHERE card_kind = 'stranger'")


async def shown_of_strangers(house: House) -> set[str]:
    """Which words get a card now, of the words that wait."""
    async with house.context("messenger").db.work() as connection:
        made = await stranger_cards.ask_strangers(connection, 3, house.settings.timings)
    rows = await house.sql.fetch(
        "UPDATE messenger.deliveries d SET status = 'cancelled' FROM switchboard.inbox i WHERE i.id = d.about"
        " AND d.card_kind = 'stranger' AND d.status = 'queued' RETURNING i.text"
    )
    assert len(rows) == made
    return {row["text"] for row in rows}


async def test_of_strangers_in_numbers_so_many_cards_are_shown_each_in_turn(still_house: House, message: str) -> None:
    await no_strangers(still_house)
    loud, quiet = new_chat(), new_chat()
    for n in range(6):
        await bring(still_house, event(f"{message} {n}", loud))
    await bring(still_house, event(f"{message} quiet", quiet))
    for _ in range(7):
        await incoming.route_waiting(still_house.context("switchboard"))
    assert await shown_of_strangers(still_house) == {f"{message} 0", f"{message} 1", f"{message} quiet"}
    assert await shown_of_strangers(still_house) == set()
    known = new_chat()
    await still_house.contact("Anna", telegram=known)
    await bring(still_house, event(f"{message} known", known))
    await incoming.route_waiting(still_house.context("switchboard"))
    assert await shown_of_strangers(still_house) == {f"{message} known"}, "a contact's words have their own room"
    group = f"-{new_chat()}"
    await still_house.contact("Family", telegram=group)
    await bring(still_house, event(f"{message} anybody", group))
    await incoming.route_waiting(still_house.context("switchboard"))
    assert await shown_of_strangers(still_house) == set(), "who writes as a contact's group may be anybody"


async def test_what_came_in_by_a_bot_before_this_one_is_shown_and_what_was_played_is_not(
    still_house: House, message: str
) -> None:
    await no_strangers(still_house)
    for words in (f"{message} by the bot before", f"{message} played"):
        await bring(still_house, event(words, new_chat()))
        await incoming.route_waiting(still_house.context("switchboard"))
    owner = await contacts.owner(still_house.sql)
    assert owner is not None
    change = still_house.sql.transaction()
    await change.start()
    try:
        await contacts.add_address(still_house.sql, owner["id"], "telegram", new_chat(), primary=True)
        await still_house.sql.execute(LIVE)
        await still_house.sql.execute(BY_THE_BOT_BEFORE, f"{message} by the bot before")
        assert await stranger_cards.ask_strangers(still_house.sql, 3, still_house.settings.timings) == 1
        row = await still_house.row(SHOWN_THERE)
        assert row["text"] == f"{message} by the bot before"
    finally:
        await change.rollback()


async def test_who_has_much_to_say_lets_others_come_first_as_places_come_free(still_house: House, message: str) -> None:
    await no_strangers(still_house)
    loud, quiet = new_chat(), new_chat()
    for n in range(6):
        await bring(still_house, event(f"{message} {n}", loud))
    for _ in range(6):
        await incoming.route_waiting(still_house.context("switchboard"))
    assert await shown_of_strangers(still_house) == {f"{message} {n}" for n in range(3)}
    await bring(still_house, event(f"{message} quiet", quiet))
    await incoming.route_waiting(still_house.context("switchboard"))
    await still_house.sql.execute(
        "UPDATE messenger.deliveries d SET created_at = '2026-01-01Z', status = 'sent' FROM switchboard.inbox i"
        " WHERE i.id = d.about AND d.card_kind = 'stranger' AND i.text = $1",
        f"{message} 0",
    )
    assert await shown_of_strangers(still_house) == {f"{message} quiet"}
    await still_house.sql.execute("UPDATE switchboard.inbox SET stranger = 'ignored' WHERE text = $1", f"{message} 1")
    assert await shown_of_strangers(still_house) == {f"{message} 3"}, "what the owner has decided makes room"


async def test_whose_address_is_written_in_many_ways_is_one_sender(still_house: House, message: str) -> None:
    await no_strangers(still_house)
    address, quiet = f"abcdef{uuid4().hex}@example.org", new_chat()
    await still_house.contact("Anna", email=address)
    forged = f"{uuid4().hex}@example.org"
    await still_house.contact("Berta", telegram=quiet, email=forged)
    for n in range(4):
        await bring(still_house, letter(f"{message} forged {n}", forged, f"<f{n}.{uuid4()}@example.org>"))
    for n in range(6):
        written = address[:n].upper() + address[n:]
        mail = letter(f"{message} {n}", written, f"<{n}.{uuid4()}@example.org>")
        await bring(still_house, {**mail, "sender": {"identity": written, "verified": True}})
    await bring(still_house, event(f"{message} quiet", quiet))
    for _ in range(7):
        await incoming.route_waiting(still_house.context("switchboard"))
    forged_now = {f"{message} forged {n}" for n in range(3)}
    own = {f"{message} 0", f"{message} 1", f"{message} quiet"}
    assert await shown_of_strangers(still_house) == own | forged_now
    row = await still_house.row(ROW, f"{message} 3")
    await stranger_cards.note_said(still_house.sql, row, "blocked", of_sender=True)
    waits = await still_house.sql.fetch("SELECT text FROM switchboard.inbox WHERE stranger = 'waits'")
    assert f"{message} quiet" in {one["text"] for one in waits}
    assert not {f"{message} {n}" for n in range(6)} & {one["text"] for one in waits}


async def test_words_from_no_conversation_have_no_room_of_their_own(still_house: House, message: str) -> None:
    await no_strangers(still_house)
    contact = await still_house.contact("Anna")
    async with still_house.context("switchboard").db.work() as connection:
        await connection.execute(FROM_NOWHERE, contact, message)
        await connection.execute(WAIT)
    assert len(await shown_of_strangers(still_house)) == 3
    assert await shown_of_strangers(still_house) == set()
