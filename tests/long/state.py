"""What the long campaign has done so far, by what it was done to, and the sum: an ended run goes on from here."""

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.chaos.recovery import in_order, recovery

ROOT: Final = Path(__file__).resolve().parents[2]
STATE: Final = ROOT / "build" / "long"
FIGURES: Final = ROOT / "build" / "figures" / "campaign-long.json"
# What a campaign runs, and what runs it: a change anywhere else says nothing about what it has found.
TRIED: Final = (
    *("butlers", "switchboard", "messenger", "shared", "migrations", "requirements.lock", "pyproject.toml"),
    *("tests/chaos", "tests/rig", "tests/long"),
)
OWN: Final = "tests/long/"
PARTS: Final = 10
Figures = Mapping[str, object]
ADDED: Final = (
    "kills",
    "kills_at_failpoints",
    "restarts",
    "told",
    "told_again",
    "calls",
    "carried",
    "gave_up",
    "turned_away",
    "acknowledged",
    "messages",
    "third_party",
    "lost",
    "twice",
    "without_authority",
    "without_receipt",
    "untrue",
    "uncertain",
    "uncertain_third_party",
    "uncertain_that_arrived",
    "lost_leases",
    "lost_leases_unsent",
    "lost_leases_unaimed",
    "lost_leases_unaimed_unsent",
    "seconds_of_blows",
    "seconds_of_mopping",
    "seconds_of_drain",
)
GROUPS: Final = ("killed", "failpoints", "stops", "in_hand_of_the_dead", "left_behind", "owner_said")
WAITS: Final = ("after_kill", "after_restart", "undisturbed")


def product() -> str:
    """A name for the content of these as they lie here, committed or not; tests among them aside, but for our own."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *TRIED]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = sorted(
        {ROOT / name for name in told.split("\0") if name and (name.startswith(OWN) or "/test_" not in name)}
    )
    whole = hashlib.sha256()
    for path in files:
        if path.is_file():
            content = path.read_bytes()
            whole.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return whole.hexdigest()[:16]


def kept() -> dict[str, Figures]:
    """The parts that are done to what lies here, by number; `wrong` says what broke in one."""
    path = STATE / f"{product()}.json"
    found: dict[str, Figures] = json.loads(path.read_text()) if path.exists() else {}
    return found


def keep(part: int, figures: Figures) -> None:
    """Note a part that is done, whole or broken; written beside and moved, so that being ended loses nothing."""
    STATE.mkdir(parents=True, exist_ok=True)
    path = STATE / f"{product()}.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**kept(), str(part): figures}, indent=1) + "\n")
    new.replace(path)


def total(parts: Sequence[Figures]) -> dict[str, object]:
    """The sum of all parts; recovery times are those of all blows together."""
    whole: dict[str, object] = {"parts": len(parts), "broken_parts": sum(bool(figures["wrong"]) for figures in parts)}
    for name in ADDED:
        whole[name] = round(sum(float(str(figures[name])) for figures in parts), 1)
        if not name.startswith("seconds"):
            whole[name] = int(float(str(whole[name])))
    for group in GROUPS:
        whole[group] = dict(sorted(_sum(parts, group).items()))
    for blow in WAITS:
        waits = Counter({float(wait): count for wait, count in _sum(parts, f"waits_{blow}").items()})
        whole[f"recovery_{blow}"] = recovery(waits)
        whole[f"waits_{blow}"] = in_order(waits)
    return whole


def hits(whole: Figures, names: Sequence[str]) -> dict[str, int]:
    """How often each of these failpoints was reached, by ending or by standing still."""
    ended, stood = counts(whole, "failpoints"), counts(whole, "stops")
    return {name: ended.get(name, 0) + stood.get(name, 0) for name in names}


def counts(whole: Figures, group: str) -> dict[str, int]:
    """A group of figures: how many of each."""
    found = whole.get(group)
    return {str(name): int(count) for name, count in found.items()} if isinstance(found, dict) else {}


def _sum(parts: Sequence[Figures], group: str) -> Counter[str]:
    whole: Counter[str] = Counter()
    for figures in parts:
        whole.update(counts(figures, group))
    return whole
