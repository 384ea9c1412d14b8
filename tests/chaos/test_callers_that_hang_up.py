"""A caller that dies in the middle of its call is no error of the daemon's, and its message counts all the same."""

import asyncio

import aiohttp

from shared.rpc import request_of
from tests.rig.fleet import Fleet

CALLERS = 60
SENT = "SELECT count(*) FROM shared.notifications WHERE status = 'ok' AND envelope::text LIKE '%hung up <%'"
UNDER_WAY = "SELECT count(*) FROM shared.notifications WHERE status <> 'ok' AND envelope::text LIKE '%hung up <%'"


async def test_the_daemon_takes_it_calmly(fleet: Fleet) -> None:
    token = await fleet.token("greeter")
    await fleet.outside.fault("telegram", "sendMessage", "slow", value=0.3, times=2, match="hung up")
    heard = await asyncio.gather(*(call(fleet, token, n, 0.003 * n) for n in range(CALLERS)))
    assert heard.count(False) > CALLERS // 4, "too few have hung up"
    assert await settled(fleet) == len(await fleet.outside.having("hung up <"))
    assert fleet.tracebacks() == ""


async def call(fleet: Fleet, token: str, number: int, patience: float) -> bool:
    """Whether there was an answer before this caller hung up."""
    arguments = {
        "channel": "telegram",
        "message": f"hung up <{number}>",
        "request_context": {"request_id": str(number)},
    }
    headers, body = request_of(token, "notify", arguments, 1)
    try:
        async with (
            asyncio.timeout(patience),
            aiohttp.ClientSession() as own,
            own.post(f"{fleet.url('greeter')}/mcp", json=body, headers=headers) as answer,
        ):
            return answer.status == 200
    except (TimeoutError, aiohttp.ClientError):
        return False


async def settled(fleet: Fleet) -> int:
    """How many messages were taken, once none has come for a while and all are sent."""
    seen = -1
    async with asyncio.timeout(30):
        while (now := int(str(await fleet.value(SENT)))) != seen or await fleet.value(UNDER_WAY):
            seen = now
            await asyncio.sleep(1)
    return seen
