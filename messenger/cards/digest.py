"""Digests: what a butler asks beyond its burst, listed in one card, each with a button that shows it whole.

A digest decides nothing. Each line is data only, and its button sends the card of that question, which shows exactly
the message and takes the yes; the button binds the action, its revision and its content like any button of a card.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from butlers.butler import Context
from messenger import poison
from messenger.cards import approval, base
from messenger.cards.base import CardKind, Press, Presser
from messenger.channels.telegram import ProviderRefused, TelegramChannel
from messenger.storage import cards, queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.channels import CHANNELS, realms
from shared.channels.base import Wire
from shared.channels.telegram import Button, keyboard
from shared.db.pool import Connection, Record, tell
from shared.display import owner
from shared.display.approval import NO_ADDRESS, called, clipped, measured, titled
from shared.display.fates import ANSWERED, CALL
from shared.display.owner import Sheet
from shared.display.visible import in_line
from shared.errors import Unreadable
from shared.loops import apart
from shared.model import Decision, Finding
from shared.storage import notifications, pending_actions, tool_calls
from shared.storage.addressees import Addressee, addressee
from shared.telemetry.logs import logger

log = logger("messenger.cards.digest")
SHOW: Final = "sh"
MOST: Final = 20
IN_A_ROW: Final = 5
OVER: Final = "None of these waits here any more."
NO_ANSWER_HERE: Final = "None of these is sent unless you approve it."
NO_ANSWER_TO_CALLS: Final = "None of these is done unless you approve it."
# What Telegram says of an edit that changes nothing.
AS_IT_IS: Final = "message is not modified"
NAME_ROOM: Final = 32
ADDRESS_ROOM: Final = 64
# So many links, none longer than that, leave room for twenty of the longest lines in one message.
MOST_LINKS: Final = 8
LINK_ROOM: Final = 120


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the digest's wires as long as anything in it waits.

    What its message lists is written down with its marker.
    """
    digest_id = str(claimed.digest_id)
    rows = await waiting(connection, digest_id, realms.realm_of(context.settings, claimed.channel))
    if not rows:
        return Blocked("cancelled", (Finding("answered", "All of these have been answered."),))
    stopped = await base.elsewhere(connection, claimed, rows[0]["realm"], context)
    if stopped is not None:
        return stopped
    if CHANNELS[claimed.channel].has_buttons:
        await cards.digest_shows(connection, digest_id, listed(rows))
    wires = await _wires(connection, claimed, rows, context)
    return Authorized(wires, Decision("allow", (Finding("digest", "Questions to the owner."),)))


async def waiting(connection: Connection, digest_id: str, realm: str) -> list[Record]:
    """Return the first questions in it that may be asked there; end one that cannot be read, and keep the others."""
    rows = await queries.digest_items(connection, digest_id, realm, MOST)
    while unread := [row for row in rows if not _readable(row)]:
        for row in unread:
            await poison.end(connection, row["notification_id"], poison.SAID)
        rows = await queries.digest_items(connection, digest_id, realm, MOST)
    return rows


async def all_waiting(connection: Connection, realm: str) -> list[Record]:
    """Return the first questions of each butler that may be asked there; one that cannot be read ends with its card."""
    return [row for row in await queries.questions(connection, realm, MOST) if _readable(row)]


def _is_call(row: Record) -> bool:
    return row["tool_name"] is not None


def _readable(row: Record) -> bool:
    if _is_call(row):
        return True
    try:
        notifications.envelope_of(row)
    except Unreadable:
        return False
    return True


async def _wires(connection: Connection, claimed: Claimed, rows: list[Record], context: Context) -> tuple[Wire, ...]:
    title, shown = words(rows, await recipients_of(connection, rows), _page(context, rows), _people(context))
    if not CHANNELS[claimed.channel].has_buttons:
        pages = [f"{n}. {base.link(context, 'approvals', row['id'])}" for n, row in enumerate(rows, start=1)]
        said = [one for one in base.near(base.link(context)) if one not in shown.foot]
        body = "\n".join([shown.foot, "", "Review them here:", *pages, *said])
        return await base.told(connection, claimed, title, replace(shown, foot=body))
    return base.with_keyboard(await base.told(connection, claimed, "", shown), buttons(context.secret, rows))


