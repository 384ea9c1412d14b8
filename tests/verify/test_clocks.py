"""Daemons whose own clocks are a day off work as any other: only the database's clock rules.

libfaketime shifts what a process reads as the time of day; its monotonic clock runs as it does.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import date, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.rig import fresh
from tests.rig.bench import OWNER, Bench, House
from tests.rig.fleet import Fleet
from tests.rig.forks import Forks, Process

LIBRARY: Final = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
# Each hop goes between two days: the butlers' is today, the command line's the day before.
CLOCKS: Final = {"switchboard": "-1d", "messenger": "+1d", "console": "-1d", "cli": "-1d"}
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Skewed(Fleet):
    """A fleet whose daemons do not agree on the day."""

    clocks: dict[str, Forks]

    def _spawn(self, name: str) -> list[Process]:
        house = at(self.house, self.clocks, CLOCKS[name]) if name in CLOCKS else self.house
        made = [house.spawn(["run", name], f"{name}-{len(self.started)}")]
        self.started += made
        return made


def at(house: House, clocks: Mapping[str, Forks], shift: str) -> House:
    """The house as processes of another day see it; the library reads its variables again while they run."""
    return replace(house, forks=clocks[shift], env={**house.env, **shifted(shift)})


def shifted(shift: str) -> Mapping[str, str]:
    """The variables by which libfaketime shifts a process."""
    return {"FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.fixture(scope="module")
def clocks() -> Iterator[dict[str, Forks]]:
    assert LIBRARY is not None, "libfaketime is not here; install Debian's package libfaketime"
    with ExitStack() as held:
        made = {}
        for shift in sorted(set(CLOCKS.values())):
            made[shift] = Forks(LD_PRELOAD=str(LIBRARY), **shifted(shift))
            held.callback(made[shift].close)
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def skewed(bench: Bench, clocks: dict[str, Forks]) -> AsyncIterator[Fleet]:
    Skewed.clocks = clocks
    made = await Skewed.start(await bench.house(), "each")
    yield made
    await made.stop()


async def _command(fleet: Fleet, clocks: dict[str, Forks], *argv: str) -> str:
    code, out, err = await at(fleet.house, clocks, CLOCKS["cli"]).butlers(*argv)
    assert code == 0, err
    return out


async def _day(fleet: Fleet, name: str) -> date:
    """The day a daemon believes in: the Date of its answers."""
    async with fleet.http.get(f"{fleet.url(name)}/healthz") as answer:
        return parsedate_to_datetime(answer.headers["Date"]).date()


async def test_everything_works_as_if_they_agreed(skewed: Fleet) -> None:
    said, chat = fresh.words("noon or midnight"), fresh.chat()
    assert (await skewed.notify(channel="telegram", message=said))["status"] == "ok"
    await skewed.outside.arrived(said, OWNER)
    other = fresh.words("for Anna")
    answer = await skewed.notify(channel="telegram", recipient=str(chat), message=other)
    card = await skewed.outside.card(str(answer["action_id"]))
    left = await skewed.value(
        "SELECT expires_at - clock_timestamp() FROM shared.pending_actions WHERE id = $1", answer["action_id"]
    )
    assert isinstance(left, timedelta)
    assert timedelta(hours=71) < left < timedelta(hours=72)
    await skewed.outside.press(card, "Approve")
    await skewed.outside.arrived(other, chat)


async def test_a_token_from_a_command_line_of_yesterday_counts(skewed: Fleet, clocks: dict[str, Forks]) -> None:
    said = fresh.words("from yesterday")
    told = await _command(skewed, clocks, "notify", "--as", "greeter", "--channel", "telegram", "--message", said)
    assert json.loads(told)["status"] == "ok"


async def test_the_clocks_are_off(skewed: Fleet) -> None:
    """Else this file would prove nothing."""
    days = {name: await _day(skewed, name) for name in ("switchboard", "greeter", "messenger")}
    assert days["switchboard"] < days["greeter"] < days["messenger"]
