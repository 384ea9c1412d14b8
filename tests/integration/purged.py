"""Letting a message grow old by the database's clock, and taking away what is over."""

import asyncio
from datetime import timedelta
from typing import Final

from messenger.maintenance import purger
from shared.db.clock import now
from shared.db.pool import Record
from tests.integration.house import House
from tests.rig.rows import every_row

OLD: Final = 31
"""Days after which words are wiped."""

ANCIENT: Final = 401
"""Days after which a fence is removed."""

MESSAGE: Final = "SELECT * FROM shared.notifications WHERE id = $1"
# Every moment in the past of one message, and of what belongs to it, moves back.
AGE: Final = (
    """
UPDATE shared.notifications SET created_at = created_at - $2::interval, updated_at = updated_at - $2::interval,
    wiped_at = wiped_at - $2::interval WHERE id = $1
""",
    """
UPDATE shared.pending_actions SET requested_at = requested_at - $2::interval, expires_at = expires_at - $2::interval,
    decided_at = decided_at - $2::interval WHERE notification_id = $1
""",
    """
UPDATE messenger.deliveries SET created_at = created_at - $2::interval, settled_at = settled_at - $2::interval
WHERE notification_id = $1
""",
    "UPDATE shared.withdrawals SET at = at - $2::interval WHERE notification_id = $1",
    # What its butler was told goes by itself, and no later (test_purging_rows).
    "DELETE FROM shared.notices WHERE position($1::text IN text) > 0 AND $2::interval > interval '0'",
)


async def age(house: House, notification_id: object, days: int) -> None:
    """Make a message so many days older than it is."""
    for text in AGE:
        await house.sql.execute(text, str(notification_id), timedelta(days=days))


async def purge(house: House, batch: int = 100) -> int:
    """One round of the Messenger's; how many rows."""
    db = house.context("messenger").db
    async with db.work() as connection:
        by = await now(connection)
    return await purger.purge(db, by, asyncio.Event(), batch)


async def row(house: House, notification_id: object) -> Record:
    """The notification's row."""
    return await house.row(MESSAGE, str(notification_id))


async def everything(house: House) -> str:
    """All rows of all tables, as text."""
    return "\n".join((await every_row(house.sql)).values())
