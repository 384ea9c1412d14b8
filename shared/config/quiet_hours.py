"""The owner's quiet hours: from when to when, each day, nothing that can wait makes a sound. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

_TIME: Final = "([01][0-9]|2[0-3]):([0-5][0-9])"
_FORM: Final = re.compile(rf"{_TIME}-{_TIME}(?: ([A-Za-z0-9_+/-]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A stretch of each day, which may go past midnight, by the clocks of one place."""

    begin: time
    end: time
    zone: ZoneInfo

    def left(self, now: datetime) -> timedelta:
        """Return how long they still last at this moment; nothing outside of them."""
        here = now.astimezone(self.zone)
        at = here.time().replace(tzinfo=None)
        inside = self.begin <= at < self.end if self.begin < self.end else at >= self.begin or at < self.end
        if not inside:
            return timedelta(0)
        day = here.date() if at < self.end else here.date() + timedelta(days=1)
        # Two moments of one zone differ by their wall clocks; what is left is counted in time that passes.
        return datetime.combine(day, self.end, self.zone).astimezone(UTC) - now.astimezone(UTC)

    def __str__(self) -> str:
        """Return them as they are set."""
        return f"{self.begin:%H:%M}-{self.end:%H:%M} {self.zone.key}"


def quiet_hours(text: str) -> QuietHours:
    """Read `22:00-07:00 Europe/Berlin`; without a zone, UTC. Raises ValueError that completes "... is not"."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] + match[2] == match[3] + match[4]:
        raise ValueError("two times of a day and a zone, such as 22:00-07:00 Europe/Berlin")
    try:
        zone = ZoneInfo(match[5] or "UTC")
    except (ValueError, OSError, KeyError):
        raise ValueError("in a known time zone, such as Europe/Berlin") from None
    return QuietHours(time(int(match[1]), int(match[2])), time(int(match[3]), int(match[4])), zone)
