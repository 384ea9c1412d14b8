"""The butler in examples/ that needs no code does what it says, from its folder alone."""

import shutil

import pytest

from tests.rig import fresh
from tests.rig.bench import OWNER, Bench
from tests.rig.cluster import ROOT
from tests.rig.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")
EXAMPLE = ROOT / "examples" / "reminder"
LEFT = "SELECT next_due_at - clock_timestamp() FROM shared.schedules WHERE butler = 'reminder' AND source = 'tool'"


async def test_what_the_owner_writes_to_the_reminder_is_kept_for_twenty_minutes(bench: Bench) -> None:
    assert sum(len(file.read_text().splitlines()) for file in EXAMPLE.iterdir()) <= 25
    house = await bench.house()
    shutil.copytree(EXAMPLE, house.folder / "fleet" / "reminder")
    code, _, err = await house.butlers("migrate")
    assert code == 0, err
    fleet = await Fleet.start(house)
    said = f"/reminder {fresh.words('the tea')}"
    try:
        await fleet.outside.say(OWNER, said)
        await fleet.outside.arrived("I will say so in twenty minutes.", OWNER)
        (row,) = await fleet.sql(LEFT)
        assert 19 < row[0].total_seconds() / 60 <= 20
    finally:
        await fleet.stop()
