"""A seeded random walk through the world; `python -m tests.models.walk SEED [STEPS]` replays one."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.models.states import What, step
from tests.models.world import KINDS, Broken, Stepping, World

# So many steps, then everything comes to its end and a new world begins.
PER_WORLD: Final = 2_000
CASES: Final = 4


@dataclass(slots=True)
class Walked:
    """Which states and changes were seen, in how many steps."""

    steps: int = 0
    pairs: set[tuple[str, str]] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)


def walk(seed: int, steps: int, stepping: Stepping = step) -> Walked:
    """Walk so many events that change something; raises Broken with the command that replays it."""
    seen = Walked()
    while seen.steps < steps:
        many = min(PER_WORLD, steps - seen.steps)
        world = one_world(seed, many, stepping)
        seen.steps += many
        seen.pairs |= world.pairs
        seen.reached |= world.reached
        seed += 1
    return seen


def one_world(seed: int, steps: int, stepping: Stepping = step) -> World:
    """One world with its end."""
    random, world = Random(seed), World(stepping=stepping)
    try:
        while world.done < steps:
            act(world, random)
        world.drain()
    except Broken as broken:
        raise Broken(f"{broken}: python -m tests.models.walk {seed} {steps}") from None
    return world


def act(world: World, random: Random) -> None:
    """One action. What has ended for long makes room for something new, so that all stages stay busy."""
    pick = random.random
    if len(world.cases) < CASES and (not world.cases or pick() < 0.05):
        world.admit(KINDS[int(pick() * len(KINDS))], 1 + int(pick() * 2.3))
        return
    w, i, luck = int(pick() * len(world.workers)), int(pick() * len(world.cases)), pick()
    held = world.workers[w]
    if held is not None and pick() < 0.5:
        i = held.i  # what happens to something that is on its way is the more telling
    if luck < 0.65:
        work(world, random, w, i)
    elif luck < 0.85:
        speak(world, random, i)
    elif luck < 0.88:
        replace_ended(world, random, i)
    elif luck < 0.98:
        world.tick(pick() * (3 if pick() < 0.95 else 60))
        world.reap(i)
    else:
        world.kill(w)


def work(world: World, random: Random, w: int, i: int) -> None:
    """The next thing that worker does."""
    held, luck = world.workers[w], random.random()
    if held is None:
        world.claim(w, i)
    elif luck < 0.1:
        world.renew(w)
    elif held.stage == "claimed":
        world.prepare(w, "ok" if luck < 0.85 else "failed" if luck < 0.95 else "rejected")
    elif held.stage == "prepared":
        verdicts: tuple[What, ...] = ("refused", "expired", "cancelled", "delayed", "moved", "duplicate_waits")
        world.mark(w, "marked" if luck < 0.85 else verdicts[int((luck - 0.85) / 0.15 * 6)])
    elif held.stage == "marked":
        world.write(w, ("receipt", "receipt", "lost", "rejected", "not_sent", "unknown")[int(luck * 6)])
    elif luck < 0.2:
        world.answer(w)


def speak(world: World, random: Random, i: int) -> None:
    """What the owner, a butler, time or evidence does to one delivery."""
    pick = int(random.random() * 4)
    words: tuple[Callable[[], None], ...] = (
        lambda: world.owner_says(i, ("arrived", "again", "again", "leave")[pick], late=False),
        lambda: world.owner_says(i, "again", late=True),
        lambda: world.repeat_due(i),
        lambda: world.decide(i, yes=pick > 0),
        lambda: world.revoke(i),
        lambda: world.deadline(i),
        lambda: world.happen(i, ("bounced", "withdrawn", "reopened", "started")[pick]),
        lambda: world.happen(i, "retry" if pick else "restored"),
    )
    words[int(random.random() * len(words))]()


def replace_ended(world: World, random: Random, i: int) -> None:
    """Forget one that ended and that nobody holds, and admit another in its place."""
    if world.cases[i].delivery.status in {"queued", "claimed", "sending", "uncertain", "parked"}:
        return
    if any(held is not None and held.i == i for held in world.workers):
        return
    world.admit(KINDS[int(random.random() * len(KINDS))], 1 + int(random.random() * 2.3))
    world.cases[i] = world.cases.pop()


if __name__ == "__main__":
    try:
        print(walk(int(sys.argv[1]), int((sys.argv[2:] or [str(PER_WORLD)])[0])).steps, "steps, nothing broke")
    except Broken as found:
        sys.exit(str(found))
