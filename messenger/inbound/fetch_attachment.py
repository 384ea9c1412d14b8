"""The tool `fetch_attachment`: fetch a file that came with a message from its channel, for the butler it was routed to.

The bytes are never looked into and never run: they go into rows that this butler alone reads.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from imaplib import IMAP4
from typing import Final

from pydantic import ValidationError

from butlers.butler import Context, Result, ToolCall
from messenger.channels.telegram import TelegramChannel
from messenger.inbound.mail.dsn import is_report
from messenger.inbound.mail.letter import files_of, letter_of
from messenger.inbound.mail.mime import taken_apart
from messenger.inbound.mailbox import LARGEST, Mailbox, all_named, fetched_piece
from messenger.inbound.reader import Source
from shared.contracts import AttachmentRequest, describe
from shared.errors import ButlersError, Forbidden, Gone, InvalidInput, TooLarge, Unavailable
from shared.storage import attachments
from shared.storage.attachments import Reference

# Files fetched at once, since each is held in memory; of one butler one, so that it keeps no other's waiting.
AT_ONCE: Final = 2
# The largest with its encoding.
MOST_ENCODED: Final = 30 * 2**20
# Mails with the same id that are looked at for one file.
MOST_ALIKE: Final = 5


@dataclass(frozen=True, slots=True)
class Files:
    """Where files lie: the bot, by its number, and the mailbox, if one is read."""

    telegram: TelegramChannel
    bot: str
    source: Source | None
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    # By butler.
    turns: Mapping[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))


async def fetch_attachment(context: Context, files: Files, call: ToolCall) -> Result:
    """Put a file into the rows of the butler whose message it came with, or answer why that cannot be."""
    try:
        asked = AttachmentRequest.model_validate(call.arguments)
        await _fetch(context, files, asked)
    except ValidationError as wrong:
        return Result.refused(InvalidInput(describe(wrong)))
    except ButlersError as failed:
        return Result.refused(failed)
    return Result({"status": "ok"})


async def _fetch(context: Context, files: Files, asked: AttachmentRequest) -> None:
    butler = asked.butler or ""
    async with context.db.work() as connection:
        found = await attachments.reference(connection, butler, asked.message_id, asked.number)
    if found is None:
        raise Forbidden("This butler has no such file.")
    if (found.size or 0) > attachments.LARGEST:
        raise TooLarge
    try:
        async with asyncio.timeout(context.settings.timings.attachment_wait), files.turns[butler], files.room:
            body = await _from_channel(files, found)
    except TimeoutError:
        raise Unavailable("The file did not come in time.", "Try again in a minute.") from None
    async with context.db.work() as connection:
        await attachments.keep(connection, butler, asked.message_id, asked.number, body)


async def _from_channel(files: Files, found: Reference) -> bytes:
    """Return the bytes; what came in at another bot or mailbox than today's is gone."""
    if found.channel == "telegram" and found.file_id is not None and found.endpoint == files.bot:
        return await files.telegram.file(found.file_id, attachments.LARGEST)
    source = files.source
    if found.channel != "email" or found.thread is None or source is None or found.endpoint != source.endpoint:
        raise Gone("The channel that it came by")
    box = Mailbox(source.account)
    looking = asyncio.ensure_future(
        asyncio.to_thread(box.read_once, partial(mailed_file, wanted=found, vouching=source.server))
    )
    try:
        body = await asyncio.shield(looking)
    except asyncio.CancelledError:
        box.stop()
        await asyncio.wait({looking})
        raise
    if body is None:
        raise Gone("The mailbox")
    return body


def mailed_file(server: IMAP4, wanted: Reference, vouching: str | None = None) -> bytes | None:
    """Return the file of the first mail that can be the one it came with; None if the mailbox has none any more.

    A verified message's file comes from a mail that the server `vouching` vouches for, since anybody can name its id.
    """
    for uid in all_named(server, wanted.thread or "")[:MOST_ALIKE]:
        raw, _ = fetched_piece(server, uid, LARGEST)
        if is_report(raw):  # which is never taken in
            continue
        letter, files = letter_of(raw, vouching, wanted.endpoint), files_of(taken_apart(raw))
        if wanted.verified and not letter.verified:
            continue
        number = wanted.number
        if number > len(files) or (letter.message_id, letter.sender) != (wanted.thread, wanted.sender):
            continue
        about = letter.attachments[number - 1]
        if (about.name, about.type) != (wanted.name, wanted.type):
            continue
        part = files[number - 1]
        body = part.body.encode("ascii", "surrogateescape")
        if len(raw) >= LARGEST:
            body, _ = fetched_piece(server, uid, MOST_ENCODED, part.path)
        content = part.content(body)
        if len(body) >= MOST_ENCODED or len(content) > attachments.LARGEST:
            raise TooLarge
        return content
    return None
