"""Whether a message that reached a butler proves the thread in which that butler answers.

Only reads: the Switchboard alone writes what was received, and says whom it reached.
"""

from typing import Final

from shared.addresses import Address, lookup_key, parse_thread
from shared.channels import email
from shared.db.pool import Connection

BY_MESSAGE: Final = """
SELECT EXISTS (SELECT FROM shared.threads WHERE butler = $1 AND channel = 'telegram' AND thread = $2)
"""
BY_SENDER: Final = """
SELECT EXISTS (SELECT FROM shared.threads WHERE butler = $1 AND channel = 'email' AND sender = $2
    AND ($3::text[] IS NULL OR thread = ANY ($3)))
"""
IN_OWN_CHAT: Final = "SELECT shared.may_point_at($1, $2, $3)"


async def is_proved(connection: Connection, butler: str, address: Address, thread: str | None) -> bool:
    """Return whether what is answered was received and routed to this butler.

    On Telegram that is the very message, `chat:message`; by e-mail a mail from this address, and if a Message-ID is
    named, that mail. Raises InvalidInput for a thread that is none, and what the database raises if it cannot be read.
    """
    if address.channel == "telegram":
        named = parse_thread(thread or "")
        return bool(await connection.fetchval(BY_MESSAGE, butler, f"{named.chat}:{named.message}"))
    spellings = None
    if thread:
        answered = email.answered(thread)
        spellings = [answered, answered[1:-1]]
    return bool(await connection.fetchval(BY_SENDER, butler, lookup_key(address), spellings))


async def may_point_at(connection: Connection, butler: str, address: Address, thread: str | None) -> bool:
    """Return whether the butler may answer this message of the owner's own chat.

    It may if the owner wrote it there, for nobody else, or if the butler said it itself. By e-mail nothing is checked:
    each of its mails bears its butler's name, in whatever thread it is shown.
    """
    if address.channel == "email":
        return True
    number = parse_thread(thread or "").message
    return bool(await connection.fetchval(IN_OWN_CHAT, address.value, str(number), butler))
