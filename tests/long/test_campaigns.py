"""Ten thousand SIGKILLs, two hundred restarts of PostgreSQL, a hundred thousand calls: forty campaigns, one a seed.

What is done is kept in build/long/, by commit: a run that was ended goes on where it stood. One part alone:
`pytest tests/long -k "part and 7"`.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.chaos.campaign import Plan, run
from tests.chaos.ledger import FIGURES
from tests.rig.bench import Bench
from tests.rig.failpoints import FAILPOINTS

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / "build" / "long"
PARTS = 40
KILLS, RESTARTS, CALLS = 10_000, 200, 100_000
HITS = 25
MOST_SECONDS = 3_000
ADDED = (
    "kills",
    "restarts",
    "told",
    "told_again",
    "messages",
    "third_party",
    "uncertain",
    "lost_leases",
    "lost_leases_unsent",
)


def commit() -> str:
    """The commit that is checked."""
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "none"


def kept() -> dict[str, Mapping[str, object]]:
    """The parts of this commit that are done."""
    path = STATE / f"{commit()}.json"
    found: dict[str, Mapping[str, object]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def keep(part: int, figures: Mapping[str, object]) -> None:
    """Note a part that is done; written beside and moved, so that being ended in between loses nothing."""
    STATE.mkdir(parents=True, exist_ok=True)
    path = STATE / f"{commit()}.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**kept(), str(part): figures}, indent=1) + "\n")
    new.replace(path)


async def test_every_failpoint_and_five_hundred_kills(bench: Bench) -> None:
    plan = Plan(seed=1, kills=500, seconds=900, restarts=5, every_failpoint=True)
    done = await run(bench, plan)
    assert not done.verdict.broken, "\n".join(done.verdict.broken)
    assert not done.strange, done.strange
    assert done.figures["left_open"] == 0, json.dumps(done.figures, indent=1)
    assert done.figures["failpoints_missing"] == [], done.figures["failpoints_missing"]


@pytest.mark.parametrize("part", range(PARTS))
async def test_part(bench: Bench, part: int) -> None:
    if str(part) in kept():
        return  # it was judged when it was run
    plan = Plan(
        seed=1_000 + part,
        kills=KILLS // PARTS,
        calls=CALLS // PARTS,
        restarts=RESTARTS // PARTS,
        seconds=MOST_SECONDS,
        messengers=2 + part % 3,
    )
    done = await run(bench, plan)
    told = json.dumps(done.figures, indent=1)
    assert not done.verdict.broken, "\n".join([*done.verdict.broken, told])
    assert not done.strange, done.strange
    assert done.figures["left_open"] == 0, told
    keep(part, done.figures)


def test_all_parts_together_are_what_was_promised() -> None:
    parts = kept()
    if len(parts) < PARTS:
        pytest.fail(f"{len(parts)} of {PARTS} parts are done; run the others first")
    whole = total(list(parts.values()))
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / "campaign-long.json").write_text(json.dumps(whole, indent=1) + "\n")
    assert whole["kills"] >= KILLS
    assert whole["restarts"] >= RESTARTS
    assert whole["told"] + whole["told_again"] >= CALLS
    rarely = {one.name: whole[one.name] for one in FAILPOINTS if whole[one.name] < HITS}
    assert not rarely, rarely


def total(parts: Sequence[Mapping[str, object]]) -> Counter[str]:
    """The sums over all parts, failpoints by their names."""
    whole: Counter[str] = Counter()
    for figures in parts:
        for name in ADDED:
            value = figures.get(name, 0)
            whole[name] += value if isinstance(value, int) else 0
        for group in ("failpoints", "stops"):
            hits = figures.get(group)
            whole.update(hits if isinstance(hits, dict) else {})
    return whole
