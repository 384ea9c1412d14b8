"""Which planted bugs a run tries."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--planted`."""
    told = "all; twelfth: a twelfth that rotates with the commit, and those in changed files; or a number of these"
    parser.addoption("--planted", default="all", help=told)
    parser.addoption("--share", default="1/1", help="which share of these, such as 2/3")
