"""messenger/retry: the pause grows, is capped, is spread, and a provider's word is honoured within bounds."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messenger.retry import CAP_SECONDS, RETRY_AFTER_CAP_SECONDS, asked_for, backoff, until_written, wait_after


@pytest.mark.parametrize(
    ("attempt", "jitter", "seconds"),
    [
        (1, 0.0, 0.5),
        (1, 0.5, 0.75),
        (2, 0.0, 1.0),
        (5, 0.0, 8.0),
        (10, 0.0, 256.0),
        (11, 0.0, 450.0),
        (10_000, 0.0, 450.0),
        (0, 0.0, 0.5),
    ],
)
def test_backoff_doubles_up_to_fifteen_minutes(attempt: int, jitter: float, seconds: float) -> None:
    assert backoff(attempt, jitter) == seconds


@given(st.integers(min_value=1, max_value=10_000), st.floats(min_value=0, max_value=1, exclude_max=True))
def test_backoff_is_never_zero_never_above_the_cap_and_never_shrinks(attempt: int, jitter: float) -> None:
    wait = backoff(attempt, jitter)
    assert 0.5 <= wait <= CAP_SECONDS
    assert backoff(attempt + 1, jitter) >= wait


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, 0.5),
        (30.0, 30.0),
        (0.0, 0.5),
        (-5.0, 0.5),
        (1e12, RETRY_AFTER_CAP_SECONDS),
        (float("inf"), RETRY_AFTER_CAP_SECONDS),
        (float("nan"), 0.5),
    ],
)
def test_retry_after_is_honoured_up_to_an_hour(retry_after: float | None, seconds: float) -> None:
    assert asked_for(retry_after) == seconds
    assert wait_after(1, 0.0, retry_after) == seconds


def test_retry_after_never_shortens_the_backoff() -> None:
    assert wait_after(11, 0.0, 3.0) == 450


def test_what_only_this_process_knows_is_written_again_and_again_without_end() -> None:
    waits = list(islice(until_written(), 10_000))
    assert len(waits) == 10_000
    assert (waits[0], max(waits), waits[-1], waits == sorted(waits)) == (0.1, 10.0, 10.0, True)
