"""The intervals fit each other, and those with which something would be sent twice cannot even be made."""

from dataclasses import asdict, fields
from datetime import timedelta

import pytest

from butlers.cli.startup import LOOKS_SECONDS
from butlers.daemon.host import DRAIN_SECONDS, KEEP_ALIVE_SECONDS
from shared.config.settings import Settings
from shared.config.timings import STANDARD, Timings
from shared.db.pool import SESSION
from shared.rpc import KEPT_SECONDS


def seconds(of: timedelta) -> float:
    return of.total_seconds()


def test_they_fit_each_other_and_what_stands_elsewhere() -> None:
    t = STANDARD
    assert 3 * t.renew < seconds(t.lease)
    assert t.margin < seconds(t.lease) - t.renew
    # A unit of work that stands still ends before the lease of what it was about.
    assert int(SESSION["idle_in_transaction_session_timeout"]) / 1000 < seconds(t.lease)
    # A live call sees one lease run out, and tells of it.
    assert seconds(t.lease) < t.messenger_wait < t.switchboard_wait < t.butler_wait
    assert t.hurried < min(DRAIN_SECONDS.values()) <= t.drain
    # What the live call brings is not swept at the same moment, but long before the call gives up.
    assert seconds(t.live_call) < t.messenger_wait
    assert t.outcome_again < t.messenger_wait < t.status_wait
    assert t.withdraw_again < t.withdraw_wait
    # A late receipt has time to come, and a holder whose lease is over has written what it knows.
    assert t.lease < t.owner_repeat
    assert t.poll < seconds(t.poll_lease) < t.messenger_wait
    # After a crash mails are read again before anybody wonders.
    assert seconds(t.mailbox_lease) < t.mailbox_look < 2 * 60
    assert t.probe < t.probe_login < t.failures_within
    assert t.digest_gathers < t.card_elsewhere < t.burst_window
    assert t.braked_again < t.turn_held < t.longest_wait
    # Five heartbeats may be lost; then nothing is sent there, then it is forgotten.
    assert 5 * t.heartbeat < seconds(t.instance_counts) < seconds(t.gone_forgotten)
    assert t.gone_forgotten < t.instance_forgotten
    assert t.directory < t.heartbeat
    # A connection lies idle here for a shorter time than there, so that none is used that the other end just closes.
    assert KEPT_SECONDS < KEEP_ALIVE_SECONDS
    assert t.hurried > LOOKS_SECONDS


@pytest.mark.parametrize(
    "wrong",
    [
        {"renew": 2.4},
        {"margin": 5.0},
        {"lease": timedelta(seconds=5)},
        {"poll": 8.0},
        {"mailbox_renew": 4.1},
        {"messenger_wait": 12.0},
        {"switchboard_wait": 14.0},
    ],
    ids=" ".join,
)
def test_what_would_do_harm_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="These timings do not fit: "):
        Timings(**{**asdict(STANDARD), **wrong})


def test_a_tenth_of_all_of_them_fits_too() -> None:
    tenth = {field.name: getattr(STANDARD, field.name) / 10 for field in fields(Timings)}
    assert Timings(**tenth).lease == timedelta(seconds=0.7)


def test_no_variable_changes_them() -> None:
    assert Settings.from_env({"BUTLERS_TIMINGS": "1", "BUTLERS_LEASE": "1"}).timings is STANDARD
