"""The page of the timekeeper shows what it really answers, and its example is a butler."""

import asyncio
from pathlib import Path

import pytest

from butlers.fleet import read
from butlers.modules.loader import load
from butlers.modules.manictime import MODULE, ManicTime
from tests.manictime.examples import DOCUMENT, MARK, examples

pytestmark = pytest.mark.asyncio
ROOT = Path(__file__).parents[2]


async def test_the_examples_are_those_of_this_code(tmp_path: Path) -> None:
    """If it fails, run `python -m tests.manictime.examples` and read what it changed."""
    document = await asyncio.to_thread(DOCUMENT.read_text, encoding="utf-8")
    assert document.partition(MARK)[2].strip() == (await examples(tmp_path)).strip()


async def test_the_example_butler_has_the_module_by_its_short_name() -> None:
    [loaded] = load(read(ROOT / "examples" / "timekeeper"))
    assert loaded.module is MODULE
    assert loaded.config == ManicTime(data=Path("manictime-data"))
