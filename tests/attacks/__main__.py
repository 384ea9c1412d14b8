"""Try the whole corpus: `python -m tests.attacks [each|one] [CLASS ...]`.

With a process per daemon, where the walls are real, unless `one` is said.
Prints a line per class, below it each attempt that got through with what happened, and then
`46/46 classes, N attempts, 0 passed`; of a class that is a test module each test is an attempt. Unless classes are
named, each planted hole follows with what caught it, and `N/N planted holes caught`. Ends with 1 if any attempt passed,
any control failed, any class is empty or any hole lives.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from tests.attacks.campaign import opened
from tests.attacks.corpus import CLASSES, AttackClass, classes, modules
from tests.attacks.engine import Tried, run_class
from tests.attacks.world import World
from tests.planted.bugs import bugs
from tests.rig import cluster, figures
from tests.rig.bench import Bench, running
from tests.rig.forks import ROOT

PLANTED: Final = (sys.executable, "-m", "pytest", "-q", "-s", "--planted=all", "tests/planted", "-k", "hole_")
COUNTED: Final = re.compile(r"(\d+) (passed|failed|errors?)\b")
CAUGHT: Final = re.compile(r"(hole_\w+): caught by .+")


async def campaign(bench: Bench, mode: str, chosen: Sequence[AttackClass]) -> list[tuple[AttackClass, list[Tried]]]:
    """Every class on its fleet, in order, each told in one line when it is done."""
    done = []
    async with AsyncExitStack() as held:
        made: dict[str, World] = {}
        for attack in chosen:
            name = str(sorted(attack.settings.items()))
            if name not in made:
                made[name] = await held.enter_async_context(
                    opened(bench, "one" if attack.settings else mode, attack.settings)
                )
            tried = await run_class(made[name], attack)
            done.append((attack, tried))
            print(told(attack, tried), flush=True)
            for one in tried:
                for breach in one.breaches:
                    print(f"   {one.attempt.actor} {one.attempt.name}: {breach}", flush=True)
    return done


def told(attack: AttackClass, tried: Sequence[Tried]) -> str:
    """A class in one line."""
    controls = sum(bool(one.breaches) for one in tried if one.attempt.control)
    vacuous = f", {controls} controls FAILED" if controls else ""
    return f"{attack.number:>2} {attack.name:<58} {len(attack.attempts):>4} attempts, {passed(tried)} passed{vacuous}"


def passed(tried: Sequence[Tried]) -> int:
    """How many attempts got through."""
    return sum(bool(one.breaches) for one in tried if not one.attempt.control)


def played(number: int, module: Path) -> tuple[int, int]:
    """How many attempts a test module made, and how many got through; told in one line, and whole where any did."""
    ran = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-m", "", str(module)),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    counted = {word: int(number) for number, word in COUNTED.findall(ran.stdout)}
    through = counted.get("failed", 0) + counted.get("error", 0) + counted.get("errors", 0)
    through = through or int(ran.returncode != 0)
    attempts = counted.get("passed", 0) + through
    print(f"{number:>2} {module.stem.partition('_')[2]:<58} {attempts:>4} attempts, {through} passed", flush=True)
    if through:
        print(ran.stdout, flush=True)
    return attempts, through


def all_holes_caught() -> bool:
    """Try each planted hole in a copy of the tree, and tell by name what caught it, or that nothing did."""
    wanted = {name for name in bugs() if name.startswith("hole_")}
    caught = set()
    with subprocess.Popen(PLANTED, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        for line in ran.stdout:
            found = CAUGHT.search(line)
            if found:
                caught.add(found[1])
                print(f"   {found[0]}", flush=True)
    for name in sorted(wanted - caught):
        print(f"   {name}: LIVES")
    print(f"{len(wanted & caught)}/{len(wanted)} planted holes caught")
    return wanted == caught and ran.returncode == 0


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    mode = "one" if "one" in arguments else "each"
    numbers = [word for word in arguments if word.isdecimal()]
    chosen = [one for one in classes() if not numbers or str(one.number) in numbers]
    with cluster.running() as made, running(made) as bench:
        done = asyncio.run(campaign(bench, mode, chosen))
    apart = {n: played(n, module) for n, module in modules().items() if not numbers or str(n) in numbers}
    broken = sum(bool(one.breaches) for _, tried in done for one in tried) + sum(bad for _, bad in apart.values())
    there = {attack.number for attack, _ in done if attack.attempts} | {n for n, (made, _) in apart.items() if made}
    attempts = sum(len(attack.attempts) for attack, _ in done) + sum(made for made, _ in apart.values())
    through = sum(passed(tried) for _, tried in done) + sum(bad for _, bad in apart.values())
    if not numbers:
        figures.keep("attacks", {"classes": len(there), "attempts": attempts, "passed": through})
    wanted = len(numbers) or len(CLASSES)
    print(f"{len(there)}/{wanted} classes, {attempts} attempts, {through} passed", flush=True)
    caught = bool(numbers) or all_holes_caught()
    return 0 if not broken and len(there) == wanted and caught else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
