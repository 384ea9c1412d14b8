"""The database's time on this side of the wire, so that no daemon's own wall clock can change an outcome.

And this computer's own: how much has passed, also while it slept, and whether the database's clock went along.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.db.pool import Connection
from shared.errors import Unavailable

# Two clocks that go apart by more between two looks have not only been slewed: one of them was set.
STEADY_SECONDS: Final = 60.0


def boot() -> float:
    """Seconds that never jump and run on while the computer sleeps, where it has such a clock."""
    sleepless = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if sleepless is None else time.clock_gettime(sleepless)


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by two clocks of this computer: `boot` never jumps, `wall` may be set by anybody."""

    boot: float
    wall: float

    def passed(self, now: "Moment") -> float:
        """Seconds from here until now by the clock that says more; a wall clock put back says as much as one put on."""
        return max(now.boot - self.boot, abs(now.wall - self.wall))


def moment() -> Moment:
    """Now."""
    return Moment(boot(), time.time())


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the database's clock, in seconds since 1970, and when it was in seconds that never jump."""

    ticks: float
    database: float

    def went_along(self, later: "Reading") -> bool:
        """Whether the database's clock has gone on from here as this process's has, and was not set meanwhile."""
        drift = (later.database - self.database) - (later.ticks - self.ticks)
        return abs(drift) <= STEADY_SECONDS


async def read(connection: Connection, ticks: Callable[[], float]) -> Reading:
    """The database's clock now; `ticks` never jumps."""
    return Reading(ticks(), await now(connection))


class DatabaseClock:
    """Seconds since 1970 by the database: as last read, and counted on from there by `ticks`.

    `ticks` counts seconds and never jumps (`boot`). The time is behind by what one reading takes.
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


NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


async def now(connection: Connection) -> float:
    """Seconds since 1970 by the database's clock."""
    return float(await connection.fetchval(NOW))
