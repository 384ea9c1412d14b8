"""Inbound rows: which process polls a bot, and which updates came. The only writer of those tables."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from shared.db.pool import Connection, Record

Fields: TypeAlias = Mapping[str, "Fields"]
_WHO: Fields = {"id": {}, "first_name": {}}
_FILE: Fields = {"file_id": {}, "file_name": {}, "mime_type": {}, "file_size": {}}
_CHAT: Fields = {"id": {}, "type": {}}
_REACTION: Fields = {"type": {}, "emoji": {}}
# What somebody writes that no butler reads: only that it came is kept. What is none of these, nobody wrote: somebody
# joined, or something was pinned.
UNREAD_KINDS = (
    *("poll", "checklist", "contact", "location", "venue", "sticker", "story", "dice", "game"),
    *("paid_media", "live_photo"),
)
_MESSAGE: Fields = {
    "message_id": {},
    "date": {},
    "text": {},
    "caption": {},
    # Only its number, its album, and the part that the sender marked of it: these may be anybody's words.
    "reply_to_message": {"message_id": {}, "media_group_id": {}},
    "quote": {"text": {}},
    **{kind: {} for kind in UNREAD_KINDS},
    # The parts of one album bear the same, and come as messages of their own.
    "media_group_id": {},
    **dict.fromkeys(("document", "audio", "voice", "video", "animation", "video_note", "photo"), _FILE),
    "from": _WHO,
    # Whoever writes as a channel or a group is this chat; of all of these "from" names one stand-in of Telegram's.
    "sender_chat": {"id": {}, "title": {}},
    "chat": _CHAT,
    # Whose words they are, where they are not the sender's own.
    "forward_origin": {"type": {}},
    "forward_date": {},
    "via_bot": {"id": {}},
}
USED: Fields = {
    "update_id": {},
    "message": _MESSAGE,
    "edited_message": {**_MESSAGE, "edit_date": {}},
    "message_reaction": {"message_id": {}, "date": {}, "chat": _CHAT, "user": _WHO, "new_reaction": _REACTION},
    "callback_query": {"id": {}, "data": {}, "from": _WHO, "message": {"message_id": {}, "chat": _CHAT}},
}

# What the owner may write to the bot, alone in a message, and is obeyed at once.
COMMANDS = ("/pause", "/resume", "/pending", "/help", "/start")
OTHERS_WORDS = ("forward_origin", "forward_date", "via_bot")

# Higher numbers are no provider's, and a row could not count on from them.
HIGHEST = 2**53


# Here and wherever time is written down: what is further off than its own length was written by a wrong clock.
TAKE_LEASE = """
INSERT INTO messenger.pollers AS p (bot, holder, lease_until) VALUES ($1, $2, clock_timestamp() + $3::interval)
ON CONFLICT (bot) DO UPDATE SET holder = $2, lease_until = clock_timestamp() + $3::interval
WHERE p.holder = $2 OR p.lease_until <= clock_timestamp() OR p.lease_until > clock_timestamp() + $3::interval
RETURNING bot
"""


async def take_lease(connection: Connection, bot: str, holder: str, lease: timedelta) -> bool:
    """Take the bot's lease, if no other process has it; return whether this process polls now."""
    return await connection.fetchval(TAKE_LEASE, bot, holder, lease) is not None


GIVE_UP_LEASE = "DELETE FROM messenger.pollers WHERE bot = $1 AND holder = $2"


async def give_up_lease(connection: Connection, bot: str, holder: str) -> None:
    """Let another process poll at once."""
    await connection.execute(GIVE_UP_LEASE, bot, holder)


# After a week without updates Telegram goes on with any number: what came before $2 does not count.
NEXT_OFFSET = """
SELECT coalesce(max(update_id) + 1, 0) FROM messenger.updates
WHERE bot = $1 AND received_at > clock_timestamp() - $2::interval
"""


async def next_offset(connection: Connection, bot: str, counts: timedelta) -> int:
    """Return the first update that is not stored: asking for it confirms the ones before to the provider."""
    return int(await connection.fetchval(NEXT_OFFSET, bot, counts))


