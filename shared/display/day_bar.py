"""The bar of a day: how much of each half hour somebody was at the computer, in block characters or for a picture.

It is kept as a value of the timekeeper's state, which its agent may write too: what is read is not trusted. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

KEY: Final = "manictime/day"
HALF_HOUR: Final = 1800
HALF_HOURS: Final = 48
BLOCKS: Final = "·▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class DayBar:
    """One day, and the seconds of each of its half hours that were active."""

    day: date
    seconds: tuple[int, ...]

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the first full hour that counts and the one behind the last, as hours of the day."""
        found = [number for number, one in enumerate(self.seconds) if one]
        return (found[0] // 2, found[-1] // 2 + 1) if found else (0, 0)

    @property
    def text(self) -> str:
        """Return it as block characters between its hours; empty for a day without activity."""
        first, last = self.bounds
        blocks = (BLOCKS[-(-one * (len(BLOCKS) - 1) // HALF_HOUR)] for one in self.seconds[first * 2 : last * 2])
        return f"{first:02d} {''.join(blocks)} {last:02d}" if last else ""

    @property
    def said(self) -> str:
        """Return the day as a person says it."""
        return long_date(self.day)

    @property
    def spent(self) -> str:
        """Return how long all of it was, as a person says it."""
        return spent(self.minutes)

    @property
    def minutes(self) -> int:
        """Return how long all of it was."""
        return round(sum(self.seconds) / 60)

    @property
    def kept(self) -> dict[str, object]:
        """Return it as it is kept."""
        return {"date": self.day.isoformat(), "seconds": list(self.seconds)}


def day_bar(value: object) -> DayBar | None:
    """Return the bar that was kept as this value; None if it is none."""
    match value:
        case {"date": str(day), "seconds": [*some]} if len(some) == HALF_HOURS and _are_seconds(some):
            try:
                return DayBar(date.fromisoformat(day), tuple(int(str(one)) for one in some))
            except ValueError:
                return None
    return None


def _are_seconds(some: Sequence[object]) -> bool:
    return all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= HALF_HOUR for one in some)


def spent(minutes: float) -> str:
    """Return minutes as a person says them: `8 h 2 min`."""
    hours, rest = divmod(round(minutes), 60)
    return " ".join(
        part for part in (f"{hours} h" if hours else "", f"{rest} min" if rest or not hours else "") if part
    )


def long_date(day: date) -> str:
    """Return a day as a person says it: `Monday 20 January 2025`."""
    return f"{day:%A} {day.day} {day:%B %Y}"
