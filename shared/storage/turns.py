"""What was said in a conversation, by both sides, as the view `shared.turns` shows it: to a butler its own part."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from shared.addresses import folded
from shared.channels import CHANNELS, realms
from shared.db.pool import Connection, Record
from shared.display.conversation import MOST_TURNS, File, Turn, written_at
from shared.errors import InvalidInput
from shared.hashing import that_begin


def is_proved(channel: str, conversation: str | None, sender: str | None, *, vouched: bool) -> bool:
    """Return whether it is proved who wrote a message: it came in its sender's own private chat, which no group is.

    Where a thread does not say its place, as by e-mail, the sender is what anybody can write: it counts only if the
    owner's own mail server vouches for it.
    """
    spec = CHANNELS.get(channel)
    # Of a channel that is none, as only a program with the Switchboard's login can write, nothing is proved.
    if spec is None or spec.thread.address is None:
        return vouched and spec is not None
    return sender is not None and conversation == sender and spec.address.is_private(sender)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is said: the channel, the bot or mailbox, and the chat or address; a butler's part of it.

    Where a mail is `vouched` for, what others write in its sender's name is said elsewhere.
    """

    butler: str
    channel: str
    endpoint: str
    conversation: str
    vouched: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """A message that came in: what it says, where that was, the stranger's message that it is about, if any.

    `answers` is what else it answers: what the butler said or asked to send, or what was written there before.
    """

    turn: Turn
    place: Place
    concerns: str | None
    answers: str | None


COLUMNS: Final = f"""
id::text, butler, channel, endpoint, conversation, kind, text, sender, display_name, contact, from_owner,
    concerns::text, answers::text, attachments, vouched, at, observed, left_out,
    endpoint IN {realms.PLACES} AND {realms.REACHES_PEOPLE} AS is_played
"""
ONE: Final = f"""
SELECT {COLUMNS} FROM shared.turns WHERE id = $1 AND kind NOT IN ('said', 'request', 'question', 'answer')
"""


async def received(connection: Connection, message_id: str) -> Written | None:
    """Return a message that came in for this butler; None if there is none, or its sender is blocked by now."""
    row = await connection.fetchrow(ONE, UUID(message_id))
    if row is None:
        return None
    place = Place(row["butler"], row["channel"], row["endpoint"], row["conversation"] or "", row["vouched"])
    return Written(_turn(row), place, row["concerns"], row["answers"])


WRITTEN_BY: Final = """
SELECT channel, sender FROM shared.turns
WHERE id BETWEEN $1 AND $2 AND kind NOT IN ('said', 'request', 'question', 'answer') LIMIT 2
"""


async def written_by(connection: Connection, begins: str) -> tuple[str, str]:
    """Return channel and sender of the message that came in whose id begins so; raise InvalidInput for none or more."""
    between = that_begin(begins)
    rows = [] if between is None else await connection.fetch(WRITTEN_BY, *between)
    if len(rows) != 1:
        several = "The ids of several messages begin" if rows else "The id of no message begins"
        raise InvalidInput(f"{several} with `{begins[:40]}`.", "Give --channel and --from in its place.")
    return rows[0]["channel"], rows[0]["sender"]


# INVARIANT: no butler is shown what another one said or was told.
ANSWERED: Final = f"SELECT {COLUMNS} FROM shared.turns WHERE id = $1 AND butler = $2"


async def answered_by(connection: Connection, message: Written) -> Turn | None:
    """Return what a message answers, marked as that; None if it answers nothing that its butler may see."""
    what = message.concerns or message.answers
    row = await connection.fetchrow(ANSWERED, UUID(what), message.place.butler) if what else None
    return replace(_turn(row), is_answered=True) if row is not None else None


# INVARIANT: of one butler, in one chat of one bot or mailbox.
BEFORE: Final = f"""
SELECT {COLUMNS} FROM shared.turns
WHERE butler = $1 AND channel = $2 AND endpoint = $3 AND conversation = $4 AND at <= $5 AND id <> $6
    AND (vouched OR NOT $7 OR kind IN ('said', 'question'))
ORDER BY at DESC LIMIT {MOST_TURNS}
"""