def pared(updates: Sequence[object]) -> list[Mapping[str, object]]:
    """Return updates with what is used of them and nothing else; what has no number is no update."""
    numbered = [one for one in updates if isinstance(one, Mapping) and _is_number(one.get("update_id"))]
    return [_storable({name: _used(one[name], USED[name]) for name in USED if name in one}) for one in numbered]


def is_of_album(update: Mapping[str, object]) -> bool:
    """Return whether an update is one of several messages that were sent as one."""
    message = update.get("message")
    return isinstance(message, Mapping) and "media_group_id" in message


STORE = """
INSERT INTO messenger.updates (bot, update_id, body) SELECT $1, (u ->> 'update_id')::bigint, u
FROM jsonb_array_elements($2::jsonb) u ON CONFLICT DO NOTHING RETURNING update_id
"""


async def store(connection: Connection, bot: str, updates: Sequence[Mapping[str, object]]) -> int:
    """Keep updates as they were read, each once; return how many were new."""
    return len(await connection.fetch(STORE, bot, updates))


# What is not kept leaves its number, and of several the highest: from there on the provider is asked for more.
COUNTED = """
INSERT INTO messenger.updates (bot, update_id, body, handled_at, outcome)
VALUES ($1, $2, '{}', clock_timestamp(), 'counted') ON CONFLICT DO NOTHING
"""
ONE_COUNTED = "DELETE FROM messenger.updates WHERE bot = $1 AND update_id < $2 AND outcome = 'counted'"


async def count(connection: Connection, bot: str, highest: int) -> None:
    """Note that what came up to this number and is not kept is done with."""
    await connection.execute(COUNTED, bot, highest)
    await connection.execute(ONE_COUNTED, bot, highest)


def sender_of(message: Mapping[str, object]) -> object:
    """Return who wrote a message, or reacted: the chat that somebody writes as, else the person."""
    return next((who for name in ("sender_chat", "from", "user") if (who := message.get(name))), None)


def _used(value: object, fields: Fields) -> object:
    """Return the value with the fields that are used.

    What is no object holds none of them. Of a list the last counts: the largest size of a photo, the newest reaction.
    """
    if isinstance(value, list) and fields in (_FILE, _REACTION):
        value = value[-1] if value and isinstance(value[-1], Mapping) else None
    if isinstance(value, Mapping):
        return {name: _used(value[name], inside) for name, inside in fields.items() if name in value}
    return None if isinstance(value, list) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < HIGHEST


def _storable(update: Mapping[str, object]) -> Mapping[str, object]:
    """Return the update without NUL and halves of characters, which no row can hold.

    One such update would stop all after it.
    """
    return {name: _sound(value) for name, value in update.items()}


