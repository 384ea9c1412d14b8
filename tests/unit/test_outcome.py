"""What an attempt's end makes of it, as a table over every reason and every kind of delivery."""

from datetime import timedelta
from itertools import product
from typing import get_args

import pytest

from messenger.channels.base import Reason, Receipt, SendFailed
from messenger.delivery.outcome import Ended, after

KINDS = ("owner", "third_party", "card")
REASONS = get_args(Reason)
# What a channel says about each reason: only 429, a refused login and what failed before the committing byte.
PROVED = {"provider_rejected", "unauthorized", "rate_limited", "unavailable"}


def ended(result: Receipt | SendFailed, kind: str = "third_party", *, last: bool = True, attempt: int = 1) -> Ended:
    return Ended(result, last, kind, attempt, 0.0)


def failed(reason: Reason, *, proved: bool | None = None, retry_after: float | None = None) -> SendFailed:
    return SendFailed(reason, "as it said", reason in PROVED if proved is None else proved, retry_after)


@pytest.mark.parametrize("kind", KINDS)
def test_a_receipt_of_the_last_part_is_sent_and_of_another_lets_the_next_follow(kind: str) -> None:
    last, first = (after(ended(Receipt("17", "fine"), kind, last=one)) for one in (True, False))
    assert (last.part, last.delivery, last.provider_id, last.outcome) == ("sent", "sent", "17", "sent")
    assert (first.part, first.delivery, first.provider_id) == ("sent", None, "17")


@pytest.mark.parametrize(("reason", "kind", "last"), list(product(REASONS, KINDS, (True, False))))
def test_each_reason_has_its_next_state(reason: Reason, kind: str, last: bool) -> None:  # noqa: FBT001
    then = after(ended(failed(reason), kind, last=last))
    if reason == "provider_rejected":
        expected = "failed"
    elif reason in PROVED or kind == "card":
        expected = "queued"
    else:
        expected = "uncertain"
    assert (then.part, then.delivery, then.reason, then.outcome) == (expected, expected, reason, reason)
    assert then.detail == "as it said"
    assert then.provider_id is None


@pytest.mark.parametrize("reason", ["timeout", "connection_lost", "server_error", "unreadable"])
@pytest.mark.parametrize("kind", ["owner", "third_party"])
def test_what_may_have_arrived_is_never_tried_again_by_a_machine(reason: Reason, kind: str) -> None:
    assert after(ended(failed(reason), kind)).delivery == "uncertain"


@pytest.mark.parametrize("reason", ["timeout", "connection_lost", "unreadable"])
def test_the_proof_decides_and_not_the_name_of_the_reason(reason: Reason) -> None:
    assert after(ended(failed(reason, proved=True))).delivery == "queued"
    assert after(ended(failed("unavailable", proved=False))).delivery == "uncertain"


def test_429_waits_as_long_as_the_provider_says() -> None:
    assert after(ended(failed("rate_limited", retry_after=17.0))).after == timedelta(seconds=17)
    assert after(ended(failed("rate_limited"))).after > timedelta()


def test_the_wait_grows_with_the_attempts() -> None:
    waits = [after(ended(failed("unavailable"), attempt=attempt)).after for attempt in (1, 2, 3, 4)]
    assert waits == sorted(set(waits))


def test_what_is_not_tried_again_does_not_wait() -> None:
    for reason in ("provider_rejected", "timeout"):
        assert after(ended(failed(reason))).after == timedelta()
