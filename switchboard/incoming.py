"""What comes in: the loop that says of each received message to which butler it goes, and hands over what is work."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from butlers.butler import Context
from shared.channels.email import SPEC as EMAIL
from shared.db.pool import BRIEFLY, Connection, Record, savepoint
from shared.display.visible import in_line
from shared.errors import Away, HopFailed, Unavailable
from shared.gate.accept import accept
from shared.gate.admit import Admitter, admit
from shared.hashing import digest
from shared.loops import apart, either
from shared.storage import notices, session_list, sessions
from shared.storage.notices import Notice
from shared.storage.turns import is_proved
from shared.telemetry.logs import logger
from switchboard.choice import Known, chosen_for, known_now
from switchboard.routing import (
    AUTOMATIC,
    OWN_WORDS,
    Choice,
    Incoming,
    RoutingRule,
    begins_work,
    named_in,
)
from switchboard.storage import inbox, registry

log = logger("switchboard.incoming")
AT_ONCE: Final = 16
# So many of them are written side by side.
ABREAST: Final = 4
EDIT: Final = "edit"
LONGEST_LINE: Final = 80
# What begins no work is shown to the owner, if it is somebody's words.
FORWARD: Final = "forward"
SHOWN: Final = (OWN_WORDS, FORWARD)
NO_WORDS: Final = (
    "No butler was asked. A mail that forwards somebody else's words, or holds no words of yours above what it quotes, "
    "begins no work. Write what to do about it in a mail of its own."
)
LEFT_OUT: Final = (
    "{name} was not asked all of your mail: “{line}”, and what may belong to it, looks like a mail that you quote. "
    "If those are words of yours, write them again above what you quote."
)
NO_SUCH_NAME: Final = (
    "No butler is called {unknown}, so your message went to {name}. If you meant another one, write it again with that "
    "one's name."
)
NOBODY_LEFT: Final = (
    "No butler is called {unknown} any more, so nobody was asked. To have another one do it, write a message that is "
    "no reply and begins with its name."
)
CHANGED_TOO_LATE: Final = (
    "Your change came too late: {name} was asked what your message said before. Write what is different in a new one."
)
OTHER_FILES: Final = (
    "{name} was asked about the files that came with your message first. Send the new ones in a message of their own."
)
TAKEN_BACK: Final = (
    "You took back the words of your message, and {name} is asked them all the same. Write a new one that says what is "
    "to be done."
)
NAMES_ANOTHER: Final = (
    "Your change names {named}, and {name} is asked it all the same: it has your message. Write it again for {named}."
)
UNROUTABLE: Final = (
    "A message that came in cannot be read, so no butler was asked. If it was yours, write it again; the log of the "
    "Switchboard says which it is."
)
NOT_READ: Final = (
    "{name} has no runtime, so it cannot read what you wrote. Give it one in its butler.toml, or write a message that "
    "is no reply and begins with the name of another butler."
)
CHANGE_NOT_READ: Final = (
    "{name} has no runtime, so it cannot read your change either. Write a new message that is no reply and begins with "
    "the name of another butler."
)


async def hand_over(connection: Connection, row: Record, butler: str, concerns: str | None) -> bool:
    """Let what was written begin a session of its butler; return whether the owner is to be told that none reads it.

    A message is one session, because the session has the message's id; the words that it concerns are answered by that
    alone. INVARIANT: it begins in the unit of work that says where the message went: whoever reads that could else put
    a row of that id first, uncommitted, and this one would wait for it. What was written in the sandbox begins none
    while a channel reaches people, whatever it answers.
    """
    is_played, is_own = row["is_played"], is_owners_own(row)
    thinks = await registry.has_runtime(connection, butler)
    if thinks and not is_played:
        about = await inbox.context_to_answer(connection, concerns) if concerns else None
        # Own words say enough for a session that runs already, a reply about somebody else's conversation does not.
        whose = (session_list.REPLY if about else session_list.OWN) if is_own else None
        context = about or row["request_context"]
        await sessions.enqueue_message(connection, row["id"], butler, row["text"], context, whose)
        if whose == session_list.OWN and len(row["text"]) <= notices.LONGEST:
            # A session that runs is told it at once; where none is, its own begins. Its row says which, so never
            # both. What a notice cannot hold begins its own.
            words = Notice("owner", sessions.MESSAGE, row["text"], trust="owner", priority="high", id=row["id"])
            await notices.add(connection, butler, words)
    elif not is_own:
        await inbox.show(connection, row["id"])
    # Where nothing thinks for anybody, the Messenger says so of what is written to the bot.
    untold = is_own and not thinks and not is_played
    return untold and (row["channel"] == EMAIL.name or await session_list.somebody_thinks(connection))


async def _tell_owner(context: Context, message: Record, words: str) -> None:
    """Tell the owner once, where the owner wrote that message, why no butler works on it.

    INVARIANT: what cannot be told keeps no conversation from going on. Where a part of the house is away, the sweep
    brings it on its way.
    """
    said = {"channel": message["request_context"]["source_channel"], "message": words}
    # What else is told of the same message is another message.
    key = {**message["request_context"], "idempotency_key": f"unread:{message['id']}:{digest('told', words)[:8]}"}
    with apart(log, "the owner is not told", through=(Unavailable,), message=message["id"]):
        await _tell(context, {**said, "request_context": key})


async def _tell(context: Context, said: Mapping[str, object]) -> None:
    admitter = Admitter(context.name, context.db, context.settings.approval_ttl, context.new_id)
    await admit(admitter, accept(context.name, said))


async def route_waiting(context: Context) -> int:
    """Route what waits, at most one message of each conversation; return how many were taken."""
    timings = context.settings.timings
    async with context.db.work() as connection:
        rows = await inbox.claim(connection, context.instance, timings.route_lease, AT_ONCE, timings.classifier)
        known = await known_now(connection) if rows else Known()
    taken = list[bool]()

    async def take(row: Record) -> None:
        with apart(log, "not routed", message=row["id"]):
            taken.append(await _take(context, row, known))

    for at in range(0, len(rows), ABREAST):
        # Each is of another conversation.
        await asyncio.gather(*(take(row) for row in rows[at : at + ABREAST]))
    return sum(taken)


async def _take(context: Context, row: Record, known: Known) -> bool:
    """Route one message, or end one that cannot be routed and tell the owner; return if it is done with.

    INVARIANT: what fails each time is given up after a minute. All of its conversation waits behind it.
    """
    is_taken = list[bool]()
    with apart(log, "not routed", through=(Unavailable, HopFailed), message=row["id"]):
        is_taken.append(await _route_one(context, row, known))
    if is_taken or not row["is_late"]:
        return any(is_taken)
    log.error("given up: it cannot be routed", message=row["id"])
    with apart(log, "the owner is not told", through=(Unavailable,), message=row["id"]):
        await _tell(context, {"channel": row["channel"], "message": UNROUTABLE})
    async with context.db.work() as connection:
        await inbox.done(connection, row["id"], context.instance)
    return True


async def _route_one(context: Context, row: Record, known: Known) -> bool:
    """Write where one message goes, hand it over, and let the next of its conversation be taken; return if it went."""
    async with context.db.work(BRIEFLY) as connection:
        answered = await inbox.ours_answered(connection, row) if row["kind"] != AUTOMATIC else None
        rules, message = known.rules, _incoming(row)
        chosen = await chosen_for(context, connection, row, message, answered, known)
        if chosen is None:
            log.info("a message waits for a butler, or for the classifier", message=row["id"])
            return False
        answers, concerns = _answers(message, answered, chosen)
        what = chosen.butler, chosen.because
        held, butler = await inbox.route(connection, row["id"], context.instance, what, answers, concerns)
        original = await inbox.edited(connection, row) if row["kind"] == EDIT and butler is not None else None
        is_work = butler is not None and begins_work(_as_work(message, original), butler, rules)
        is_work = is_work and (message.from_owner or await inbox.has_room(connection, row))
        untold: tuple[Record, str] | None = None
        if held and butler is not None and is_work:
            is_read = not await hand_over(connection, row, butler, concerns)
            said = _unread(row, butler, chosen.unknown, is_read=is_read)
            untold = (row, said) if said else None
        elif held:
            untold = await _keep(connection, row, message, butler, original, rules)
            said = _unasked(row, message, replace(chosen, butler=butler))
            untold = (row, said) if said else untold
        if held and untold is None:
            await inbox.done(connection, row["id"], context.instance)
    if held and is_work:
        log.info("routed", message=row["id"], to=butler, why=row["routed_because"] or chosen.because)
    if untold is not None:
        # It is taken again if the process ends before the owner is told.
        await _tell_owner(context, *untold)
        async with context.db.work() as connection:
            await inbox.done(connection, row["id"], context.instance)
    return held


def _answers(message: Incoming, answered: Record | None, chosen: Choice) -> tuple[str | None, str | None]:
    """Return the id of what a message answers, and that of the words which it concerns."""
    if answered is None:
        return None, None
    # INVARIANT: whoever is answered is shown to the butler that answers. Another one would take it for the owner.
    its_own = message.from_owner and answered["butler"] == chosen.butler
    return answered["id"], answered["concerns"] if its_own else None


def _unasked(row: Record, message: Incoming, chosen: Choice) -> str | None:
    """Return what the owner is told of a message that begins nothing, or None."""
    if chosen.butler is None:
        return NOBODY_LEFT.format(unknown=chosen.unknown) if chosen.unknown and message.text.strip() else None
    return NO_WORDS if message.from_owner and _says_nothing(row) else None


def _unread(row: Record, butler: str, unknown: str | None, *, is_read: bool) -> str | None:
    """Return what the owner is told of words that none reads, or another than was named, or not to their end.

    None if there is nothing to tell.
    """
    if not is_read:
        return NOT_READ.format(name=butler)
    said = [NO_SUCH_NAME.format(unknown=unknown, name=butler)] if unknown else []
    if row["in_doubt"] and is_owners_own(row):
        line = next((line for line in (row["quoted"] or "").split("\n") if line.strip()), "")
        said.append(LEFT_OUT.format(name=butler, line=in_line(line.strip()[:LONGEST_LINE])))
    return " ".join(said) or None


def _says_nothing(row: Record) -> bool:
    """Return whether a mail holds no words of its writer's that count; of one in Telegram the Messenger says so."""
    is_empty = row["kind"] == OWN_WORDS and not row["text"].strip()
    return row["channel"] == EMAIL.name and (is_empty or row["kind"] == FORWARD)


