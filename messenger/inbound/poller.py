"""What comes in from Telegram: one poller per bot, every update stored before it counts, then handled once."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from pydantic import ValidationError

from messenger.cards import approval, digest, uncertain
from messenger.channels.telegram import ProviderRefused, TelegramChannel
from messenger.delivery.worker import Desk
from messenger.inbound import strangers
from messenger.maintenance import resolver
from messenger.storage import cards as asking
from messenger.storage import queries, updates
from shared.addresses import is_private_chat
from shared.channels import realms
from shared.contracts import IngestEnvelope, IngestEvent, IngestPayload, IngestSender, IngestSource, wire
from shared.db.pool import Connection, Record
from shared.display.visible import MARK, visible
from shared.errors import ButlersError, HopFailed, InvalidInput, Unavailable
from shared.gate.owner_decision import Word, decide
from shared.loops import apart, pause
from shared.storage import contacts, pairings, pending_actions, refusals, resolutions
from shared.storage.refusals import Refused
from shared.storage.resolutions import Resolution
from shared.telemetry.logs import logger

log = logger("messenger.inbound.poller")
POLL_SECONDS: Final = 5
# No moment later than this is one, and no text longer than this is somebody's message.
LATEST: Final = 2**32
LONGEST: Final = 20_000
ALLOWED: Final = ["message", "callback_query"]
Call = tuple[str, Mapping[str, object]]
VERBS: Final = frozenset({*approval.VERBS, *uncertain.VERBS, digest.SHOW})
# What ends by itself: the database or the Switchboard is away.
PASSING: Final = (Unavailable, HopFailed)
NOT_HERE: Final = "not_here"
FAILED: Final = "This could not be carried out now. It is tried again for a minute; look at it again after that."
# What was tried and did nothing, as the audit says it.
REFUSED: Final = {
    "stranger": "A press by somebody who is not the owner, or not in the owner's private chat.",
    "not_ours": "A press on no button of ours.",
    approval.STALE: "A press on a button that is not valid: forged, of another card, or of what has changed since.",
    "not_paired": "A pairing code that is none, has run out, or came from no private chat.",
    "chat_taken": "A valid pairing code from a chat that belongs to another contact.",
    NOT_HERE: "A press in the sandbox on what is live.",
    "not_paired_here": "A pairing code in the sandbox, where anybody can be anybody.",
}


async def poll(desk: Desk, telegram: TelegramChannel, bot: str, stopping: asyncio.Event) -> None:
    """Poll while this process holds the bot's lease; the lease outlives one poll and passes on in ten seconds."""
    while not stopping.is_set():
        try:
            async with desk.ground.db.work() as connection:
                mine = await updates.take_lease(connection, bot, desk.holder)
                offset = await updates.next_offset(connection, bot) if mine else 0
            if mine:
                await _poll_once(desk, telegram, bot, offset, stopping)
            else:
                await pause(stopping, 1)
        except (ButlersError, TimeoutError) as failed:
            log.warning("not polled", why=str(failed) or type(failed).__name__)
            await pause(stopping, 1)
    try:
        async with desk.ground.db.work() as connection:
            await updates.give_up_lease(connection, bot, desk.holder)
    except ButlersError as lost:
        log.warning("poll lease left to run out", why=lost.message)


