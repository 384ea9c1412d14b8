"""The cool-down: what the owner said lately to one butler's questions about one recipient.

Only reads, and no word of any message.
"""

from typing import Final
from uuid import UUID

from shared.config.timings import STANDARD
from shared.db.pool import Connection

# Three noes in a row, the last of them less than $5 ago; a question that got no answer does not count as a no. What
# was said in the sandbox, where anybody can say it, counts there alone.
COOLS_UNTIL: Final = """
SELECT extract(epoch FROM max(at) + $5::interval)::float8 FROM (
    SELECT denied, at FROM shared.owner_decisions
    WHERE origin_butler = $1 AND (contact_id = $2 OR address = lower($3::text COLLATE "C"))
        AND (realm = 'sandbox') = ($4 = 'sandbox')
    ORDER BY at DESC LIMIT 3) last
HAVING count(*) = 3 AND bool_and(denied) AND max(at) > clock_timestamp() - $5::interval
"""


async def cools_until(
    connection: Connection,
    butler: str,
    realm: str,
    contact_id: str | None,
    address: str | None = None,
) -> float | None:
    """Return until when (seconds since 1970) this butler asks nothing there about this contact or address.

    Returns None if it may ask.
    """
    contact = UUID(contact_id) if contact_id else None
    found: float | None = await connection.fetchval(COOLS_UNTIL, butler, contact, address, realm, STANDARD.cool_down)
    return found