def _sound(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    return _storable(value) if isinstance(value, Mapping) else value


# A press or a command on a state that is gone speaks of nothing that is here.
LET_GO_WORDS = """
UPDATE messenger.updates SET handled_at = clock_timestamp(), outcome = 'restored'
WHERE handled_at IS NULL AND (body ? 'callback_query'
    OR lower(split_part(btrim(body #>> '{message,text}', E' \n'), '@', 1)) = ANY ($1))
"""


async def let_go_words(connection: Connection) -> None:
    """End every press and command that waits unhandled: the rows it was made for are not those that are here."""
    await connection.execute(LET_GO_WORDS, list(COMMANDS))


UNHANDLED = "SELECT EXISTS (SELECT FROM messenger.updates WHERE handled_at IS NULL)"


async def any_unhandled(connection: Connection) -> bool:
    """Return whether anything of any bot waits to be handled."""
    return bool(await connection.fetchval(UNHANDLED))


# As the index updates_words has it: what begins otherwise is no command.
MAY_BE_WORD = "(body ? 'callback_query' OR left(ltrim(body #>> '{message,text}', E' \\n'), 1) = '/')"
# A press by the owner, or a command in the owner's chat: neither needs the Switchboard, for which other messages wait
# in turn. Of presses anybody can send as many as Telegram takes.
IS_WORD = """
coalesce(CASE WHEN body ? 'callback_query' THEN body #>> '{callback_query,from,id}'
    WHEN lower(regexp_replace(btrim(body #>> '{message,text}', E' \\n'), '@[A-Za-z0-9_]{1,64}$', '')) = ANY ($2)
        AND NOT body -> 'message' ?| $3 THEN body #>> '{message,chat,id}' END IN (
    SELECT i.lookup FROM shared.contact_info i JOIN shared.contacts c ON c.id = i.contact_id
    WHERE 'owner' = ANY (c.roles) AND i.type = 'telegram'), false)
"""
# The parts of an album come one by one, so they wait until the last of them is there.
IS_COMING = """
(body -> 'message' ? 'media_group_id'
    AND received_at BETWEEN clock_timestamp() - $4::interval AND clock_timestamp())
"""
CHAT = "coalesce(body -> 'message', body -> 'edited_message', body -> 'message_reaction') #> '{chat,id}'"
# However many wait, each step reads one of an index; OFFSET 0 keeps it from reading all at once. INVARIANT: what is
# written in a chat, or changes something there, is handled after an album that was sent before it.
WAITING = f"""
WITH word AS (
    SELECT update_id, body, outcome, true AS is_word FROM messenger.updates
    WHERE bot = $1 AND handled_at IS NULL AND outcome IS NULL AND {MAY_BE_WORD} AND {IS_WORD}
    ORDER BY update_id LIMIT 1 FOR UPDATE SKIP LOCKED),
fresh AS (
    SELECT update_id, body, outcome, false AS is_word FROM messenger.updates u
        CROSS JOIN LATERAL (SELECT {CHAT} AS chat) place
    WHERE bot = $1 AND handled_at IS NULL AND outcome IS NULL AND NOT EXISTS (SELECT FROM word)
        AND NOT EXISTS (SELECT FROM messenger.updates before
            WHERE before.bot = $1 AND before.update_id <= u.update_id AND before.handled_at IS NULL
                AND before.outcome IS NULL AND {CHAT} = place.chat AND {IS_COMING} OFFSET 0)
    ORDER BY update_id LIMIT 1 FOR UPDATE OF u SKIP LOCKED),
failed AS (
    SELECT update_id, body, outcome, {IS_WORD} AS is_word FROM messenger.updates
    WHERE bot = $1 AND handled_at IS NULL AND outcome IS NOT NULL
        AND NOT EXISTS (SELECT FROM word) AND NOT EXISTS (SELECT FROM fresh)
    ORDER BY NOT {IS_WORD}, update_id LIMIT 1 FOR UPDATE SKIP LOCKED)
SELECT * FROM word UNION ALL SELECT * FROM fresh UNION ALL SELECT * FROM failed
"""


async def oldest_unhandled(connection: Connection, bot: str, album: timedelta) -> Record | None:
    """Return the oldest word of the owner's, else the oldest other update, that nobody has handled; lock it.

    A word is a press or a command. What failed comes last, and no part of an album before it was `album` ago, nor what
    came after it in that chat.
    """
    return await connection.fetchrow(WAITING, bot, list(COMMANDS), list(OTHERS_WORDS), album)


# Telegram numbers the parts of an album, of which there are ten at most, one after the other or nearly so; the first
# is asked for.
PARTS = """
SELECT update_id, body -> 'message' AS message FROM messenger.updates
WHERE bot = $1 AND handled_at IS NULL AND update_id BETWEEN $2::bigint AND $2::bigint + 50
    AND body #> '{message,media_group_id}' = $3::jsonb
ORDER BY update_id LIMIT 10 FOR UPDATE SKIP LOCKED
"""


async def album(connection: Connection, bot: str, update_id: int, message: Mapping[str, object]) -> Sequence[Record]:
    """Return this message and the parts behind it of the album that it belongs to, where they wait; lock them."""
    return await connection.fetch(PARTS, bot, update_id, message["media_group_id"])


# Of a comment and what it forwards the programs send the comment first.
FOLLOWS_WORDS = """
SELECT EXISTS (SELECT FROM messenger.updates u JOIN messenger.updates w ON w.bot = u.bot
        AND w.update_id BETWEEN u.update_id - 50 AND u.update_id - 1
        AND w.received_at > u.received_at - $4::interval
        AND w.body #> '{message,chat,id}' = u.body #> '{message,chat,id}'
    WHERE u.bot = $1 AND u.update_id = $2 AND w.outcome = 'ingested' AND NOT w.body -> 'message' ?| $3
        AND coalesce(w.body #>> '{message,text}', w.body #>> '{message,caption}') <> '')
"""


async def follows_words(connection: Connection, bot: str, update_id: int, together: timedelta) -> bool:
    """Return whether a message came at most so long after words of the sender's own, which a butler has."""
    return bool(await connection.fetchval(FOLLOWS_WORDS, bot, update_id, list(OTHERS_WORDS), together))


# The first edit that makes other words of what was taken as an answer.
CHANGES_ANSWER = """
WITH same AS (
    SELECT o.update_id, o.outcome, o.body ? 'message' AS is_first,
        coalesce(o.body #>> '{message,text}', o.body #>> '{edited_message,text}', '') AS text
    FROM messenger.updates e JOIN messenger.updates o ON o.bot = e.bot AND o.update_id <= e.update_id
        AND e.body #> '{edited_message,message_id}'
            IN (o.body #> '{message,message_id}', o.body #> '{edited_message,message_id}')
        AND e.body #> '{edited_message,chat,id}'
            IN (o.body #> '{message,chat,id}', o.body #> '{edited_message,chat,id}')
    WHERE e.bot = $1 AND e.update_id = $2)
SELECT min(o.update_id) = $2 FROM same o JOIN same a ON a.is_first AND a.outcome = 'answered' AND o.text <> a.text
"""


async def changes_answer(connection: Connection, bot: str, update_id: int) -> bool:
    """Return whether this edit is the first with other words than the answer to a question that it changes."""
    return bool(await connection.fetchval(CHANGES_ANSWER, bot, update_id))


# What came of an album, and what was edited of it since.
OF_ALBUM = """
SELECT body ? 'message' AS is_sent, part.message FROM messenger.updates
    CROSS JOIN LATERAL (SELECT coalesce(body -> 'message', body -> 'edited_message') AS message) part
WHERE bot = $1 AND update_id BETWEEN $2::bigint - 10000 AND $2::bigint + 10000
    AND (outcome = 'ingested' OR update_id = $2) AND part.message -> 'media_group_id' = $3::jsonb
ORDER BY update_id
"""


async def of_album(connection: Connection, bot: str, update_id: int, one: Mapping[str, object]) -> Sequence[Record]:
    """Return the parts of the album of which this is one, as they were sent and as they were edited, in order."""
    return await connection.fetch(OF_ALBUM, bot, update_id, one["media_group_id"])


HANDLED = """
UPDATE messenger.updates SET handled_at = clock_timestamp(), outcome = $3 WHERE bot = $1 AND update_id = ANY ($2)
"""


async def handled(connection: Connection, bot: str, update_ids: Sequence[int], outcome: str) -> None:
    """Note what became of updates."""
    await connection.execute(HANDLED, bot, update_ids, outcome)


# The inbox, which keeps a message once, is written to disk by then: to bring it again after a crash changes nothing.
BROUGHT_IN = """
UPDATE messenger.updates SET handled_at = clock_timestamp(), outcome = 'ingested'
FROM (SELECT set_config('synchronous_commit', 'off', true)) lazily WHERE bot = $1 AND update_id = ANY ($2)
"""


async def brought_in(connection: Connection, bot: str, update_ids: Sequence[int]) -> None:
    """Note that updates are in the inbox; this unit of work does not wait for the disk."""
    await connection.execute(BROUGHT_IN, bot, update_ids)


FAILED = """
UPDATE messenger.updates SET outcome = 'failed',
    handled_at = CASE WHEN received_at < clock_timestamp() - $3::interval THEN clock_timestamp() END
WHERE bot = $1 AND update_id = $2 AND handled_at IS NULL
"""


async def failed(connection: Connection, bot: str, update_id: int, given_up: timedelta) -> None:
    """Let all others go before an update; end it if it came longer ago than `given_up`."""
    await connection.execute(FAILED, bot, update_id, given_up)
