"""The sessions of butlers' logins that hold what they have locked for too long."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from shared.db.pool import Connection

END: Final = "SELECT shared.end_transactions($1)"


async def end_transactions(connection: Connection, longest: timedelta) -> Sequence[str] | None:
    """End the sessions of butlers' logins whose transaction is older; return the logins, or None if we may not."""
    ended: Sequence[str] | None = await connection.fetchval(END, longest)
    return ended
