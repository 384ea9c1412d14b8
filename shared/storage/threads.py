"""Whether a message that reached a butler proves the thread in which that butler answers.

Only reads: the Switchboard alone writes what was received, and says whom it reached.
"""

from dataclasses import dataclass
from typing import Final

from shared.addresses import Address, folded
from shared.channels import CHANNELS
from shared.db.pool import Connection

BY_MESSAGE: Final = """
SELECT EXISTS (SELECT FROM shared.threads WHERE butler = $1 AND channel = $2 AND thread = ANY ($3) AND endpoint = $4)
"""
BY_SENDER: Final = """
SELECT EXISTS (SELECT FROM shared.threads WHERE butler = $1 AND channel = $2 AND sender = $5 AND endpoint = $4
    AND ($3::text[] IS NULL OR thread = ANY ($3)))
"""


@dataclass(frozen=True, slots=True)
class Answering:
    """What an answer points at: the thread it names, if any, and the place where its context says that came in."""

    thread: str | None
    endpoint: str


async def is_proved(connection: Connection, butler: str, address: Address, to: Answering) -> bool:
    """Return whether what is answered was received, where the context says and this channel is now, for this butler.

    Where a thread says its address, as on Telegram, that is the very message; by e-mail it is a mail from this address,
    and if a Message-ID is named, that mail. Raises InvalidInput for a thread that is none, and what the database raises
    if it cannot be read.
    """
    form = CHANNELS[address.channel].thread
    spellings = form.spellings(to.thread or "") if to.thread or form.address else None
    known = butler, address.channel, spellings, to.endpoint
    if form.address:
        return bool(await connection.fetchval(BY_MESSAGE, *known))
    return bool(await connection.fetchval(BY_SENDER, *known, folded(address.value)))


IN_OWN_CHAT: Final = """
SELECT EXISTS (SELECT FROM shared.channels WHERE channel = $4 AND endpoint = $5) AND shared.may_point_at($1, $2, $3)
"""


async def may_point_at(connection: Connection, butler: str, address: Address, to: Answering) -> bool:
    """Return whether the butler may answer this message of the owner's own chat.

    It may if the owner wrote it there, for nobody else, or if the butler said it itself. Where a thread does not
    say its address, as by e-mail, nothing is checked: each message bears its butler's name, wherever it is shown.
    """
    form = CHANNELS[address.channel].thread
    if form.address is None:
        return True
    number = form.spellings(to.thread or "")[0].rpartition(":")[2]
    return bool(await connection.fetchval(IN_OWN_CHAT, address.value, number, butler, address.channel, to.endpoint))
