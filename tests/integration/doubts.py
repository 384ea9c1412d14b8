"""Working a house into doubt by hand, and out of it: uncertain messages, their cards, and the owner's word."""

from collections.abc import Mapping
from typing import Final

from messenger.cards import kinds
from messenger.cards.closing import close
from messenger.channels.telegram import TelegramChannel
from messenger.maintenance import resolver
from shared.channels.realms import SANDBOX_TOKEN
from shared.config.timings import STANDARD
from shared.hashing import reference
from shared.storage import resolutions
from shared.storage.resolutions import Resolution, Word
from tests.integration.house import House
from tests.integration.workers import in_queue, work

ATTEMPTS: Final = """
SELECT a.attempt, a.outcome, a.detail FROM messenger.attempts a JOIN messenger.deliveries d ON d.id = a.delivery_id
WHERE d.notification_id = $1 ORDER BY a.n, a.attempt
"""
RECEIPTS: Final = """
SELECT p.status, p.provider_id FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
WHERE d.notification_id = $1 ORDER BY p.n
"""
ANSWER: Final = "SELECT answer FROM shared.notifications WHERE id = $1"
CARDS_ABOUT: Final = "SELECT d.* FROM messenger.deliveries d WHERE d.about = $1 ORDER BY d.created_at"


async def uncertain(house: House, message: str, **arguments: object) -> str:
    """A notification to somebody else whose provider accepted it and never said so."""
    told = await in_queue(house, message, **arguments)
    await house.fault(message, "accept_reset", times=1)
    await work(house.worker())
    assert await house.status(told) == "uncertain"
    return told


async def cards_written(house: House) -> int:
    async with house.context("messenger").db.work() as connection:
        return await kinds.write_missing(connection, 1000, STANDARD)


async def card_of(house: House, told: str) -> Mapping[str, object]:
    """The card about it, sent."""
    await cards_written(house)
    await all_cards(house)
    ref = reference((await house.delivery(told))["id"])
    return house.cards(f"ref {ref}")[-1]


async def all_cards(house: House) -> None:
    """Send what the owner is to be asked, one after the other."""
    while await house.sql.fetch("SELECT FROM messenger.deliveries WHERE class = 'card' AND status = 'queued'"):
        await work(house.worker())


async def say(house: House, told: str, word: Word, attempt: int | None = None) -> str | None:
    """Give the owner's word as the command line does, let the Messenger carry it out; what came of it."""
    delivery = await house.delivery(told)
    by = await house.row("SELECT id FROM shared.contacts WHERE 'owner' = ANY (roles)")
    async with house.context("messenger").db.work() as connection:
        given = Resolution(delivery["id"], attempt or delivery["attempt"], word, by["id"], "test")
        made = await resolutions.ask(connection, given)
    await resolver.carry_out(house.context("messenger"))
    async with house.context("messenger").db.work() as connection:
        return await resolutions.outcome(connection, made)


async def newest_card(house: House, told: str) -> Mapping[str, object] | None:
    found = house.cards(f"ref {reference((await house.delivery(told))['id'])}")
    return found[-1] if found else None


async def answer(house: House, told: str) -> Mapping[str, object]:
    found: Mapping[str, object] = (await house.row(ANSWER, told))["answer"]
    return found


async def error(house: House, told: str) -> Mapping[str, object]:
    """The error of its answer."""
    found = (await answer(house, told))["error"]
    assert isinstance(found, Mapping)
    return found


async def closed(house: House) -> None:
    """Let the cards show what became of their questions."""
    telegram = TelegramChannel(house.box.url, SANDBOX_TOKEN)
    await close(house.context("messenger"), telegram)
    await telegram.close()


def shown(house: House, card: Mapping[str, object]) -> str:
    """The card's text as it stands in the chat, after its last edit."""
    edits = [
        line["payload"]
        for line in house.box.sandbox.lines
        if line["payload"].get("method") == "editMessageText"  # type: ignore[attr-defined]
        and str(line["payload"]["message_id"]) == str(card["provider_id"])  # type: ignore[index]
    ]
    return str(edits[-1]["text"])  # type: ignore[index]