def _page(context: Context, rows: list[Record]) -> str:
    """Return the link to the page that lists what this butler asks, whatever others ask."""
    butler = rows[0]["origin_butler"]
    return f"{base.link(context, 'approvals')}?{urlencode({'butler': butler})}"


def _people(context: Context) -> str:
    """Return the link below which the page of each contact lies."""
    return base.link(context, "contacts")


async def recipients_of(connection: Connection, rows: list[Record]) -> list[Addressee]:
    """Return whom each question is for, as its card will say: looked up by the house itself."""
    return [await _recipient_of(connection, row) for row in rows]


async def _recipient_of(connection: Connection, row: Record) -> Addressee:
    if _is_call(row):
        return Addressee("", "")
    return await addressee(connection, row["whom"], notifications.envelope_of(row).delivery.channel)


def words(rows: list[Record], to: Sequence[Addressee], where: str, people: str) -> tuple[str, Sheet]:
    """Return title and a numbered line for each.

    `where` is the page that lists those for which there is no room, `people` that of all contacts.
    """
    total, what = rows[0]["total"], "request" if any(map(_is_call, rows)) else "message"
    title = f"{titled(rows[0]['origin_butler'])} needs your approval for {total} more {what}{'' if total == 1 else 's'}"
    listed, links = lines_of(rows, to, people)
    numbered = [f"{n}. {one}" for n, one in enumerate(listed, start=1)]
    more = [f"and {total - len(rows)} more: {where}"] if total > len(rows) else []
    said = base.near(where) if more or links else []
    ends = NO_ANSWER_TO_CALLS if any(map(_is_call, rows)) else NO_ANSWER_HERE
    return title, Sheet(f"{title}:", foot="\n".join([*numbered, *more, *said, "", ends]), links=(where, *links))


def lines_of(rows: list[Record], to: Sequence[Addressee], people: str) -> tuple[list[str], list[str]]:
    """Return a line for each question, and the links in them.

    Where there is no address, the line says so and leads to the contact, as long as the message has room for that; the
    card of each question does so too.
    """
    made, links = list[str](), list[str]()
    for row, one in zip(rows, to, strict=True):
        link = f"{people}/{one.contact_id}"
        leads = not one.address and one.contact_id and len(links) < MOST_LINKS and len(link) <= LINK_ROOM
        made.append(f"{line(row, one)}. Add an address: {link}" if leads else line(row, one))
        links += [link] if leads else []
    return made, links


def line(row: Record, one: Addressee) -> str:
    """Return whom it is for, by which channel, and how long it is: no word of the message itself.

    Of a tool's call return its name, whether its risk is high, and how long its arguments are.
    """
    if _is_call(row):
        risk = "high risk, " if row["risk"] == "high" else ""
        return f"to run {in_line(row['tool_name'])}, {risk}arguments of {measured(row['arguments'])}"
    delivery = notifications.envelope_of(row).delivery
    name = called(delivery.channel, clipped(one.name, NAME_ROOM), one.address)
    to = f"{name or 'unknown'} ({clipped(one.address or NO_ADDRESS, ADDRESS_ROOM)})"
    how = "to" if delivery.intent == "send" else f"{delivery.intent} to"
    return f"{how} {to} {CHANNELS[delivery.channel].via}, {measured(delivery.message)}"


def buttons(secret: bytes, rows: list[Record]) -> list[list[Button]]:
    """Return the buttons Show 1, Show 2 and so on, each for exactly that question as it stands now."""
    made = [Button(f"Show {n}", approval.data(secret, row, SHOW)) for n, row in enumerate(rows, start=1)]
    return [made[start : start + IN_A_ROW] for start in range(0, len(made), IN_A_ROW)]


def listed(rows: list[Record]) -> list[str]:
    """Return what a message with these rows lists, as it is written down."""
    return [*(f"{row['id']}:{row['revision']}" for row in rows), *(str(row["total"]) for row in rows[:1])]


