"""How long recoveries took, alone and with all other blows."""

from tests.chaos.recovery import undisturbed, waits


def test_a_blow_that_another_one_followed_before_the_next_receipt_is_not_undisturbed() -> None:
    blows, sent = [0.0, 1.0, 5.0, 9.0], [2.0, 6.5]
    assert waits(blows, sent) == {2.0: 1, 1.0: 1, 1.5: 1}
    assert undisturbed(blows, sent) == {1.0: 1, 1.5: 1}


def test_of_no_blow_there_is_nothing_to_tell() -> None:
    assert not undisturbed([], [1.0])
