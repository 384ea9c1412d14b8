"""Which planted bugs a run tries: all, or ten that rotate with the commit."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--planted`."""
    parser.addoption("--planted", default="all", help="all, or a number of bugs that rotate with the commit")
