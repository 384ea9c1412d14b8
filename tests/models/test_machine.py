"""The same world under hypothesis, which seeks a short way to break it and shrinks what it finds."""

from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.models.states import What
from tests.models.world import Happening, How, Preparing, Word, World

CASES: Final = 3
WORKERS: Final = 2
W = st.integers(0, WORKERS - 1)
CASE = st.integers(0, CASES - 1)
KIND = st.sampled_from(["third_party", "owner", "card", "reaction"])
VERDICT: st.SearchStrategy[What] = st.sampled_from(
    ["marked", "marked", "marked", "parked", "refused", "expired", "cancelled", "delayed", "moved", "duplicate_waits"]
)
HOW: st.SearchStrategy[How] = st.sampled_from(["receipt", "lost", "rejected", "not_sent", "unknown"])
WORD: st.SearchStrategy[Word] = st.sampled_from(["arrived", "again", "leave"])
HAPPENING: st.SearchStrategy[Happening] = st.sampled_from(["withdrawn", "reopened", "retry", "bounced"])
IN_VAIN: st.SearchStrategy[Preparing] = st.sampled_from(["failed", "rejected"])
QUIET: Final = (HealthCheck.too_slow, HealthCheck.filter_too_much)


class Machine(RuleBasedStateMachine):
    """Three deliveries, two workers."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(WORKERS)

    @initialize(kinds=st.tuples(KIND, KIND, KIND), parts=st.tuples(*[st.integers(1, 2)] * CASES))
    def admit(self, kinds: tuple[str, ...], parts: tuple[int, ...]) -> None:
        for kind, many in zip(kinds, parts, strict=True):
            self.world.admit(kind, many)

    @rule(w=W, i=CASE)
    def claim(self, w: int, i: int) -> None:
        self.world.claim(w, i)

    @rule(w=W, verdict=VERDICT)
    def prepare_and_mark(self, w: int, verdict: What) -> None:
        self.world.prepare(w, "ok")
        self.world.mark(w, verdict)

    @rule(w=W, how=IN_VAIN)
    def prepare_in_vain(self, w: int, how: Preparing) -> None:
        self.world.prepare(w, how)

    @rule(w=W, how=HOW)
    def write(self, w: int, how: How) -> None:
        self.world.write(w, how)

    @rule(w=W)
    def answer(self, w: int) -> None:
        self.world.answer(w)

    @rule(w=W)
    def renew(self, w: int) -> None:
        self.world.renew(w)

    @rule(w=W)
    def kill(self, w: int) -> None:
        self.world.kill(w)

    @rule(seconds=st.sampled_from([0.5, 6.5, 7.0, 30.0]))
    def tick(self, seconds: float) -> None:
        self.world.tick(seconds)

    @rule(i=CASE)
    def reap(self, i: int) -> None:
        self.world.tick(7)
        self.world.reap(i)

    @precondition(lambda self: any(case.delivery.status == "uncertain" for case in self.world.cases))
    @rule(i=CASE, word=WORD, late=st.booleans())
    def owner_says(self, i: int, word: Word, late: bool) -> None:  # noqa: FBT001  # hypothesis draws it by name
        self.world.owner_says(i, word, late=late)

    @rule(i=CASE)
    def repeat_due(self, i: int) -> None:
        self.world.repeat_due(i)

    @rule(i=CASE, yes=st.booleans())
    def decide(self, i: int, yes: bool) -> None:  # noqa: FBT001  # the same
        self.world.decide(i, yes=yes)

    @rule(i=CASE)
    def revoke(self, i: int) -> None:
        self.world.revoke(i)

    @rule(i=CASE)
    def deadline(self, i: int) -> None:
        self.world.deadline(i)

    @rule(i=CASE, what=HAPPENING)
    def happen(self, i: int, what: Happening) -> None:
        self.world.happen(i, what)

    def teardown(self) -> None:
        self.world.drain()


def run(examples: int) -> None:
    how = settings(max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=QUIET)
    run_state_machine_as_test(Machine, settings=how)


def test_no_invariant_breaks() -> None:
    run(30)


@pytest.mark.whole
def test_no_invariant_breaks_in_twenty_thousand_steps() -> None:
    run(400)
