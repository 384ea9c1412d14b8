"""Ten thousand SIGKILLs, two hundred restarts of PostgreSQL, a hundred thousand calls: ten campaigns, one a seed.

What is done is kept in build/long/, by the content it was done to: a run that was ended goes on where it stood, and
a change of the docs voids nothing. A part that broke is kept like any other, with what was wrong, and is not run
again. One part alone: `pytest tests/long -k "part and 7"`.
"""

import json

import pytest

from tests.chaos.campaign import Plan, run
from tests.long.state import FIGURES, PARTS, counts, hits, keep, kept, product, total
from tests.rig.bench import Bench
from tests.rig.failpoints import FAILPOINTS

KILLS, RESTARTS, CALLS = 10_000, 200, 100_000
SHARES = {"kills": KILLS // PARTS, "restarts": RESTARTS // PARTS, "calls": CALLS // PARTS}
HITS = 25
MOST_SECONDS = 3_000
MOST_MOPPING = 600


@pytest.mark.parametrize("part", range(PARTS))
async def test_part(bench: Bench, part: int) -> None:
    before = kept().get(str(part))
    if before is not None:
        assert not before["wrong"], f"It broke when it was run: {before['wrong']}"
        return
    tried = product()
    plan = Plan(
        seed=1_000 + part,
        kills=SHARES["kills"],
        calls=SHARES["calls"],
        restarts=SHARES["restarts"],
        hits=-(-HITS // PARTS),
        seconds=MOST_SECONDS,
        mopping=MOST_MOPPING,
        messengers=2 + part % 3,
        # About ten calls to a kill: where too many die at once, nobody is there to take a call.
        mean_pause=1.0,
    )
    done = await run(bench, plan)
    short = {name: done.figures[name] for name, share in SHARES.items() if int(str(done.figures[name])) < share}
    unchanged = product() == tried
    if unchanged and (done.wrong or not short):
        keep(part, {**done.figures, "wrong": done.wrong})
    assert not done.wrong, "\n".join([*done.wrong, json.dumps(done.figures, indent=1)])
    assert not short, f"The time was over before its share {SHARES} was done: {short}. Run this part again."
    assert unchanged, "The code was changed under the campaign. Run this part again."


def test_all_parts_together_are_what_was_promised() -> None:
    parts = kept()
    if len(parts) < PARTS:
        pytest.fail(f"{len(parts)} of {PARTS} parts are done; run the others first")
    whole = {"product": product(), **total(list(parts.values()))}
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(whole, indent=1) + "\n")
    assert whole["broken_parts"] == 0, {number: figures["wrong"] for number, figures in parts.items()}
    done = {name: int(str(whole[name])) for name in ("kills", "restarts", "calls")}
    assert done["kills"] >= KILLS
    assert done["restarts"] >= RESTARTS
    assert done["calls"] >= CALLS
    rarely = {name: count for name, count in hits(whole, [one.name for one in FAILPOINTS]).items() if count < HITS}
    assert not rarely, rarely
    # Every state in which a Messenger can have a delivery of each class when it dies.
    states = {f"{kind} {state}" for kind in ("owner", "third_party", "card") for state in ("claimed", "sending")}
    in_hand = counts(whole, "in_hand_of_the_dead")
    assert all(in_hand.get(state, 0) >= HITS for state in states), in_hand
