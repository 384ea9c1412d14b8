"""Messages that butlers want back: the only writer of shared.withdrawals.

A row says that its butler wants the message back, and nothing more; the Messenger finds out whether it still can be.
"""

from typing import Final
from uuid import UUID

from shared.db.pool import Connection, Record

ASK: Final = "INSERT INTO shared.withdrawals (notification_id, origin_butler) VALUES ($1, $2) ON CONFLICT DO NOTHING"


async def want_back(connection: Connection, notification_id: str, butler: str) -> None:
    """Write down that the butler wants the message back; asking twice changes nothing."""
    await connection.execute(ASK, UUID(notification_id), butler)


OUTCOME: Final = "SELECT outcome FROM shared.withdrawals WHERE notification_id = $1 AND origin_butler = $2"


async def result(connection: Connection, notification_id: str, butler: str) -> str | None:
    """Return what the Messenger found, or None as long as it has not looked."""
    found: str | None = await connection.fetchval(OUTCOME, UUID(notification_id), butler)
    return found


# The name in the row is checked against the notification's: no butler takes back what is another's.
WANTED: Final = """
SELECT EXISTS (SELECT FROM shared.withdrawals WHERE notification_id = $1 AND origin_butler = $2)
"""


async def is_wanted(connection: Connection, notification_id: str, butler: str) -> bool:
    """Return whether the notification's own butler wants it back."""
    return bool(await connection.fetchval(WANTED, UUID(notification_id), butler))


# Some of each butler's, found by the index, however many another has.
UNANSWERED: Final = """
WITH RECURSIVE b AS (
    SELECT min(origin_butler) AS name FROM shared.withdrawals WHERE outcome IS NULL
    UNION ALL
    SELECT (SELECT min(origin_butler) FROM shared.withdrawals WHERE outcome IS NULL AND origin_butler > b.name)
    FROM b WHERE b.name IS NOT NULL)
SELECT wanted.notification_id::text, b.name AS origin_butler FROM b CROSS JOIN LATERAL (
    SELECT w.notification_id FROM shared.withdrawals w
    JOIN shared.notifications n ON n.id = w.notification_id AND n.origin_butler = w.origin_butler
    WHERE w.outcome IS NULL AND w.origin_butler = b.name ORDER BY w.notification_id LIMIT 100) wanted
ORDER BY row_number() OVER (PARTITION BY b.name ORDER BY wanted.notification_id), wanted.notification_id LIMIT 100
"""


async def unanswered(connection: Connection) -> list[Record]:
    """Return what nobody has looked at yet: notification_id and origin_butler, in turns of the butlers."""
    return list(await connection.fetch(UNANSWERED))


ANSWER: Final = """
UPDATE shared.withdrawals SET outcome = $3 WHERE notification_id = $1 AND origin_butler = $2 AND outcome IS NULL
"""


async def note_found(connection: Connection, notification_id: str, butler: str, found: str) -> None:
    """Write down what became of the withdrawal: `cancelled`, `being_sent` or `settled`."""
    await connection.execute(ANSWER, UUID(notification_id), butler, found)