@asynccontextmanager
async def _as_it_may(connection: Connection, what: str, message_id: str) -> AsyncIterator[None]:
    """Let go of what is done inside where a butler holds the row that it is about.

    INVARIANT: no butler keeps a message from being done; all of its conversation waits behind it.
    """
    with apart(log, what, message=message_id, through=(Away,)):
        async with savepoint(connection):
            yield


def _as_work(message: Incoming, original: Record | None) -> Incoming:
    """Return an edit as words of their own where the owner puts them to what had none, any other message as it is.

    INVARIANT: they begin a session of the edit's id, which nobody could read before, and not of that of the picture.
    """
    is_first = original is not None and original["spoken"] is None and message.from_owner
    return replace(message, kind=OWN_WORDS) if is_first else message


async def _keep(
    connection: Connection,
    row: Record,
    message: Incoming,
    butler: str | None,
    original: Record | None,
    rules: Sequence[RoutingRule],
) -> tuple[Record, str] | None:
    """See to what begins no work of its own: what others wrote comes to the owner, an edit changes its message.

    Return what the owner is told, and of which message.
    """
    if row["kind"] == EDIT:
        return await _change(connection, row, message, original, rules) if original is not None else None
    # Of a contact it may be news, such as what a hotel's program writes; of anybody else it would be advertising.
    of_contact = row["kind"] == AUTOMATIC and message.contact is not None and message.is_proved
    if butler is not None and (row["kind"] in SHOWN or of_contact) and not message.from_owner:
        await inbox.show(connection, row["id"])
    return None


