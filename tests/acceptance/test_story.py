"""The whole story: a schedule fires, the agent reads its state, tells the owner, asks for a tool, and a yes runs it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.acceptance.test_gated_tools import VALVE, runs_of
from tests.integration.runtime.small_butler import KEYS
from tests.integration.runtime.story import CHAT, MESSAGES, Player
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench, House
from tests.rig.fleet import Fleet, Mode
from tests.rig.model_server import Call, ModelServer, Words, model_server
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAST = "The valve waits for the owner."
TOML = """
modules = ["state", "valve"]

[valve]
file = "{file}"

[[schedules]]
name = "morning"
at = "{at}"
zone = "UTC"
prompt = "Look after the beds."

[runtime]
kind = "{kind}"
{own}
"""
ASKED = "SELECT id::text FROM shared.pending_actions WHERE tool_name = 'open_valve'"
SESSIONS = "SELECT status, occurrence_id IS NOT NULL AS due FROM shared.sessions WHERE butler = 'greeter'"
STEPS = "SELECT tool, status FROM shared.session_steps ORDER BY seq"


def calls(said: str, read: str) -> list[Call]:
    """What the agent does, whoever thinks for it; `read` is how it names what it has read."""
    return [
        Call("state_set", {"key": "dry", "value": "roses"}),
        Call("state_get", {"key": "dry"}),
        Call("notify", {"channel": "telegram", "message": f"{said}: {read}"}),
        Call("open_valve", {"bed": read}),
    ]


def scripted(said: str) -> str:
    """The same as a script, which reads by name what its steps have found."""
    steps = [
        f"[[runtime.steps]]\ncall = {json.dumps(one.tool)}\narguments = {toml(one.arguments)}"
        for one in calls(said, "${state_get.value}")
    ]
    return "\n".join([*steps, f"[[runtime.steps]]\nsay = {json.dumps(LAST)}"])


def toml(table: object) -> str:
    """An object of texts as an inline table."""
    assert isinstance(table, dict)
    return f"{{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in table.items())} }}"


@asynccontextmanager
async def started(bench: Bench, mode: Mode, kind: str, own: str, **env: str) -> AsyncIterator[Fleet]:
    """A fleet whose greeter has a valve, a runtime, and something due at once."""
    made = await bench.house()
    house = replace(made, env={**made.env, **env})
    write(house, kind, own)
    code, _, err = await house.butlers("migrate")
    assert code == 0, err
    fleet = await Fleet.start(house, mode)
    try:
        yield fleet
        await fleet.stop()
    except BaseException:
        await fleet.abandon()
        raise


def write(house: House, kind: str, own: str) -> None:
    """Write the module, and what the greeter is told of it."""
    folder = house.folder / "fleet"
    (folder / "valve").mkdir()
    (folder / "valve" / "__init__.py").write_text(VALVE)
    at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat(timespec="seconds")
    with (folder / "greeter" / "butler.toml").open("a") as file:
        file.write(TOML.format(file=runs_of(house), at=at, kind=kind, own=own))


async def played(fleet: Fleet, said: str) -> None:
    """The owner reads what the agent says and presses Approve; the tool runs once, and all of it is on record."""
    await fleet.outside.arrived(f"{said}: roses", OWNER)

    async def asked() -> bool:
        return await fleet.value(ASKED) is not None

    await eventually(asked)
    assert not runs_of(fleet.house).exists()
    action = str(await fleet.value(ASKED))
    card = await fleet.outside.card(action)
    assert "Open the valve of bed roses." in card.text
    await fleet.outside.press(card, "Approve")

    async def over() -> bool:
        row = await fleet.value("SELECT status FROM shared.pending_actions WHERE id::text = $1", action)
        found = [tuple(one) for one in await fleet.sql(SESSIONS)]
        return row == "executed" and found == [("done", True)]

    await eventually(over)
    assert runs_of(fleet.house).read_text().split() == ["roses"]
    rows = [tuple(row) for row in await fleet.sql(STEPS)]
    assert [tool for tool, _ in rows] == ["state_set", "state_get", "notify", "open_valve"]
    steps = dict(rows)
    # What is due begins as soon as its daemon is up; until the Messenger said that it is there, a message is queued.
    assert steps.pop("notify") in {"ok", "queued"}, fleet.logs()
    assert steps == {"state_set": "ok", "state_get": "ok", "open_valve": "pending_approval"}


@pytest.mark.slow
async def test_a_script_plays_it(bench: Bench) -> None:
    said = fresh.words("dry")
    async with started(bench, "each", "script", scripted(said)) as fleet:
        await played(fleet, said)


async def by_a_model(bench: Bench, mode: Mode, player: Player, prefix: str = "") -> None:
    """Play it by a runtime that asks a model; it reads what each tool answered, and that the call waits."""
    said = fresh.words("dry")
    async with model_server() as models:
        models.play(*turns(said, prefix))
        own = "\n".join(f"{name} = {json.dumps(value)}" for name, value in player.table.items())
        async with started(bench, mode, player.runtime, own, **KEYS, **player.environment(models)) as fleet:
            await played(fleet, said)
        demand_read(models)


def turns(said: str, prefix: str) -> Sequence[Call | Words]:
    """What the model says, one turn for each."""
    return [*(Call(f"{prefix}{one.tool}", one.arguments) for one in calls(said, "roses")), Words(LAST)]


def demand_read(models: ModelServer) -> None:
    """Demand that the model was told its prompt, read its state, and learned that the call waits."""
    last = models.asked[-1]
    assert any("Look after the beds." in text for text in last.said)
    read = "\n".join(last.results)
    assert '"value":"roses"' in read
    assert "pending_approval" in read


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "player"), [("one", MESSAGES), ("each", CHAT)], ids=["messages", "chat"])
async def test_a_model_plays_it(bench: Bench, mode: Mode, player: Player) -> None:
    # Who thinks does not see in how many processes the others are: each protocol is played in one of the shapes.
    await by_a_model(bench, mode, player)
