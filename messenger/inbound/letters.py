"""Mails that came in, brought to the Switchboard as ingest.v1; of strangers so much and no more."""

import asyncio
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from pydantic import ValidationError

from butlers.butler import Context
from messenger.inbound.ingest import bring
from messenger.inbound.mail.answered import parted_above, parted_by
from messenger.inbound.mail.letter import FORWARD, LONGEST_WORDS, Letter, within
from messenger.inbound.mail.quoted import Parted, parted, parted_answer
from messenger.inbound.mail.sent import sent
from messenger.inbound.mailbox import Arrived
from messenger.storage import queries, strangers
from shared.contracts import IngestEnvelope, IngestEvent, IngestPayload, IngestSender, IngestSource
from shared.display import owner
from shared.display.question import Row
from shared.errors import InvalidInput
from shared.telemetry.logs import logger

# With the longest words, of whatever characters, it stays below what a daemon takes in one request.
LONGEST_QUOTED: Final = 8_000
log = logger("messenger.inbound.letters")
LONGEST_ID: Final = 1000
# A photo that stands between words may fill all that is read.
BEYOND: Final = "\n\n(Only the first megabyte of this mail was read: what may follow is in the mailbox alone.)"


async def bring_in(context: Context, endpoint: str, arrived: Arrived) -> bool:
    """Hand a mail to the Switchboard's inbox, which holds it once; return whether it is there, and new.

    Raises HopFailed while the Switchboard is not there. What nobody can ever take is left where it is, in the mailbox.
    """
    letter = arrived.letter
    async with context.db.work() as connection:
        answered = await queries.mailed(connection, letter.answers, letter.sender) if letter.answers else None
    try:
        size = min(len(letter.words.encode()), LONGEST_WORDS + LONGEST_QUOTED)
        async with context.db.work() as connection:
            if not await strangers.takes_mail(connection, letter.sender, size, vouched=letter.verified):
                return False
            # In one unit of work with the count, so that what has to wait is not counted twice.
            return await bring(context, await asyncio.to_thread(envelope, endpoint, arrived, answered))
    except ValidationError as wrong:
        log.warning("a mail is nobody's message", fields=wrong.error_count())
        return False
    except InvalidInput as unfit:
        log.warning("a mail is passed over, since the Switchboard refuses it", mail=letter.event_id, why=unfit.message)
        return False


def envelope(endpoint: str, arrived: Arrived, answered: Row | None = None) -> IngestEnvelope:
    """Return the mail as ingest.v1, named by its own id and the mailbox, whatever number it has there.

    `answered` is the mail of ours that it answers, where that is known.
    """
    letter = arrived.letter
    said = _said(letter, answered, endpoint)
    named = f"{endpoint} {letter.event_id}"
    return IngestEnvelope(
        source=IngestSource(channel="email", provider="imap", endpoint_identity=endpoint),
        event=IngestEvent(
            external_event_id=named if len(named) <= LONGEST_ID else sha256(named.encode()).hexdigest(),
            external_thread_id=letter.message_id,
            reply_to=letter.reply_to,
            kind=letter.kind,
            observed_at=(arrived.at or datetime.fromtimestamp(0, UTC)).astimezone(UTC).isoformat(),
        ),
        sender=IngestSender(identity=letter.sender, display_name=letter.display_name, verified=letter.verified),
        payload=IngestPayload(
            text=_text(letter, said),
            quoted=said.quoted[:LONGEST_QUOTED] or None,
            in_doubt=said.in_doubt,
            subject=letter.subject or None,
            attachments=letter.attachments or None,
        ),
    )


def _said(letter: Letter, answered: Row | None, endpoint: str) -> Parted:
    """Return the writer's own words and the rest; of what is forwarded all counts as its words, which are nobody's."""
    if letter.kind == FORWARD:
        return Parted(letter.words.strip(), "")
    if not letter.is_answer:
        return parted(letter.words, letter.sender)
    if answered is None:
        return parted_answer(letter.words, letter.sender)
    # As it left: to the owner, the hosts that addresses hide are added.
    message, subject = answered["message"], answered["subject"]
    if not answered["third_party"]:
        message, subject = owner.with_hosts(message), owner.with_hosts(subject) if subject else None
    ours = sent(message, answered["origin_butler"], subject, endpoint)
    found = parted_by(letter.words, letter.sender, ours) or parted_above(letter.words, letter.sender, ours)
    return found or parted(letter.words, letter.sender)


def _text(letter: Letter, said: Parted) -> str:
    """Return what was said, below the subject, which an answer has from somebody else."""
    subject = "" if letter.is_answer else letter.subject.strip()
    beyond = BEYOND if letter.is_cut else ""
    if not said.own:
        return "" if said.quoted else (subject + beyond).strip()
    own = said.own + beyond
    head = "" if not subject or own.startswith(subject) else f"Subject: {subject}\n\n"
    return within(head + own, LONGEST_WORDS)
