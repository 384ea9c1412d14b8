"""What the owner writes to the bot: commands that pause, resume or list what waits, and an answer to the rest.

They count from the owner, in the owner's private chat, alone in a message, and in words of the owner's own. Each is
carried out in the transaction that notes its update as handled, so that none counts twice.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from messenger.cards import base, digest
from messenger.channels.telegram import Call, TelegramChannel
from messenger.delivery.lease import Worker
from messenger.inbound.callbacks import is_owner
from messenger.storage import cards, queries, rate_limits
from messenger.storage.updates import COMMANDS, OTHERS_WORDS, sender_of
from shared.channels import realms
from shared.db.pool import Connection, Record
from shared.display import owner
from shared.display.approval import titled
from shared.display.owner import Sheet
from shared.display.visible import MARK
from shared.errors import ButlersError
from shared.loops import pause
from shared.storage import brakes, contacts, session_list
from shared.storage.brakes import Scope
from shared.telemetry.logs import logger

log = logger("messenger.inbound.commands")

# A date from this on, in seconds since 1970, is taken for none.
LATEST: Final = 2**32
# Telegram says in whole seconds when something was written.
A_SECOND_OFF: Final = timedelta(seconds=2)
MENU: Final = {
    "pending": "What needs your approval",
    "pause": "Hold all messages to others",
    "resume": "Send messages to others again",
    "help": "What you can do here",
}
HELP: Final = """Write here what you want done; begin with a butler's name, such as /health, to choose one. \
Your butlers message you here, and ask you here before they write to others.

/pending - what needs your approval
/pause - hold all messages to others
/resume - send them again
/help - this list

