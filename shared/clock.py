"""The database's time on this side of the wire, so that no daemon's own wall clock can change an outcome."""

from collections.abc import Callable

from shared.db import Connection, now
from shared.errors import Unavailable


class DatabaseClock:
    """Seconds since 1970 by the database: as last read, and counted on from there by `ticks`.

    `ticks` counts seconds and never jumps (time.monotonic). The time is behind by what one reading takes.
    """

    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._ahead: float | None = None

    def __call__(self) -> float:
        """The time now; raises Unavailable before the first reading."""
        if self._ahead is None:
            raise Unavailable("The database's time is not known yet.", "Try again in a moment.")
        return self._ticks() + self._ahead

    async def read(self, connection: Connection) -> None:
        """Set it by the database, where it stood when it was asked."""
        asked = self._ticks()
        self._ahead = await now(connection) - asked
