"""Where a stored message would go as of now; whether it may is judged when it is claimed."""

from typing import Final

from messenger.storage.deliveries import Enqueued
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput, Misconfigured
from shared.storage import notifications
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


async def not_yet_brought(connection: Connection, row: Record) -> Enqueued:
    """Return the delivery to make for what the Switchboard had not brought, or had not brought again.

    Raises Unreadable if the row holds no envelope.
    """
    notifications.envelope_of(row)
    return delivery_to(row, await target_now(connection, row))


def delivery_to(row: Record, target: Target) -> Enqueued:
    """Return the delivery to make of a notification's row to this target."""
    channel, kind = row["envelope"]["delivery"]["channel"], "owner" if target.is_owner else "third_party"
    whose = (row["origin_butler"], row["lineage"])
    return Enqueued(row["id"], kind, channel, target.address, row["realm"], row["not_after"], *whose)