async def before(connection: Connection, place: Place, until: datetime, but: str) -> list[Turn]:
    """Return what was said there up to that time, oldest first, without that one message."""
    where = place.butler, place.channel, place.endpoint, place.conversation
    return [_turn(row) for row in reversed(await connection.fetch(BEFORE, *where, until, UUID(but), place.vouched))]


# What begins no work of its own, up to the next words that do: forwarded ones, and files without words.
AFTER: Final = f"""
WITH later AS (SELECT {COLUMNS} FROM shared.turns WHERE butler = $1 AND channel = $2 AND endpoint = $3
    AND conversation = $4 AND at > $5 AND (vouched OR NOT $6) AND kind IN ('message', 'forward')
    ORDER BY at LIMIT {MOST_TURNS})
SELECT * FROM later WHERE at < coalesce(
    (SELECT min(at) FROM later WHERE kind = 'message' AND text ~ '[^[:space:]]'), 'infinity') ORDER BY at
"""


async def right_after(connection: Connection, message: Written) -> list[Turn]:
    """Return what came in that chat right after a message and begins no work of its own, oldest first."""
    place = message.place
    where = place.butler, place.channel, place.endpoint, place.conversation
    return [_turn(row) for row in await connection.fetch(AFTER, *where, message.turn.at, place.vouched)]


ADDRESSES: Final = "SELECT lookup FROM shared.contact_info WHERE contact_id = $1"


async def of_contact(connection: Connection, contact_id: str) -> list[Turn]:
    """Return what was said last to and by a contact, by every channel and with every butler, oldest first."""
    found = await connection.fetch(ADDRESSES, UUID(contact_id))
    return await _at(connection, [row["lookup"] for row in found], None)


async def of_thread(connection: Connection, thread: str) -> list[Turn]:
    """Return what was said last in the conversation of a thread, or at an address, oldest first."""
    for channel, spec in CHANNELS.items():
        if spec.thread.address is not None and ":" in thread:
            try:
                return await _at(connection, [spec.thread.address(spec.thread.spellings(thread)[0])], channel)
            except InvalidInput:
                continue
    return await _at(connection, [folded(thread)], None)


AT: Final = f"""
SELECT {COLUMNS} FROM shared.turns WHERE conversation = ANY ($1) AND ($2::text IS NULL OR channel = $2)
ORDER BY at DESC LIMIT {MOST_TURNS}
"""


async def _at(connection: Connection, conversations: Sequence[str], channel: str | None) -> list[Turn]:
    return [_turn(row) for row in reversed(await connection.fetch(AT, list(conversations), channel))]


WITH_OWNER: Final = f"""
SELECT {COLUMNS} FROM shared.turns
WHERE butler = $1 AND id <> $2 AND conversation IN (SELECT i.lookup FROM shared.contact_info i
    JOIN shared.contacts c ON c.id = i.contact_id WHERE 'owner' = ANY (c.roles))
ORDER BY at DESC LIMIT {MOST_TURNS}
"""


async def with_owner(connection: Connection, butler: str, but: str) -> list[Turn]:
    """Return what this butler and the owner said to each other last, by every channel, without that question."""
    return [_turn(row) for row in reversed(await connection.fetch(WITH_OWNER, butler, UUID(but)))]


def _files(attached: object) -> tuple[File, ...]:
    """Return the files as the row names them; none of a row that has been wiped."""
    found = attached if isinstance(attached, list) else []
    return tuple(
        File(str(one.get("name") or ""), str(one.get("type") or ""), size if isinstance(size, int) else None)
        for one in found
        if isinstance(one, dict)
        for size in [one.get("size")]
    )


def _turn(row: Record) -> Turn:
    ours = row["kind"] in {"said", "request", "question"}
    return Turn(
        at=row["at"],
        channel=row["channel"],
        text=row["text"],
        kind=row["kind"],
        sender=row["sender"] or "",
        name=row["display_name"] or "",
        contact="" if ours or row["from_owner"] else row["contact"] or "",
        is_owner=row["from_owner"],
        is_verified=not ours
        and not row["is_played"]
        and is_proved(row["channel"], row["conversation"], row["sender"], vouched=row["vouched"]),
        butler=row["butler"] if ours else "",
        files=_files(row["attachments"]),
        id=row["id"],
        written=written_at(row["observed"], row["at"]),
        left_out=row["left_out"] or "",
    )
