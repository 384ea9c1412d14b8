"""The database's time as this process knows it, so that no daemon's own wall clock can change an outcome.

It also holds this computer's own clocks: how much time has passed, even while it slept, and whether the database's
clock kept pace.
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
    """Return seconds that never jump and run on while the computer sleeps, where it has such a clock."""
    sleepless = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if sleepless is None else time.clock_gettime(sleepless)


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by two clocks of this computer: `boot` never jumps, `wall` may be set by anybody."""

    boot: float
    wall: float

    def passed(self, now: "Moment") -> float:
        """Return the seconds from this moment until `now`, by the clock that shows more.

        A wall clock that was put back counts as much as one that was put forward.
        """
        return max(now.boot - self.boot, abs(now.wall - self.wall))


def moment() -> Moment:
    """Return the present moment by both clocks."""
    return Moment(boot(), time.time())


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the database's clock in seconds since 1970, and its moment in seconds that never jump."""

    ticks: float
    database: float

    def went_along(self, later: "Reading") -> bool:
        """Return whether the database's clock has kept pace with this process's since then, and so was not set."""
        drift = (later.database - self.database) - (later.ticks - self.ticks)
        return abs(drift) <= STEADY_SECONDS


async def reading(connection: Connection, ticks: Callable[[], float]) -> Reading:
    """Read the database's clock; `ticks` never jumps."""
    return Reading(ticks(), await now(connection))


class DatabaseClock:
    """The database's time in seconds since 1970: as last read, and counted on from there by `ticks`.

    `ticks` counts seconds and never jumps (`boot`). The time is behind by what one reading takes.
    """

    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._ahead: float | None = None

    def __call__(self) -> float:
        """Return the time now; raise Unavailable before the first reading."""
        if self._ahead is None:
            raise Unavailable("The database's time is not known yet.", "Try again in a moment.")
        return self._ticks() + self._ahead

    async def read(self, connection: Connection) -> None:
        """Set this clock by the database's; what the database answers counts for the moment it was asked."""
        asked = self._ticks()
        self._ahead = await now(connection) - asked


NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


async def now(connection: Connection) -> float:
    """Return the seconds since 1970 by the database's clock."""
    return float(await connection.fetchval(NOW))