Approve, deny and answer with the buttons of each card."""
HELD: Final = "Sending to others is paused."
HELD_FOR_SOME: Final = "Sending to some is paused."
UNREAD: Final = (
    "No butler reads this: none has a runtime, or this is the sandbox beside a live channel. /pending shows what waits "
    "for you, and /help what you can do."
)
NO_WORDS: Final = (
    "A file without words, a forwarded message, and a poll, checklist, contact card, place, sticker or the like begin "
    "no work. Write as text what to do."
)
PAUSED: Final = (
    "Paused. Messages to others wait until you send /resume. Approval requests and messages to you still arrive."
)
PAUSED_ALREADY: Final = "Already paused since {since}. Send /resume to send messages to others again."
RESUMED: Final = "Resumed. Waiting messages are being sent."
NOT_PAUSED: Final = "Nothing is paused for everybody."
TOO_LATE: Final = "Not resumed: this came too late. Send /resume again if you still want it."
PAUSED_SINCE: Final = "Still paused: that was set after you wrote. Send /resume again if you still want it."
OTHERS_STAY: Final = "{these} on. Lift what you do not need in the console or with `butlers brake off`."
RESTORED_STAYS: Final = (
    "A backup was restored. Check rules, brakes, contacts and keys, then lift that brake in the console or with "
    "`butlers brake off`."
)
NOT_HERE: Final = (
    "This is the sandbox, where anybody can write in your name. Pause and resume in the console or with "
    "`butlers brake` as long as a channel is live."
)

_BOTS_NAME: Final = re.compile(r"@\w{1,64}\Z", re.ASCII)


async def given(connection: Connection, message: Mapping[str, object]) -> str | None:
    """Return the command that this message is; None unless the owner gives it, alone with the bot."""
    # However it is typed: with a capital letter, blanks around it, a sign at its end, or a bot's name, which in a
    # private chat is ours.
    typed = str(message.get("text")).strip(" \n.!").lower()
    command = _BOTS_NAME.sub("", typed)
    if command not in COMMANDS or is_anothers(message) or not await is_owners(connection, message):
        return None
    return command


def is_anothers(message: Mapping[str, object]) -> bool:
    """Return whether somebody else wrote the words: forwarded ones, or those of another bot."""
    return any(name in message for name in OTHERS_WORDS)


async def is_owners(connection: Connection, message: Mapping[str, object]) -> bool:
    """Return whether the owner wrote the message, alone with the bot."""
    chat, sender = message.get("chat"), sender_of(message)
    if not isinstance(chat, dict) or not isinstance(sender, dict) or chat.get("type", "private") != "private":
        return False
    return await is_owner(connection, str(sender.get("id")), str(chat.get("id")))


async def carry_out(
    connection: Connection, worker: Worker, command: str, message: Mapping[str, object]
) -> tuple[str, list[Call]]:
    """Carry out a command that `given` returned; return the outcome, and the call that answers it."""
    if command == "/pending":
        return "command", [_to_chat(message, await _pending(connection, worker))]
    if command not in {"/pause", "/resume"}:
        await started(connection, worker, message)
        return "command", [answer(message, HELP)]
    here = realms.realm_of(worker.context.settings, "telegram")
    # INVARIANT: the sandbox, which asks nobody who they are, neither holds nor lets go what is live.
    if here == realms.SANDBOX and await queries.reaches_people(connection):
        return "command_not_here", [answer(message, NOT_HERE)]
    does = _pause if command == "/pause" else _resume
    return "command", [answer(message, await does(connection, worker, message))]


async def started(connection: Connection, worker: Worker, message: Mapping[str, object]) -> None:
    """Send the owner anew what waits and could not be shown before the bot was started in this chat."""
    settings = worker.context.settings
    here, since = realms.realm_of(settings, "telegram"), settings.approval_ttl
    await cards.ask_refused(connection, str(_chat_of(message)), here, since)


async def unread(connection: Connection, worker: Worker, message: Mapping[str, object]) -> list[Call]:
    """Return the call that shows the owner, and nobody else, that a butler has it, or says that nobody reads this.

    The latter is not said again for a while.
    """
    if not await is_owners(connection, message):
        return []
    written = message.get("text") or message.get("caption")
    if written and not is_anothers(message) and await _is_read(connection):
        return [("sendChatAction", {"chat_id": _chat_of(message), "action": "typing"})]
    key = f"unread:{_chat_of(message)}"
    fresh = await rate_limits.first_in(connection, key, worker.context.settings.timings.unread_again)
    return [answer(message, NO_WORDS if await _is_read(connection) else UNREAD)] if fresh else []


async def _is_read(connection: Connection) -> bool:
    return await session_list.somebody_thinks(connection) and not await realms.is_played(connection, "telegram")


def answer(message: Mapping[str, object], text: str) -> Call:
    """Return the call that answers a message in its chat; the commands in our words can be pressed."""
    return _to_chat(message, {"text": f"{MARK} {text}"})


def _to_chat(message: Mapping[str, object], fields: Mapping[str, object]) -> Call:
    return "sendMessage", {"chat_id": _chat_of(message), "link_preview_options": {"is_disabled": True}, **fields}


def _chat_of(message: Mapping[str, object]) -> object:
    chat = message.get("chat")
    return chat.get("id") if isinstance(chat, Mapping) else None


async def _pause(connection: Connection, _worker: Worker, _message: Mapping[str, object]) -> str:
    on = [row for row in await brakes.standing(connection) if _is_for_all(row) and row["until"] is None]
    if on:
        return PAUSED_ALREADY.format(since=f"{on[0]['made_at'].astimezone(UTC):%Y-%m-%d %H:%M} UTC")
    await brakes.put_on(connection, Scope(), await _owner_id(connection))
    return PAUSED


async def _resume(connection: Connection, worker: Worker, message: Mapping[str, object]) -> str:
    """Lift what holds messages to everybody, unless it was put on after the owner wrote; name what stays on."""
    date = message.get("date")
    seconds = date if isinstance(date, int) and 0 <= date < LATEST else 0
    if not await queries.written_lately(connection, seconds, worker.context.settings.timings.command_counts):
        return TOO_LATE
    rows = await brakes.standing(connection)
    written = datetime.fromtimestamp(seconds, UTC) + A_SECOND_OFF
    on, rest = [row for row in rows if _is_for_all(row)], [row for row in rows if not _is_for_all(row)]
    before = [row["id"] for row in on if row["made_at"] <= written]
    by = await _owner_id(connection)
    lifted = [one for one in before if await brakes.lift_one(connection, one, by)]
    said = RESUMED if lifted else NOT_PAUSED
    return " ".join([PAUSED_SINCE if len(on) > len(lifted) else said, *_what_stays(rest)])


def _is_for_all(row: Record) -> bool:
    """Return whether a brake is for everybody, and the owner's own."""
    return row["reason"] is None and _is_for_everybody(row)


