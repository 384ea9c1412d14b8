"""Mails that came in, brought to the Switchboard as ingest.v1; of strangers so much and no more."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from pydantic import ValidationError

from butlers.butler import Context
from messenger.inbound.ingest import bring
from messenger.inbound.mailbox import Arrived
from messenger.storage import strangers
from shared.contracts import IngestEnvelope, IngestEvent, IngestPayload, IngestSender, IngestSource
from shared.errors import InvalidInput
from shared.telemetry.logs import logger

# With the longest words, of whatever characters, it stays below what a daemon takes in one request.
LONGEST_QUOTED: Final = 8_000
log = logger("messenger.inbound.letters")
LONGEST_ID: Final = 1000


async def bring_in(context: Context, endpoint: str, arrived: Arrived) -> bool:
    """Hand a mail to the Switchboard's inbox, which holds it once; return whether it is there, and new.

    Raises HopFailed while the Switchboard is not there. What nobody can ever take is left where it is, in the mailbox.
    """
    try:
        event = envelope(endpoint, arrived)
    except ValidationError as wrong:
        log.warning("a mail is nobody's message", fields=wrong.error_count())
        return False
    letter = arrived.letter
    size = len((event.payload.text + (event.payload.quoted or "")).encode())
    try:
        async with context.db.work() as connection:
            if not await strangers.takes_mail(connection, letter.sender, size, vouched=letter.verified):
                return False
            # In one unit of work with the count, so that what has to wait is not counted twice.
            return await bring(context, event)
    except InvalidInput as unfit:
        log.warning("a mail is passed over, since the Switchboard refuses it", mail=letter.event_id, why=unfit.message)
        return False


def envelope(endpoint: str, arrived: Arrived) -> IngestEnvelope:
    """Return the mail as ingest.v1, named by its own id and the mailbox, whatever number it has there."""
    letter = arrived.letter
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
            # Of a mail without words its subject is what was said, unless somebody else wrote it.
            text=letter.text or ("" if letter.quoted or letter.reply_to else letter.subject),
            quoted=letter.quoted[:LONGEST_QUOTED] or None,
            subject=letter.subject or None,
            attachments=letter.attachments or None,
        ),
    )