async def _change(
    connection: Connection, row: Record, message: Incoming, original: Record, rules: Sequence[RoutingRule]
) -> tuple[Record, str] | None:
    """See to an edit: what waits is asked these words now.

    Return what the owner is told, and of which message; that an edit changed nothing is told once.
    """
    # INVARIANT: nothing reaches a butler by an edit that would not reach it as a message.
    butler = original["routed_to"]
    is_emptied = not message.text.strip() and original["spoken"] is not None
    said = "what it said before" if is_emptied else message.text
    is_work = not row["is_played"] and begins_work(replace(message, kind=OWN_WORDS, text=said), butler, rules)
    is_reworded = False
    if is_work and original["spoken"] is not None and not is_emptied:
        async with _as_it_may(connection, "an edit changed nothing", row["id"]):
            # What it is asked about is what came with the first of them.
            is_reworded = await sessions.change_prompt(connection, original["spoken"], row["text"])
    is_asked = is_reworded and not original["refiled"]
    if original["changed"] and (original["shown"] or not is_work) and not message.from_owner:
        # What the owner says yes to may answer these words, and not those that were shown.
        await inbox.show_changed(connection, row["id"])
    another = named_in(replace(message, kind=OWN_WORDS), [butler])[1]
    if not (original["changed"] and is_work and message.from_owner) or (is_asked and another is None):
        return None
    if not await registry.has_runtime(connection, butler):
        return original, CHANGE_NOT_READ.format(name=butler)
    late = CHANGED_TOO_LATE if original["reworded"] and not is_reworded else OTHER_FILES
    told = NAMES_ANOTHER if is_asked else TAKEN_BACK if is_emptied else late
    return original, told.format(name=butler, named=another)


def _incoming(row: Record) -> Incoming:
    return Incoming(
        channel=row["channel"],
        sender=row["sender"],
        kind=row["kind"],
        text=row["text"],
        from_owner=is_owners_own(row),
        contact=row["contact_id"],
        is_proved=_is_proved(row),
    )


def is_owners_own(row: Record) -> bool:
    """Return whether a message is proved to be the owner's."""
    return bool(row["from_owner"]) and _is_proved(row)


def _is_proved(row: Record) -> bool:
    return is_proved(row["channel"], row["conversation"], row["sender"], vouched=row["verified"])


async def route_for_ever(context: Context, stopping: asyncio.Event) -> None:
    """Route what comes in, at once and at each tick, until `stopping`; log a lost database, and try again."""
    while not stopping.is_set():
        ticket = context.wakes["inbox"].ticket()
        with apart(log, "routing not done"):
            while await route_waiting(context) and not stopping.is_set():
                pass
        # What comes in wakes this loop; a tick finds only what another process left behind.
        await either(context.settings.timings.unhurried, ticket, stopping)
