"""Bringing what came in to the Switchboard, whose inbox holds each message once."""

from typing import Final

from butlers.butler import Context
from shared.contracts import IngestEnvelope, wire
from shared.errors import HopFailed, InvalidInput
from shared.rpc import HopTooLarge

WAIT: Final = 5.0


async def bring(context: Context, event: IngestEnvelope) -> bool:
    """Hand a message to the Switchboard; return whether it was new there.

    Raises HopFailed while the Switchboard is not there, and InvalidInput where it will never take this one.
    """
    try:
        answer = await context.daemons.call("switchboard", "ingest", wire(event), WAIT)
    except HopTooLarge as large:
        raise InvalidInput(large.message) from None
    if answer.get("status") == "error":
        raise InvalidInput(str(answer.get("error")))
    if answer.get("status") != "ok":
        raise HopFailed("The Switchboard did not take an inbound message.")
    return answer.get("duplicate") is False
