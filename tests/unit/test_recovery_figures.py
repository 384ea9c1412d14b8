"""How long recoveries took, alone and with all other blows."""

from tests.chaos.recovery import recoveries, undisturbed, waits


def test_a_blow_that_another_one_followed_before_the_next_receipt_is_not_undisturbed() -> None:
    blows, sent = [0.0, 1.0, 5.0, 9.0], [2.0, 6.5]
    assert waits(blows, sent) == {2.0: 1, 1.0: 1, 1.5: 1}
    assert undisturbed(blows, sent) == {1.0: 1, 1.5: 1}


def test_of_no_blow_there_is_nothing_to_tell() -> None:
    assert not undisturbed([], [1.0])


def test_from_when_on_all_deaths_are_aimed_none_is_counted() -> None:
    figures = recoveries([1.0, 7.0, 8.0], [4.0], [2.0, 4.5, 9.0], until=8.0)
    assert figures["waits_after_kill"] == {"1.0": 1}
    assert figures["waits_after_restart"] == {"0.5": 1}
    assert figures["recovery_undisturbed"] == {"median": 1.0, "p99": 1.0, "most": 1.0}
