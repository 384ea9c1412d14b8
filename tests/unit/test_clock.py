"""shared/clock: how much has passed by the clock that says more, and whether another clock went along."""

import time

import pytest

from shared.db.clock import STEADY_SECONDS, Moment, Reading, boot, moment


@pytest.mark.parametrize(
    ("boot_", "wall", "passed"),
    [
        (3.0, 3.0, 3.0),
        # The clock that sleeps with the computer is not asked; of the two that go on each can be the one that does.
        (3600.0, 1.0, 3600.0),
        (1.0, 3600.0, 3600.0),
        # Whose time was put back does not know how long it has been.
        (1.0, -3600.0, 3600.0),
    ],
)
def test_the_clock_that_says_more_counts(boot_: float, wall: float, passed: float) -> None:
    assert Moment(100.0, 1e9).passed(Moment(100.0 + boot_, 1e9 + wall)) == passed


@pytest.mark.parametrize(("drift", "steady"), [(0, True), (STEADY_SECONDS, True), (61, False), (-61, False)])
def test_a_clock_that_was_set_did_not_go_along(drift: float, steady: bool) -> None:  # noqa: FBT001
    assert Reading(0.0, 1e9).went_along(Reading(3600.0, 1e9 + 3600 + drift)) is steady


def test_what_counts_the_sleep_too_goes_on_and_never_lies_behind_what_does_not() -> None:
    first, awake = boot(), time.monotonic()
    assert awake <= boot() + 0.001
    assert first <= boot()
    assert moment().passed(moment()) < 1
