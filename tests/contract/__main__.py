"""Hold the product to the contract: `python -m tests.contract [one,each,two]`, the shapes of the fleet to try.

Runs each scenario's test in each shape, lists the scenarios by their headings, and prints `29/29` as its last line.
Ends with 1 if a scenario failed or did not run, or if the list is not the contract's.
"""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.contract.listing import AGREED, HERE, ROOT, agreed, headings, name_of

SHAPES: Final = "one,each"
SECONDS: Final = 900
REPORT: Final = ROOT / "build" / "reports" / "contract.xml"


def run(shapes: str) -> int:
    """Run the tests; pytest's exit code."""
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--modes={shapes}", f"--junitxml={REPORT}", str(HERE)]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=SECONDS).returncode


def outcomes(report: Path) -> dict[str, dict[str, bool]]:
    """By test and by shape, whether it passed; a skipped one did not."""
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    if report.exists():
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 our own pytest wrote it
            name, _, shape = str(case.get("name")).removesuffix("]").partition("[")
            found[name][shape] = len(case) == 0 or {part.tag for part in case} <= {"properties", "system-out"}
    return found


def held(found: Mapping[str, Mapping[str, bool]], shapes: Sequence[str]) -> list[tuple[str, str]]:
    """Each heading with `ok`, or with the shapes in which it failed or did not run."""
    told = []
    for heading in headings():
        by_shape = found.get(name_of(heading), {})
        broken = [shape for shape in shapes if not by_shape.get(shape, False)]
        told.append((heading, f"failed ({', '.join(broken)})" if broken else "ok"))
    return told


def same_list() -> bool:
    """Whether the list is the contract's; said in one line either way."""
    written, where = agreed(), f"../{AGREED.relative_to(ROOT.parent)}"
    if written is None:
        print(f"{where} is not there; the list is the project's own.")
        return True
    if written == headings():
        print(f"The list is that of {where}.")
        return True
    print(f"The list is not that of {where}: {sorted(set(written) ^ set(headings())) or 'the order differs'}.")
    return False


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    shapes = arguments[0] if arguments else SHAPES
    ended = run(shapes)
    table = held(outcomes(REPORT), shapes.split(","))
    print()
    for heading, how in table:
        print(f"{how:<8} {heading}")
    same = same_list()
    good = sum(how == "ok" for _, how in table)
    if ended != 0 and good == len(table):
        print("Something besides the scenarios failed; see above.")
    print(f"{good}/{len(table)}")
    return 0 if same and ended == 0 and good == len(table) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