async def _poll_once(desk: Desk, telegram: TelegramChannel, bot: str, offset: int, stopping: asyncio.Event) -> None:
    payload = {"offset": offset, "timeout": POLL_SECONDS, "allowed_updates": ALLOWED}
    asking = asyncio.ensure_future(telegram.call("getUpdates", payload, wait=POLL_SECONDS + 10))
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({asking, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not asking.done():
        asking.cancel()
        return
    found = asking.result().get("result")
    if isinstance(found, list) and found:
        came = updates.read(found)
        async with desk.ground.db.work() as connection:
            over = await strangers.beyond(connection, came)
            await updates.store(connection, bot, [one for one in came if one["update_id"] not in over])
            if over:
                await updates.count(connection, bot, max(over))
        desk.ground.wakes["updates"]()


async def handle(desk: Desk, telegram: TelegramChannel, bot: str, stopping: asyncio.Event) -> None:
    """Handle what is stored; no press waits for more than one message, and a message waits for the Switchboard."""
    while not stopping.is_set():
        ticket = desk.ground.wakes["updates"].ticket()
        try:
            turn = partial(_turn, desk, telegram, bot)
            while await turn(presses=True) or await turn(presses=False):
                pass
        except ButlersError as failed:
            log.warning("inbound left for later", why=failed.message)
        waiting = [asyncio.ensure_future(ticket.wait()), asyncio.ensure_future(stopping.wait())]
        await asyncio.wait(waiting, timeout=desk.ground.settings.sweep_seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()


async def _turn(desk: Desk, telegram: TelegramChannel, bot: str, *, presses: bool) -> bool:
    """Handle the oldest press, or the oldest other update; whether another may follow at once.

    What fails is tried again when all others had their turn, and is over after a minute: what fails each time keeps
    nobody waiting.
    """
    row: Record | None = None
    calls: Sequence[Call] = ()
    done = False
    with apart(log, "an update was not handled", through=PASSING):
        async with desk.ground.db.work() as connection:
            row = await updates.waiting(connection, bot, presses=presses)
            if row is not None:
                calls = await (_handle_press if presses else _handle_message)(connection, desk, bot, row)
        done = True
    if row is None:
        return False
    if not done:
        async with desk.ground.db.work() as connection:
            await updates.failed(connection, bot, row["update_id"])
        query = (row["body"] or {}).get("callback_query")
        calls = [_spinner(query, FAILED)] if isinstance(query, dict) and row["outcome"] is None else []
    for wake in ("released", "deliveries") if presses else ():
        desk.ground.wakes[wake]()
    for method, payload in calls:
        try:
            await telegram.call(method, payload, wait=10)
        except ProviderRefused as refused:
            log.info("not shown", method=method, why=refused.message)
    return done


async def _handle_press(connection: Connection, desk: Desk, bot: str, row: Record) -> Sequence[Call]:
    query = row["body"]["callback_query"]
    query = query if isinstance(query, dict) else {}
    outcome, calls = await _press(connection, desk, query)
    await _note_refusal(connection, desk, query, outcome)
    await updates.handled(connection, bot, row["update_id"], outcome)
    return calls


async def _note_refusal(connection: Connection, desk: Desk, update: Mapping[str, object], outcome: str) -> None:
    """Who pressed, or said a pairing code, and what came of it, if that was refused."""
    if outcome not in REFUSED:
        return
    sender = update.get("from")
    number = str(sender.get("id")) if isinstance(sender, dict) else "nobody"
    refused = Refused(desk.ground.name, f"telegram:{visible(number[:20])}", REFUSED[outcome])
    press = approval.read(str(update.get("data", "")), VERBS)
    await refusals.keep(connection, refused, desk.ground.new_id(), about=press.about if press else None)


async def _press(connection: Connection, desk: Desk, query: Mapping[str, object]) -> tuple[str, list[Call]]:
    """Decide if it is the owner, in the owner's private chat, on a button of ours; else only clear the spinner."""
    spinner: Call = ("answerCallbackQuery", {"callback_query_id": query.get("id")})
    message, sender = query.get("message"), query.get("from")
    press = approval.read(str(query.get("data", "")), VERBS)
    owner = await contacts.owner(connection)
    if owner is None:
        return "no_owner", [spinner]
    if press is None or not isinstance(message, dict) or not isinstance(sender, dict):
        return "not_ours", [spinner]
    chat = message.get("chat")
    at = chat.get("id") if isinstance(chat, dict) else None
    if not await _is_owner(connection, str(sender.get("id")), str(at)):
        log.warning("press by a stranger", sender=str(sender.get("id")))
        return "stranger", [spinner]
    pressed = str(message.get("message_id"))
    if press.verb in uncertain.VERBS:
        code, said = await _answered(connection, desk, press, owner["id"], pressed)
    elif press.verb == digest.SHOW:
        code, said = await digest.pressed(connection, press, pressed, desk.ground)
    else:
        code, said = await _decided(connection, desk, press, owner["id"], pressed)
    return code, [_spinner(query, said)]


async def _answered(
    connection: Connection, desk: Desk, press: approval.Press, by: str, pressed: str
) -> tuple[str, str]:
    """The owner's word on what may have arrived; its card shows the outcome as soon as that is committed."""
    row = await queries.doubt(connection, press.about)
    if row is None or not uncertain.genuine(desk.ground.secret, row, press):
        return approval.STALE, approval.NOT_VALID
    word, realm = uncertain.VERBS[press.verb], realms.realm_of(desk.ground.settings, "telegram")
    given = Resolution(row["id"], row["attempt"], word, by, "telegram")
    outcome = await resolver.said(connection, given, realm, desk.ground)
    if outcome is None:
        return NOT_HERE, realms.NOT_HERE
    await asking.adopt(connection, row["id"], row["attempt"], pressed)
    return f"{word}_{outcome}", resolutions.said(word, outcome)


async def _decided(connection: Connection, desk: Desk, press: approval.Press, by: str, pressed: str) -> tuple[str, str]:
    """The owner's word on an action; its card shows the outcome as soon as that is committed."""
    action = await pending_actions.open_action(connection, press.about)
    if action is None or not approval.genuine(desk.ground.secret, action, press):
        return approval.STALE, approval.NOT_VALID
    lasts, realm = desk.ground.settings.approval_ttl, realms.realm_of(desk.ground.settings, "telegram")
    outcome = await decide(connection, Word(press.about, press.verb == "ok", by, "telegram", lasts, realm=realm))
    if outcome.code != NOT_HERE:
        await asking.adopt(connection, press.about, action["revision"], pressed)
    return outcome.code, outcome.text


def _spinner(query: Mapping[str, object], text: str) -> Call:
    return "answerCallbackQuery", {"callback_query_id": query.get("id"), "text": text[:190]}


async def _is_owner(connection: Connection, sender: str, chat: str) -> bool:
    """The owner, in the owner's own private chat: both are the stored number."""
    if sender != chat or not is_private_chat(chat):
        return False
    target = await contacts.resolve(connection, contacts.Whom("recipient", chat), "telegram")
    return isinstance(target, contacts.Target) and target.is_owner


async def _handle_message(connection: Connection, desk: Desk, bot: str, row: Record) -> Sequence[Call]:
    message = row["body"].get("message")
    outcome = "ignored"
    if isinstance(message, dict) and isinstance(message.get("text"), str):
        code = _pairing_code(message)
        if code is not None:
            outcome = await _pair(connection, code, message, realms.realm_of(desk.ground.settings, "telegram"))
            await _note_refusal(connection, desk, message, outcome)
        else:
            await _bring_in(desk, bot, row["update_id"], message)
            outcome = "ingested"
    await updates.handled(connection, bot, row["update_id"], outcome)
    if outcome != "paired":
        return ()
    return [("sendMessage", {"chat_id": message["chat"]["id"], "text": f"{MARK} This chat is now known as yours."})]


def _pairing_code(message: Mapping[str, object]) -> str | None:
    text = str(message.get("text"))
    return text.partition(" ")[2].strip() if text.startswith("/start ") else None


async def _pair(connection: Connection, code: str, message: Mapping[str, object], realm: str) -> str:
    """A one-time code from the command line makes the chat it comes from the owner's."""
    chat, owner = message.get("chat"), await contacts.owner(connection)
    private = isinstance(chat, dict) and chat.get("type") == "private" and is_private_chat(str(chat.get("id")))
    if owner is None:
        return "no_owner"
    if not private or not isinstance(chat, dict) or not await pairings.use(connection, code):
        return "not_paired"
    # Anybody is anybody there, and read the code; the number would count on a live channel too.
    if realm == realms.SANDBOX:
        return "not_paired_here"
    try:
        await contacts.set_identifier(connection, owner["id"], "telegram", str(chat["id"]), primary=True)
    except InvalidInput as taken:
        log.warning("not paired", why=taken.message)
        return "chat_taken"
    event = pending_actions.Event("paired", "owner", reason=f"Telegram chat {visible(str(chat['id']))}")
    await pending_actions.record(connection, event)
    return "paired"


async def _bring_in(desk: Desk, bot: str, update_id: int, message: Mapping[str, object]) -> None:
    """Hand a message to the Switchboard's inbox; raises HopFailed while that is not there."""
    chat, sender = message.get("chat"), message.get("from")
    if not isinstance(chat, dict) or not isinstance(sender, dict):
        return
    try:
        event = IngestEnvelope(
            source=IngestSource(channel="telegram", provider="telegram", endpoint_identity=bot),
            event=IngestEvent(
                external_event_id=str(update_id),
                external_thread_id=f"{chat.get('id')}:{message.get('message_id')}",
                observed_at=_when(message.get("date")),
            ),
            sender=IngestSender(
                identity=str(sender.get("id")), display_name=str(sender.get("first_name") or "")[:200] or None
            ),
            payload=IngestPayload(text=str(message.get("text"))[:LONGEST]),
        )
    except ValidationError:
        log.warning("an update is nobody's message", update=update_id)
        return
    answer = await desk.ground.hops.call("switchboard", "ingest", wire(event), 5)
    if answer.get("status") != "ok":
        raise HopFailed("The Switchboard did not take an inbound message.")


def _when(date: object) -> str:
    seconds = date if isinstance(date, int) and 0 <= date < LATEST else 0
    return datetime.fromtimestamp(seconds, UTC).isoformat()
