"""The small memory of answers: it never grows past its bound, and forgets what has ended."""

from shared.remembered import _MOST, Remembered


def test_it_holds_so_many_and_the_least_lately_used_goes_first() -> None:
    kept: Remembered[int, str] = Remembered()
    for n in range(3 * _MOST):
        kept.put(n, "x", 10)
        kept.get(0, 0)
    assert len(kept._entries) == _MOST
    assert kept.get(0, 0) == "x"
    assert kept.get(1, 0) is None


def test_what_has_ended_is_not_remembered() -> None:
    kept: Remembered[int, str] = Remembered()
    kept.put(1, "x", 10)
    assert kept.get(1, 9) == "x"
    assert kept.get(1, 10) is None
    assert not kept._entries
