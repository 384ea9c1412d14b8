"""Who waits while a process is told to stop gets an answer that is true, and no log shows a traceback."""

import asyncio
from collections.abc import Mapping

import aiohttp

from shared.rpc import request_of, tool_object
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST

WAITING = 12


async def test_callers_in_waiting_are_told_how_it_stands(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(), "one")
    try:
        token = await fleet.token("greeter")
        await fleet.outside.fault("telegram", "sendMessage", "slow", value=3, times=WAITING)
        told = [asyncio.create_task(call(fleet, token, number)) for number in range(WAITING)]
        async with asyncio.timeout(LONGEST):
            while int(str(await fleet.value("SELECT count(*) FROM shared.notifications"))) < WAITING:
                await asyncio.sleep(0.05)
        await fleet.stop()  # asserts exit code 0 and that no log holds a traceback
        answers = await asyncio.gather(*told)
        assert {answer["status"] for answer in answers} <= {"ok", "queued"}
    except BaseException:
        await fleet.abandon()
        raise


async def call(fleet: Fleet, token: str, number: int) -> Mapping[str, object]:
    """The answer of one caller with a connection of its own."""
    headers, body = request_of(token, "notify", {"channel": "telegram", "message": f"stopping <{number}>"}, 1)
    async with (
        aiohttp.ClientSession() as own,
        own.post(f"{fleet.url('greeter')}/mcp", json=body, headers=headers) as answer,
    ):
        return tool_object(await answer.read(), "greeter", "notify")
