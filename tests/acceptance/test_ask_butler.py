"""A butler asks another, which works and answers, each daemon in a process of its own."""

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from tests.rig import fresh
from tests.rig.bench import OWNER, Bench
from tests.rig.fleet import Fleet
from tests.rig.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
ASKS = """calls = ["health"]
[runtime]
kind = "script"
[[runtime.steps]]
call = "ask_butler"
arguments = { butler = "health", prompt = "${prompt}" }
[[runtime.steps]]
call = "butler_answer"
arguments = { session_id = "${ask_butler.session_id}", wait_seconds = 30 }
[[runtime.steps]]
call = "notify"
arguments = { channel = "telegram", message = "Health says: ${butler_answer.outcome}" }
"""
ANSWERS = """[runtime]
kind = "script"
[[runtime.steps]]
say = "I looked into ${prompt}."
"""
FILES: Mapping[str, str] = {"greeter": ASKS, "health": ANSWERS}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asking(bench: Bench) -> AsyncIterator[Fleet]:
    """A fleet in which the greeter may ask health."""
    house = await bench.house()
    for name, more in FILES.items():
        path = house.folder / "fleet" / name / "butler.toml"
        path.write_text(f"{path.read_text()}{more}")
    code, out, err = await house.butlers("migrate")
    assert code == 0, (out, err)
    fleet = await Fleet.start(house, "each")
    try:
        yield fleet
        await fleet.stop()
    finally:
        await fleet.abandon()


async def test_a_butler_asks_another_and_tells_the_owner_what_it_found(asking: Fleet) -> None:
    said = fresh.words("the pulse")
    code, out, err = await asking.house.butlers("ask", "greeter", said)
    assert (code, err) == (0, ""), (out, err, asking.logs())
    await asking.outside.arrived(f"Health says: I looked into {said}.", OWNER)

    wanted = {("greeter", "ask", "done", False), ("health", "butler:greeter", "done", False)}

    async def ended() -> bool:
        found = "SELECT butler, cause, status, told_nobody FROM shared.sessions WHERE prompt = $1"
        return {tuple(row.values()) for row in await asking.sql(found, said)} == wanted

    assert await eventually(ended)
