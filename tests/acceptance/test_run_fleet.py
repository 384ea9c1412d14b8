"""`butlers run fleet`: all butlers in one process, each with its own login, key and port."""

import asyncio
import json
import signal

import pytest
from fastmcp import Client

from tests.rig.bench import Bench
from tests.rig.fleet import READY_AT, Fleet
from tests.rig.waiting import LONGEST, until

pytestmark = pytest.mark.asyncio(loop_scope="session")
LOGINS = "SELECT DISTINCT usename::text FROM pg_stat_activity WHERE datname = current_database() AND usename LIKE $1"


@pytest.mark.slow
async def test_one_process_serves_all_butlers_each_by_its_own_login_and_port(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(), "each")
    for name in ("greeter", "health"):
        await fleet.kill(name, signal.SIGTERM)
    served = fleet.house.spawn(["run", "fleet"], "fleet", BUTLERS_ADVERTISE_URL="http://fleet.test")
    base = fleet.house.base
    urls = await until(lambda: found if len(found := READY_AT.findall(served.out.read_text())) == 2 else None)
    assert urls == [f"http://fleet.test:{base + 10}", f"http://fleet.test:{base + 11}"]
    logins = {row["usename"] for row in await fleet.sql(LOGINS, f"{fleet.house.name}\\_%")}
    assert {f"{fleet.house.name}_greeter", f"{fleet.house.name}_health"} <= logins
    assert f"{fleet.house.name}_up" not in logins
    for place, name in enumerate(("greeter", "health"), 10):
        ended, said, _ = await fleet.house.butlers("mcp-config", name, BUTLERS_AGENTS_URL="http://localhost")
        assert ended == 0
        assert f'"url": "http://localhost:{base + place}/mcp"' in said
        async with Client(json.loads(said)) as client:
            told = await client.call_tool("notify", {"channel": "telegram", "message": f"All of us, {name} says."})
        assert told.structured_content["status"] == "ok"
    served.send(signal.SIGTERM)
    async with asyncio.timeout(LONGEST):
        assert await served.wait() == 0
    await fleet.stop()


@pytest.mark.slow
async def test_the_only_butler_of_a_fleet_has_its_port_too(bench: Bench) -> None:
    house = await bench.house(butlers=("greeter",))
    served = house.spawn(["run", "fleet"], "fleet", BUTLERS_ADVERTISE_URL="http://fleet.test")
    urls = await until(lambda: READY_AT.findall(served.out.read_text()))
    assert urls == [f"http://fleet.test:{house.base + 10}"]
    served.send(signal.SIGTERM)
    async with asyncio.timeout(LONGEST):
        assert await served.wait() == 0
    house.close()


async def test_a_port_is_refused_for_several(bench: Bench) -> None:
    house = await bench.house()
    ended, _, wrong = await house.butlers("run", "fleet", "--port", "4711")
    assert (ended, wrong) == (1, "butlers: --port is for one daemon, and each butler has its own port. Leave it out.\n")
    house.close()
