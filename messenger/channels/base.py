"""What each channel's file offers: prepare (all but the committing byte) and finish (that byte, then the answer)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from shared.channels.base import Wire

Reason = Literal[
    "provider_rejected",  # 4xx, SMTP 5xx: final, not sent
    "unauthorized",  # 401/404 on the token, SMTP 535: the channel pauses, not sent
    "rate_limited",  # 429: not sent
    "unavailable",  # refused, DNS, TLS, SMTP 4xx, anything before the committing byte: not sent
    "timeout",  # no answer after the committing byte: unknown
    "connection_lost",  # cut after the committing byte: unknown
    "server_error",  # 5xx after the committing byte: unknown
    "unreadable",  # an answer that says nothing we can read: unknown
]


@dataclass(frozen=True, slots=True)
class Receipt:
    """The provider's own word that it has the message: Telegram's message_id, or the Message-ID."""

    provider_id: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SendFailed:
    """The end of a sending without a receipt; only `proved_not_sent` may ever be tried again by machine."""

    reason: Reason
    message: str
    proved_not_sent: bool
    retry_after: float | None = None
    # No connection, or one cut before anything was handed over: anything tried now would fail alike.
    is_down: bool = False


# Whether its caller may still write, asked right before the committing byte: nothing is awaited in between.
StillHeld: TypeAlias = Callable[[], bool]


def unconditionally() -> bool:
    """Return True, for what is under no lease."""
    return True


def too_late() -> SendFailed:
    """Return the failure for a lease that ran out before the committing byte, which was not written."""
    return SendFailed("unavailable", "The lease ran out before the last byte.", proved_not_sent=True)


class Prepared(Protocol):
    """A part of which all but the committing byte is written."""

    async def finish(self, still_held: StillHeld = unconditionally) -> Receipt | SendFailed:
        """Write the committing byte if the lease still lasts right then, and wait for the provider's answer."""

    async def abandon(self) -> None:
        """Drop it: the provider never gets the committing byte, so nothing was sent."""


class Channel(Protocol):
    """A way out to a provider; it holds the credentials and the connections."""

    name: str

    async def prepare(self, wire: Wire) -> Prepared | SendFailed:
        """Connect and write all but the committing byte; a SendFailed from here is proved not sent."""

    async def probe(self) -> SendFailed | None:
        """Ask the provider for nothing but an answer to our login; return None if it gave one."""

    async def close(self) -> None:
        """Close every connection."""
