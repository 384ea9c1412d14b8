"""Runs an attempt: what is so, then the attack, then the question whether anything got through."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from tests.attacks import asking, doors, forging, looking, oracle, people, rows
from tests.attacks.corpus import AttackClass, Attempt, Step, filled
from tests.attacks.world import Seen, World

VERBS: Final = {**asking.VERBS, **doors.VERBS, **forging.VERBS, **looking.VERBS, **people.VERBS, **rows.VERBS}
OUTRIGHT: Final = ("Traceback (most recent call last)", "Internal Server Error")


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt and why it got through; nothing if it did not."""

    attempt: Attempt
    breaches: Sequence[str]


# All classes together ask more than may wait of one butler: what an earlier one asked is not waited for any more. What
# a daemon has in hand is left to it: nobody waits for another here.
OVER: Final = """
UPDATE shared.pending_actions SET expires_at = clock_timestamp()
WHERE id IN (SELECT id FROM shared.pending_actions WHERE status = 'pending' FOR UPDATE SKIP LOCKED)
"""


async def run_class(world: World, attack: AttackClass, every: int = 1, most: int = 1000) -> list[Tried]:
    """Every n-th attempt of a class and its controls, until so many got through.

    What reached somebody later than its attempt is laid to the last one.
    """
    chosen = [*attack.controls, *attack.attempts[::every]]
    before = len(await world.fleet.outside.journal())
    for statement in (OVER, *attack.prepare):
        await world.fleet.sql(statement)
    try:
        tried, left = [], []
        for attempt in chosen:
            breaches, known = await _try(world, attack, attempt)
            tried.append(Tried(attempt, breaches))
            left.append(known)
            if sum(bool(one.breaches) for one in tried) >= most:
                break
        late = [await _come_of_it(world, attack, one.attempt, known) for one, known in zip(tried, left, strict=True)]
        tried = [Tried(one.attempt, [*one.breaches, *more]) for one, more in zip(tried, late, strict=True)]
        sent = [address for known in left for address in cast("Sequence[object]", known["sent"])]
        entries = await world.fleet.outside.journal(before)
        over = list(oracle.leaked(entries, frozenset(world.ours), {"sent": sent}))
        if over and not any(one.breaches for one in tried):
            tried[-1] = Tried(tried[-1].attempt, [f"later on {what}" for what in over])
        return tried
    finally:
        for statement in attack.restore:
            await world.fleet.sql(statement)


async def _try(world: World, attack: AttackClass, attempt: Attempt) -> tuple[list[str], dict[str, object]]:
    """One attempt: its breaches, and its variables as they were at its end."""
    world.begin(attempt.values)
    allows = _allowed(world, attack, attempt)
    journal = len(await world.fleet.outside.journal())
    breaches = [f"given: {what}" for step in attempt.given for what in await _step(world, attack, step)]
    before = await oracle.held(world.fleet)
    for step in attempt.steps:
        breaches += await _step(world, attack, step)
    if not attempt.later:
        late = await oracle.quiet(world.fleet, waits=bool(allows.get("waits")))
        breaches += [late] if late else []
    breaches += oracle.moved(before, await oracle.held(world.fleet), allows)
    entries = await world.fleet.outside.journal(journal)
    breaches += oracle.leaked(entries, frozenset(world.ours), allows)
    if "audited" in allows and not {str(allows["audited"])} <= await oracle.events_since(world.fleet, before):
        breaches.append(f"nothing in the audit says {allows['audited']}")
    return breaches, {**world.known, "sent": allows.get("sent", [])}


async def _come_of_it(world: World, attack: AttackClass, attempt: Attempt, known: dict[str, object]) -> list[str]:
    if not attempt.later:
        return []
    world.known = known
    late = await oracle.quiet(world.fleet)
    return [*([late] if late else []), *[what for step in attempt.later for what in await _step(world, attack, step)]]


def _allowed(world: World, attack: AttackClass, attempt: Attempt) -> Mapping[str, object]:
    """What the attempt allows, and what the outcomes that it expects allow."""
    allows: dict[str, object] = {}
    for step in (*attempt.given, *attempt.steps):
        outcome = filled(step["expect"], world.known) if isinstance(step.get("expect"), str) else None
        if outcome is not None:
            allows |= cast("Mapping[str, object]", attack.outcomes[str(outcome)].get("allows", {}))
    return cast("Mapping[str, object]", filled({**allows, **attempt.allows}, world.known))


async def _step(world: World, attack: AttackClass, step: Step) -> list[str]:
    """What is wrong with what it answered."""
    try:
        given = {key: value for key, value in step.items() if key not in {"do", "expect", "keep"}}
        arguments = cast("Mapping[str, object]", filled(given, world.known))
        answered = await VERBS[str(step["do"])](world, arguments)
    except (AssertionError, TimeoutError, KeyError) as failed:
        return [f"{step['do']}: {type(failed).__name__} {str(failed)[:300]}"]
    for name, place in cast("Mapping[str, str]", step.get("keep", {})).items():
        world.known[name] = at(answered, str(filled(place, world.known)))
    expected = filled(step.get("expect", {}), world.known)
    if isinstance(expected, str):
        expected = filled(attack.outcomes[expected].get("expect", {}), world.known)
    wrong = [*unlike(answered, cast("Mapping[str, object]", expected)), *outright(world, answered, expected)]
    return [f"{step['do']}: {what}" for what in wrong]


def at(answered: Seen, place: str) -> object:
    """What stands at a dotted place, or None."""
    found: object = answered
    for name in place.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def unlike(answered: Seen, expected: Mapping[str, object]) -> Iterator[str]:
    """Where the answer is not as expected."""
    text = str(answered.get("text", ""))
    for place, wanted in expected.items():
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if place == "says":
            yield from (f"does not say {piece!r}: {text[:300]}" for piece in allowed if str(piece) not in text)
        elif place == "never":
            yield from (f"says {piece!r}" for piece in allowed if piece and str(piece) in text)
        elif wanted is False and not at(answered, place):
            continue
        elif at(answered, place) not in allowed:
            yield f"{place} is {at(answered, place)!r} and not {wanted!r}; {text[:300]}"


def outright(world: World, answered: Seen, expected: object) -> Iterator[str]:
    """What no answer may be or hold, whatever was expected of it."""
    text, status = str(answered.get("text", "")), answered.get("status")
    if isinstance(status, int) and status >= 500 and not (isinstance(expected, Mapping) and "status" in expected):
        yield f"answered {status}"
    yield from (f"holds {piece!r}" for piece in OUTRIGHT if piece in text)
    yield from ("holds a secret" for secret in world.secrets if secret in text)
