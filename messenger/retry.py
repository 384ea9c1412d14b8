"""How long to wait before what is proved not sent is tried again, in seconds. Pure."""

import math
from collections.abc import Iterator

FIRST_SECONDS = 1.0
CAP_SECONDS = 15 * 60.0
RETRY_AFTER_CAP_SECONDS = 60 * 60.0
WRITE_CAP_SECONDS = 10.0


def backoff(attempt: int, jitter: float) -> float:
    """Return the seconds to wait after the given attempt (1 = the first) failed.

    Equal jitter: half of a step that doubles from 1 s up to 15 min, plus that half times `jitter` in [0, 1), so that
    many deliveries that failed together do not come back together and none comes back at once.
    """
    doublings = min(max(attempt, 1) - 1, 20)
    step = min(CAP_SECONDS, FIRST_SECONDS * 2.0**doublings)
    return step / 2 * (1 + jitter)


def until_written() -> Iterator[float]:
    """Yield the seconds between two tries to write down what only this process knows: without end, ten at most."""
    wait = 0.1
    while True:
        yield wait
        wait = min(2 * wait, WRITE_CAP_SECONDS)


def asked_for(retry_after: float | None) -> float:
    """Return the seconds that all must wait whom a provider's `retry_after` concerns.

    These are as many as it says, an hour at most. Where it says less than a first failure waits, or nothing that is a
    number of seconds, as long as that. How often one message failed before is no concern of the others.
    """
    known = retry_after is not None and not math.isnan(retry_after)
    return max(backoff(1, 0.0), min(retry_after or 0.0, RETRY_AFTER_CAP_SECONDS) if known else 0.0)


def wait_after(attempt: int, jitter: float, retry_after: float | None) -> float:
    """Return the seconds until the next attempt; what a provider asks for never shortens the backoff."""
    return max(backoff(attempt, jitter), asked_for(retry_after))
