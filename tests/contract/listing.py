"""The contract's scenarios by their headings, and the tests that bear them. Reads files only."""

import ast
import re
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
# The contract as it was agreed, where it lies beside the project; the project's own copy of its headings is the list.
AGREED: Final = ROOT.parent / "shared" / "seeds" / "001-notify-contract.md"
HEADING: Final = re.compile(r"^#### Scenario: (.+?)\s*$", re.MULTILINE)


def headings() -> list[str]:
    """The headings in the contract's order, from scenarios.txt."""
    return (HERE / "scenarios.txt").read_text(encoding="utf-8").splitlines()


def agreed() -> list[str] | None:
    """The headings of the contract itself, None where it is not at hand."""
    return HEADING.findall(AGREED.read_text(encoding="utf-8")) if AGREED.exists() else None


def name_of(heading: str) -> str:
    """The name of the test that bears this heading."""
    return "test_" + re.sub(r"[^a-z0-9]+", "_", heading.lower()).strip("_")


def bearers() -> dict[str, str]:
    """The docstring of each test by its name; more than one of a name is an error."""
    found: dict[str, str] = {}
    for file in sorted(HERE.glob("test_contract*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
                assert node.name not in found, node.name
                found[node.name] = ast.get_docstring(node) or ""
    return found
