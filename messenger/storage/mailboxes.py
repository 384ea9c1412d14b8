"""How far each mailbox is read, and which Messenger reads it; the only writer of messenger.mailboxes.

Where a backup was put back, `butlers migrate` forgets how far.
"""

from datetime import timedelta
from typing import Final

from shared.db.pool import Connection, Record

# A process that loses the lease while it looks does no harm.
TAKE_LEASE: Final = """
INSERT INTO messenger.mailboxes AS m (account, holder, lease_until)
VALUES ($1, $2, clock_timestamp() + $3::interval)
ON CONFLICT (account) DO UPDATE SET holder = EXCLUDED.holder, lease_until = EXCLUDED.lease_until
WHERE m.holder = $2 OR m.lease_until <= clock_timestamp() OR m.lease_until > clock_timestamp() + $3::interval
RETURNING uidvalidity, last_uid, (read_at AT TIME ZONE 'UTC')::date - 1 AS since, mails_from
"""


async def take_lease(connection: Connection, account: str, holder: str, lease: timedelta) -> Record | None:
    """Take the mailbox's lease; return how far it is read, or None while another process has it."""
    return await connection.fetchrow(TAKE_LEASE, account, holder, lease)


GIVE_UP_LEASE: Final = """
UPDATE messenger.mailboxes SET lease_until = clock_timestamp() WHERE account = $1 AND holder = $2
"""


async def give_up_lease(connection: Connection, account: str, holder: str) -> None:
    """Let another process read at once."""
    await connection.execute(GIVE_UP_LEASE, account, holder)


READ: Final = """
UPDATE messenger.mailboxes SET uidvalidity = $3, last_uid = $4,
    read_at = CASE WHEN $5 THEN clock_timestamp() ELSE read_at END
WHERE account = $1 AND holder = $2
"""


async def note_read(
    connection: Connection, account: str, holder: str, numbers: tuple[int, int], *, whole: bool
) -> None:
    """Note up to which number of which numbering all is read, and that nothing was left if it is whole."""
    await connection.execute(READ, account, holder, *numbers, whole)
