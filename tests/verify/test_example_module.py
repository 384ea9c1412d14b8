"""The module in examples/ works in every shape of a fleet, and breaks alone."""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio
from fastmcp.exceptions import ToolError
from mcp_types import TextResourceContents

from butlers import fleet as fleets
from butlers.modules.loader import load
from shared.auth import keystore
from shared.db.dsn import dsn_as
from tests.rig.bench import Bench, House
from tests.rig.cluster import ROOT
from tests.rig.fleet import MODES, Fleet, Mode
from tests.rig.module_tables import complaints
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="session")
EXAMPLE = ROOT / "examples" / "module" / "beds"


def give(house: House, butler: str, toml: str) -> None:
    """Let this butler have what its butler.toml says, and the example's code lie in the fleet's folder."""
    fleet = house.folder / "fleet"
    shutil.copytree(EXAMPLE, fleet / "beds", dirs_exist_ok=True)
    with (fleet / butler / "butler.toml").open("a") as file:
        file.write(toml)


@pytest_asyncio.fixture(loop_scope="session")
async def house(bench: Bench) -> AsyncIterator[House]:
    made = await bench.house()
    for butler in ("greeter", "health"):
        give(made, butler, 'modules = ["beds"]\n')
    yield made
    made.close()


async def migrated(house: House) -> str:
    """What `butlers migrate` says."""
    code, out, err = await house.butlers("migrate")
    assert code == 0, err
    return out


async def test_it_is_short() -> None:
    files = [*EXAMPLE.rglob("*.py")]
    assert sum(len(file.read_text().splitlines()) for file in files) <= 70


@pytest.mark.parametrize("mode", MODES)
async def test_it_works_in_every_shape(house: House, mode: Mode) -> None:
    await migrated(house)
    fleet = await Fleet.start(house, mode)
    try:
        client = await fleet.client("greeter")
        async with asyncio.timeout(LONGEST):
            while "degraded" in await readiness(fleet, "greeter"):
                await asyncio.sleep(0.05)
        await client.call_tool("water", {"bed": "roses"})
        answer = await client.call_tool("water", {"bed": "roses"})
        other = await (await fleet.client("health")).call_tool("water", {"bed": "beans"})
        (read,) = await client.read_resource("beds://all")
        asked = (await client.call_tool("open_valve", {"bed": "peas"})).structured_content
        assert asked is not None
        assert asked["status"] == "pending_approval"
        assert (await house.butlers("approvals", "approve", asked["action_id"]))[0] == 0
        async with asyncio.timeout(LONGEST):
            while (await fleet.call("greeter", "notification_status", {"notification_id": asked["action_id"]}))[
                "status"
            ] != "ok":
                await asyncio.sleep(0.1)
    finally:
        await fleet.stop()
    assert answer.structured_content == {"waterings": {"roses": 2}}
    picture = answer.content[1]
    assert picture.type == "image"
    assert base64.b64decode(picture.data).startswith(b"<svg")
    assert isinstance(read, TextResourceContents)
    assert json.loads(read.text) == {"roses": 2}
    # Each butler sees its own rows.
    assert other.structured_content == {"waterings": {"beans": 1}}


async def readiness(fleet: Fleet, butler: str) -> str:
    async with fleet.http.get(f"{fleet.url(butler)}/readyz") as answer:
        return str(await answer.json())


async def test_without_its_table_it_is_degraded_alone(house: House) -> None:
    fleet = await Fleet.start(house, "each")
    try:
        client = await fleet.client("greeter")
        with pytest.raises(ToolError, match=r"cannot be used now\. .*Run `butlers migrate`\. Nothing was done\."):
            await client.call_tool("water", {"bed": "roses"})
        assert (await fleet.notify(channel="telegram", message="The beds are dry."))["status"] == "ok"
        assert "The module `beds` is degraded." in await readiness(fleet, "greeter")
    finally:
        await fleet.stop()


@pytest.mark.parametrize(
    ("revision", "said"),
    [
        ("CREATE TABLE beds.anybodys (bed text NOT NULL)", 'table beds.anybodys has no column "butler text NOT NULL"'),
        ("CREATE TABLE beds.(", "syntax error"),
    ],
)
async def test_a_chain_that_fails_stops_nobody_and_leaves_nothing(house: House, revision: str, said: str) -> None:
    (house.folder / "fleet/beds/migrations/0002_more.py").write_text(
        f"from migrations.raw import execute\nrevision, down_revision = '0002', '0001'\n"
        f"def upgrade(): execute({revision!r})\n"
    )
    assert said in await migrated(house)
    connection = await asyncpg.connect(house.dsn)
    assert await connection.fetchval("SELECT to_regnamespace('beds')") is None
    await connection.close()


async def test_its_table_is_bounded_and_its_words_end_and_another_table_is_named(house: House) -> None:
    await migrated(house)
    (loaded,) = load(next(entry for entry in fleets.load(house.settings.fleet) if entry.name == "greeter"))
    connection = await asyncpg.connect(house.dsn)
    assert await complaints(connection, loaded.module) == []
    await connection.execute("CREATE TABLE beds.notes (butler text NOT NULL, words text)")
    assert await complaints(connection, loaded.module) == [
        "beds.notes.butler has no line in the module's retention",
        "beds.notes.words has no line in the module's retention",
        "beds.notes.words has no CHECK that bounds it",
    ]
    await connection.close()


async def test_a_butlers_login_reaches_its_own_rows_only(house: House) -> None:
    await migrated(house)
    connection = await asyncpg.connect(dsn_as(house.dsn, "greeter", keystore.read(house.home, "greeter").password))
    await connection.execute("INSERT INTO beds.waterings (butler, bed) VALUES ('greeter', 'roses')")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("INSERT INTO beds.waterings (butler, bed) VALUES ('health', 'beans')")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("CREATE TABLE beds.mine ()")
    await connection.close()
    other = await asyncpg.connect(dsn_as(house.dsn, "health", keystore.read(house.home, "health").password))
    assert await other.fetchval("SELECT count(*) FROM beds.waterings") == 0
    assert await other.execute("DELETE FROM beds.waterings") == "DELETE 0"
    await other.close()


async def test_a_chain_with_a_hole_is_said_in_a_sentence(house: House) -> None:
    (house.folder / "fleet/beds/migrations/0003_more.py").write_text("revision, down_revision = '0003', '0002'\n")
    assert "schema of the module `beds` cannot be brought from nothing to 0003" in await migrated(house)
