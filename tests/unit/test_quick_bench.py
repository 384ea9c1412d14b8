"""What the quick bench says, and when it says nothing."""

import json
from dataclasses import replace

import pytest

from tests.bench.figures import ONE_PROCESS, Spread, read
from tests.bench.quick import KEPT, no_verdict, ratio, verdict

RUN = read(json.loads(KEPT.read_text(encoding="utf-8")))
HERE = {name: RUN.machine[name] for name in ("cores", "Python", "system")}


def test_a_notify_is_compared_with_the_refused_call_of_the_same_rounds() -> None:
    calls = {"notify, raw": Spread(1.0, 18.0, 40.0), "no-op, raw": Spread(1.0, 3.0, 9.0)}
    assert ratio({**RUN.modes[ONE_PROCESS].calls, **calls}) == 6.0


@pytest.mark.parametrize(("found", "says"), [(6.0, False), (6.89, False), (6.95, True)])
def test_more_than_a_seventh_worse_is_said(found: float, *, says: bool) -> None:
    assert (verdict(6.0, found) is not None) is says


def test_a_busy_machine_and_another_machine_give_no_verdict() -> None:
    assert no_verdict(RUN, HERE, 0.05) is None
    assert "no verdict" in str(no_verdict(RUN, HERE, 0.5))
    assert "another machine" in str(no_verdict(replace(RUN, machine={**RUN.machine, "cores": "64"}), HERE, 0.05))
