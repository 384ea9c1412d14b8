"""Messages and their wires: what exactly would go out.

Cards, the console and the marker all show or hash the same bytes, so nothing here may depend on the clock, on chance or
on a connection. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Message:
    """One notification, resolved, as the channel needs it."""

    notification_id: str
    channel: str
    intent: str
    address: str
    text: str
    subject: str | None = None
    emoji: str | None = None
    # Telegram: "<chat_id>:<message_id>"; e-mail: the Message-ID answered.
    thread: str | None = None
    # E-mail only: the From address, a stored row and never a caller's word.
    sender: str = ""
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """One part, byte for byte as the provider will get it.

    `verb` is the Bot API method, or MAIL; `body` is canonical JSON, or the whole RFC 5322 message.
    """

    verb: str
    to: str
    body: bytes
    sender: str = ""

    @property
    def sha(self) -> str:
        """SHA-256 over everything that decides who gets which bytes."""
        head = f"{self.verb}\x00{self.sender}\x00{self.to}\x00".encode()
        return sha256(head + self.body).hexdigest()


def shas(wires: Sequence[Wire]) -> list[str]:
    """Return the hashes that an approval binds, in order of parts."""
    return [wire.sha for wire in wires]
