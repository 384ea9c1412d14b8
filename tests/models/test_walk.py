"""Random walks: no invariant breaks, every state and every change is met, and whatever breaks replays from its seed."""

import re
from collections.abc import Callable
from dataclasses import replace
from time import process_time
from typing import get_args

import pytest

from shared.model import LEGAL, Status
from tests.models.states import Delivery, Event, Stepped, step
from tests.models.walk import PER_WORLD, one_world, walk
from tests.models.world import Broken


def test_a_short_walk_meets_everything_and_breaks_nothing() -> None:
    walked = walk(seed=4009, steps=30_000)
    assert walked.reached == set(get_args(Status))
    assert walked.pairs == LEGAL


@pytest.mark.whole
def test_a_million_steps_break_nothing_within_a_minute() -> None:
    started = process_time()
    walked = walk(seed=1_000_000, steps=1_000_000)
    assert process_time() - started <= 60
    assert walked.pairs == LEGAL


def requeues(delivery: Delivery, event: Event) -> Stepped | None:
    """A reaper that tries again what may have left."""
    stepped = step(delivery, event)
    if stepped is None or event.what != "lease_lost":
        return stepped
    parts = tuple(replace(part, status="queued") if part.status == "uncertain" else part for part in delivery.parts)
    return Stepped(replace(stepped.delivery, status="queued", parts=parts))


def forgets(delivery: Delivery, event: Event) -> Stepped | None:
    """A receipt that counts only while its delivery is held."""
    return None if event.what == "receipt" and delivery.status != "sending" else step(delivery, event)


def repeats(delivery: Delivery, event: Event) -> Stepped | None:
    """A machine that repeats to the owner for ever."""
    return step(replace(delivery, repeats=0) if event.what == "repeat_due" else delivery, event)


def hurries(delivery: Delivery, event: Event) -> Stepped | None:
    """A machine that tries again what nobody answered for."""
    return step(delivery, replace(event, what="not_sent") if event.what == "unknown" else event)


def hears_twice(delivery: Delivery, event: Event) -> Stepped | None:
    """The owner's word counts for whatever is uncertain when it comes."""
    return step(delivery, replace(event, attempt=delivery.attempt) if event.what == "again" else event)


def silent(delivery: Delivery, event: Event) -> Stepped | None:
    """An uncertain delivery of which nobody is told."""
    stepped = step(delivery, event)
    return stepped and replace(stepped, effect=None) if event.what == "unknown" else stepped


@pytest.mark.parametrize(
    ("wrong", "seed", "said"),
    [
        (requeues, 1, "a lease lost past the marker is not uncertain"),
        (forgets, 1, "a receipt is thrown away"),
        (repeats, 1, "a machine repeats more than once"),
        (hurries, 3, "what may have left is begun anew"),
        (hears_twice, 1, "what has arrived may be sent again"),
        (silent, 1, "the owner is not told of an uncertain delivery"),
    ],
)
def test_a_wrong_step_breaks_and_its_seed_replays(
    wrong: Callable[[Delivery, Event], Stepped | None], seed: int, said: str
) -> None:
    with pytest.raises(Broken, match=said) as first:
        walk(seed, 20_000, wrong)
    replay = re.search(r"tests\.models\.walk (\d+) (\d+)$", str(first.value))
    assert replay is not None
    with pytest.raises(Broken) as second:
        one_world(int(replay[1]), int(replay[2]), wrong)
    assert str(second.value) == str(first.value)


def test_a_recorded_seed_is_the_same_walk_everywhere() -> None:
    world = one_world(7, PER_WORLD)
    assert round(world.clock, 3) == 6223.698
    assert len(world.pairs) == 32
    assert [case.delivery.status for case in world.cases] == ["cancelled", "parked", "uncertain", "uncertain"]