def _is_for_everybody(row: Record) -> bool:
    return not (row["butler"] or row["contact_id"] or row["channel"])


def _what_stays(rows: list[Record]) -> list[str]:
    narrow = sum(row["reason"] is None for row in rows)
    these = "Another brake is still" if narrow == 1 else f"{narrow} other brakes are still"
    restored = [RESTORED_STAYS] if len(rows) > narrow else []
    return [*([OTHERS_STAY.format(these=these)] if narrow else []), *restored]


async def _pending(connection: Connection, worker: Worker) -> Mapping[str, object]:
    """Return the message that lists what needs the owner's approval, as far as it may be shown here."""
    context = worker.context
    rows = await digest.all_waiting(connection, realms.realm_of(context.settings, "telegram"))
    where = base.link(context, "approvals")
    on = await brakes.standing(connection)
    held = ["", HELD if any(map(_is_for_everybody, on)) else HELD_FOR_SOME] if on else []
    if not rows:
        return owner.bubbles(Sheet("Nothing needs your approval.", foot="\n".join(held[1:])))[-1].fields
    to, total = await digest.recipients_of(connection, rows), rows[0]["total"]
    listed, links = digest.lines_of(rows, to, base.link(context, "contacts"))
    what = "request" if any(row["tool_name"] for row in rows) else "message"
    head = f"{total} {what}{' needs' if total == 1 else 's need'} your approval:"
    lines = [
        f"{n}. {titled(row['origin_butler'])} {'wants ' if row['tool_name'] else ''}{one}"
        for n, (row, one) in enumerate(zip(rows, listed, strict=True), start=1)
    ]
    more = [f"and {total - len(rows)} more: {where}"] if total > len(rows) else []
    foot = [*lines, *more, "", f"Decide by their cards above, or in the console: {where}", *base.near(where), *held]
    return owner.bubbles(Sheet(head, foot="\n".join(foot), links=(where, *links)))[-1].fields


async def _owner_id(connection: Connection) -> str:
    found = await contacts.owner(connection)
    if found is None:
        raise ButlersError("There is no owner any more.")
    return str(found["id"])


async def show_menu(worker: Worker, telegram: TelegramChannel, stopping: asyncio.Event) -> None:
    """Show the commands in the menu of the owner's private chat, and in nobody else's, until stopping."""
    shown: str | None = None
    while not stopping.is_set():
        try:
            shown = await _show_menu(worker, telegram, shown)
        except (ButlersError, TimeoutError) as failed:
            log.info("the menu of commands is not shown", why=str(failed) or type(failed).__name__)
        await pause(stopping, worker.context.settings.timings.commands_shown)


async def _show_menu(worker: Worker, telegram: TelegramChannel, shown: str | None) -> str | None:
    """Move the menu from the chat it was shown in to the owner's chat of now, and return that one."""
    async with worker.context.db.work() as connection:
        chat = await queries.owner_at(connection, "telegram")
    if chat == shown:
        return shown
    if shown is not None:
        await telegram.call("deleteMyCommands", {"scope": _only(shown)}, wait=10)
    if chat is not None:
        menu = [{"command": name, "description": text} for name, text in MENU.items()]
        await telegram.call("setMyCommands", {"commands": menu, "scope": _only(chat)}, wait=10)
    return chat


def _only(chat: str) -> Mapping[str, object]:
    return {"type": "chat", "chat_id": int(chat)}
