"""The butlers in examples/ that need no code do what they say, from their folder alone."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from butlers.modules.manictime.fixture import make
from shared.display.day_bar import KEY, day_bar
from shared.storage import state
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench, House
from tests.rig.cluster import ROOT
from tests.rig.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")
EXAMPLES = ROOT / "examples"
LEFT = "SELECT next_due_at - clock_timestamp() FROM shared.schedules WHERE butler = 'reminder' AND source = 'tool'"
DUE = "SELECT count(*) FROM shared.sessions WHERE butler = 'timekeeper' AND occurrence_id IS NOT NULL"


@asynccontextmanager
async def started(house: House) -> AsyncIterator[Fleet]:
    """The fleet of this house."""
    code, _, err = await house.butlers("migrate")
    assert code == 0, err
    fleet = await Fleet.start(house)
    try:
        yield fleet
    finally:
        await fleet.stop()


async def test_what_the_owner_writes_to_the_reminder_is_kept_for_twenty_minutes(bench: Bench) -> None:
    assert sum(len(file.read_text().splitlines()) for file in (EXAMPLES / "reminder").iterdir()) <= 25
    house = await bench.house()
    shutil.copytree(EXAMPLES / "reminder", house.folder / "fleet" / "reminder")
    async with started(house) as fleet:
        await fleet.outside.say(OWNER, f"/reminder {fresh.words('the tea')}")
        await fleet.outside.arrived("I will say so in twenty minutes.", OWNER)
        (row,) = await fleet.sql(LEFT)
        assert 19 < row[0].total_seconds() / 60 <= 20


def worked(folder: Path) -> date:
    """Make up ten days that end with the last day of work; that day."""
    today = datetime.now(UTC).date()
    last = today - timedelta(days=max(1, (today.weekday() - 4) % 7))
    make(folder, "core", 10, last - timedelta(days=9))
    return last


def at_once(toml: str, data: Path, day: date) -> str:
    """The example over this record, whose review of that day is due in a moment."""
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat(timespec="seconds")
    for said, instead in (
        ('data = "manictime-data"', f'data = "{data}"\ntimezone = "Europe/Vienna"'),
        ('cron = "0 18 * * mon-fri"', f'at = "{soon}"'),
        ('catch_up = "skip"', 'catch_up = "once"'),
        ('prompt = "today"', f'prompt = "{day}"'),
    ):
        assert toml.count(said) == 1
        toml = toml.replace(said, instead)
    return toml


async def test_the_timekeeper_tells_the_day_by_itself_and_a_moment_when_it_is_asked(bench: Bench) -> None:
    house = await bench.house()
    folder = house.folder / "fleet" / "timekeeper"
    shutil.copytree(EXAMPLES / "timekeeper", folder)
    day = worked(house.folder / "record")
    file = folder / "butler.toml"
    file.write_text(at_once(file.read_text(), house.folder / "record", day))
    async with started(house) as fleet:
        review = await fleet.outside.arrived(" at the computer.\n", OWNER)
        assert review.text.startswith(f"{day:%A} {day.day} {day:%B %Y}: ")
        kept = await state.get(fleet.db, "timekeeper", KEY)
        assert kept is not None
        bar = day_bar(kept.value)
        assert bar is not None
        assert bar.text in review.text
        assert await fleet.value(DUE) == 1
        await fleet.outside.say(OWNER, f"/timekeeper What was I doing at four on {day:%A}?")
        await fleet.outside.arrived(f"At 16:00 on {day:%A} {day.day} ", OWNER)
