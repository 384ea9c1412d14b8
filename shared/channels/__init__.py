"""The channels: one line each."""

from typing import Final

from shared.channels import email, telegram
from shared.channels.base import ChannelSpec

CHANNELS: Final[dict[str, ChannelSpec]] = {
    "telegram": telegram.SPEC,
    "email": email.SPEC,
}


def channel_of(source: str) -> str | None:
    """Return the channel of what came in by this source, None for one that is unknown."""
    return next((name for name, spec in CHANNELS.items() if source in spec.sources), None)
