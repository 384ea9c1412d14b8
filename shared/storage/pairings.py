"""One-time codes by which a chat becomes the owner's: offered on the command line, used in Telegram."""

from datetime import timedelta
from hashlib import sha256

from shared.db.pool import Connection

OFFER = """
INSERT INTO messenger.pairings (code_sha, expires_at) VALUES ($1, clock_timestamp() + $2::interval)
"""


async def offer(connection: Connection, code: str, lasts: timedelta) -> None:
    """Make a code valid for that time; only its hash is kept."""
    await connection.execute(OFFER, sha256(code.encode()).hexdigest(), lasts)


USE = """
UPDATE messenger.pairings SET used_at = clock_timestamp()
WHERE code_sha = $1 AND used_at IS NULL AND expires_at > clock_timestamp() RETURNING code_sha
"""


async def use(connection: Connection, code: str) -> bool:
    """Use up this code; return whether it was valid, which it is once."""
    return await connection.fetchval(USE, sha256(code.encode()).hexdigest()) is not None


EXPIRE = """
UPDATE messenger.pairings SET used_at = clock_timestamp() WHERE used_at IS NULL AND expires_at <= clock_timestamp()
"""


async def expire(connection: Connection) -> None:
    """Use up the codes whose time is over, so that a clock put back makes none of them valid again."""
    await connection.execute(EXPIRE)


IS_OPEN = "SELECT EXISTS (SELECT FROM messenger.pairings WHERE used_at IS NULL AND expires_at > clock_timestamp())"


async def is_open(connection: Connection) -> bool:
    """Return whether any code is valid now."""
    return bool(await connection.fetchval(IS_OPEN))
