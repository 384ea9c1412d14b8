"""Where a stored message would go as of now; whether it may is judged when it is claimed."""

from typing import Final

from shared.db.pool import Connection, Record
from shared.errors import InvalidInput, Misconfigured
from shared.storage.contacts import MissingIdentifier, Recipient, Target, target_of

# The address of what nobody could be reached at.
NOWHERE: Final = Target(address="?")


async def target_now(connection: Connection, row: Record) -> Target:
    """Return the target of a notification's row; where there is none, one that nobody could be reached at."""
    channel = row["envelope"]["delivery"]["channel"]
    try:
        found = await target_of(connection, Recipient.parse(row["whom"]), channel)
    except (InvalidInput, Misconfigured):
        return NOWHERE
    return NOWHERE if isinstance(found, MissingIdentifier) else found
