"""What the desk costs: `python -m tests.bench.desk`, on a real display and a real bus, with a whole fleet.

From a call until its popup stands, from a butler's question until the notification server is told of it, and what fifty
calls that wait for the owner take of a core, beside the same fleet at rest.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Final

import asyncpg
from fastmcp import Client

from butlers.desk.popup import Popup, Popups
from shared.db.dsn import DATABASE
from shared.postgres import server as postgres
from tests.bench.fleet import House, Running, house
from tests.bench.idle import CONNECTIONS, cpu_seconds
from tests.desk.bus import Scripted, scripted, session_bus
from tests.desk.screen import screen

ROUNDS: Final = 7
WAITING: Final = 50
COUNTED: Final = 20.0
# Until what a burst of calls opened at the database is closed again.
SETTLES: Final = 75.0
GREETER: Final = 10


async def popups() -> float:
    """Seconds from the call until the window stands."""
    took = []
    for _ in range(ROUNDS):
        talk, begun = Popups(), time.monotonic()
        ended = await talk.show(Popup("How are you?", waits=False))
        took.append(time.monotonic() - begun)
        if ended.how != "shown":
            raise RuntimeError(f"No popup stood: {ended.how}.")
        await talk.close("superseded")
    return median(took)


async def until_shown(server: Scripted, count: int) -> None:
    """Wait until so many notifications were asked for."""
    async with asyncio.timeout(20):
        while len(server.shown) < count:
            await asyncio.sleep(0.002)


@asynccontextmanager
async def signed_in(here: House, address: str) -> AsyncIterator[None]:
    """`butlers desk run`, paired and signed in by its commands."""
    folder = here.folder / "desk"
    here.butlers(*here.butlers("desk", "pair").split()[1:], "--folder", str(folder))
    command = [sys.executable, "-m", "butlers.cli", "desk", "run", "--folder", str(folder)]
    env = {**os.environ, "DBUS_SESSION_BUS_ADDRESS": address}
    process = await asyncio.create_subprocess_exec(*command, env=env, stderr=asyncio.subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def notified(here: House, token: str) -> float:
    """Seconds from the call of `ask_user` until the notification server has the question."""
    took = []
    with session_bus() as address:
        async with (
            scripted(address, "actions") as server,
            signed_in(here, address),
            Client(f"{here.url(GREETER)}/mcp", auth=token) as client,
        ):
            for n in range(ROUNDS):
                begun = time.monotonic()
                asked = await client.call_tool("ask_user", {"title": f"Number {n}", "question": "Which?"})
                await until_shown(server, n + 1)
                took.append(time.monotonic() - begun)
                await client.call_tool("withdraw", {"question_id": (asked.structured_content or {})["question_id"]})
    return median(took[1:])  # before the first the desk still starts


async def waiting(here: House, running: Running, token: str) -> str:
    """What fifty calls that wait add to a fleet at rest: shares of a core, and connections of the database."""
    server = postgres.running(here.home)
    if server is None:
        raise RuntimeError("The database is not running.")
    connection = await asyncpg.connect(server.dsn_of(DATABASE))

    async def share() -> tuple[float, int]:
        await asyncio.sleep(SETTLES)
        cpu, began = cpu_seconds(running.pids["up"]), time.monotonic()
        await asyncio.sleep(COUNTED)
        spent = (cpu_seconds(running.pids["up"]) - cpu) / (time.monotonic() - began)
        return spent, int(await connection.fetchval(CONNECTIONS))

    try:
        async with Client(f"{here.url(GREETER)}/mcp", auth=token) as client:
            rest, held = await share()
            asked = {"title": "Milk", "question": "Which?", "wait_for_response": True, "timeout": 300}
            calls = [asyncio.create_task(client.call_tool("ask_user", asked)) for _ in range(WAITING)]
            busy, more = await share()
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
    finally:
        await connection.close()
    return f"{busy - rest:.1%} of a core beyond the {rest:.1%} at rest, {more - held} connections more"


async def measured(here: House, running: Running) -> str:
    """The three figures, in as many lines."""
    token = here.butlers("token", "greeter")
    return "\n".join(
        [
            f"a popup stands {await popups():.2f} s after its call",
            f"a notification is there {await notified(here, token):.2f} s after its question",
            f"{WAITING} calls that wait cost {await waiting(here, running, token)}",
        ]
    )


def main() -> None:
    """Print the lines."""
    with screen() as seen, house() as here:
        os.environ["DISPLAY"] = seen.display
        with here.up() as running:
            print(asyncio.run(measured(here, running)))


if __name__ == "__main__":
    main()