async def pressed(connection: Connection, press: Press, presser: Presser, context: Context) -> tuple[str, str]:
    """Send the card of the one question that the owner wants to see, at once, whatever its butler has asked before.

    Return the outcome, and the words for the owner.
    """
    message = await pending_actions.open_action(connection, press.about)
    action = message or await tool_calls.one(connection, press.about)
    if action is None or not approval.genuine(context.secret, action, press):
        return base.STALE, base.NOT_VALID
    if not realms.may_decide("telegram", realms.realm_of(context.settings, "telegram"), action["realm"]):
        return base.NOT_HERE, realms.NOT_HERE
    digest_id = await queries.digest_of(connection, press.about)
    if digest_id is not None:
        await cards.adopt(connection, KIND.name, digest_id, 1, presser.message_id)
    if not action["open"]:
        status = "expired" if action["status"] == "pending" else action["status"]
        return "late", f"{(ANSWERED if message is not None else CALL)[status]}."
    if not await cards.ask_now(connection, press.about, action["revision"]):
        return "shown_before", "It is already shown in this chat."
    await tell(connection, "cards")
    return "shown", "The full message follows."


async def stale(connection: Connection, context: Context) -> list[Record]:
    """Return the digests in Telegram that nobody has looked at lately."""
    return await queries.digests_open(connection, context.settings.timings.digest_edit)


async def refresh(context: Context, telegram: TelegramChannel) -> int:
    """Let each digest in Telegram list what waits in it now; return how many were changed.

    A message whose change Telegram refuses for good is left alone. Raises ProviderRefused at the first that Telegram
    puts off for all.
    """
    async with context.db.work() as connection:
        found = await stale(connection, context)
    changed = 0
    for card in found:
        with apart(log, "a digest was not looked at", through=(ProviderRefused,), digest=card["digest_id"]):
            changed += await _refresh_one(context, telegram, card)
    return changed


async def _refresh_one(context: Context, telegram: TelegramChannel, card: Record) -> bool:
    here = realms.realm_of(context.settings, "telegram")
    async with context.db.work() as connection:
        rows = await waiting(connection, card["digest_id"], here)
        to = await recipients_of(connection, rows)
    before, shown = list(card["shown"]), listed(rows)
    if shown != before:
        try:
            await telegram.call("editMessageText", edited(context, card, rows, to), wait=10)
        except ProviderRefused as refused:
            if refused.is_for_all:
                raise
            log.info("a digest was not changed", why=refused.message)
            if not refused.retryable and AS_IT_IS not in refused.message:
                await _leave(context, card)
                return False
            shown = before if refused.retryable else shown
    async with context.db.work() as connection:
        # Also where nothing is new: only a digest that is noted as looked at lets the others have their turn. From here
        # on nobody puts a question into it before this is committed; what came meanwhile keeps it open.
        await cards.digest_shows(connection, card["digest_id"], shown)
        if shown != before and not rows and not await queries.digest_items(connection, card["digest_id"], here, 1):
            await cards.close_card(connection, card["id"], "closed")
    return shown != before


async def _leave(context: Context, card: Record) -> None:
    """Leave a message alone that the owner has deleted, and let another digest list what this one never listed."""
    named = [one.partition(":")[0] for one in card["shown"] if ":" in one]
    async with context.db.work() as connection:
        await cards.leave_digest(connection, card["id"], named)


def edited(context: Context, card: Record, rows: list[Record], to: Sequence[Addressee]) -> dict[str, object]:
    """Return the message as it should stand now; without buttons once nothing in it waits."""
    _, shown = words(rows, to, _page(context, rows), _people(context)) if rows else ("", Sheet(OVER))
    return {
        "chat_id": int(card["address"]),
        "message_id": int(card["provider_id"]),
        "link_preview_options": {"is_disabled": True},
        **owner.bubbles(shown)[-1].fields,
        "reply_markup": {"inline_keyboard": keyboard(buttons(context.secret, rows))},
    }


KIND: Final = CardKind("digest", authorize, cards.ask_digests, {SHOW}, pressed, stale=stale, refresh=refresh)
