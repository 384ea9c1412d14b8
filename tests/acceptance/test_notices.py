"""Notices in a whole fleet: what the owner decides while a session runs is in the next result that its agent reads."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.acceptance.test_running_sessions import enqueue, started, until_it_is
from tests.rig import fresh
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKS = 'call = "notify"\narguments = { channel = "telegram", recipient = "${prompt}", message = "Dinner is at eight." }'
WAITS = """call = "notification_status"
arguments = { notification_id = "${notify.notification_id}", wait_seconds = 40 }"""
SAYS = 'say = "${notification_status.notifications}"'
ACTION = "SELECT id::text FROM shared.pending_actions WHERE origin_butler = 'greeter' AND status = 'pending'"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one(bench: Bench) -> AsyncIterator[Fleet]:
    """All in one process."""
    fleet = await started(bench, "one", {"greeter": [ASKS, WAITS, SAYS]})
    try:
        yield fleet
        await fleet.stop()
    finally:
        await fleet.abandon()


async def test_what_the_owner_decides_meanwhile_is_in_the_next_result(one: Fleet) -> None:
    chat = fresh.chat()
    session_id = await enqueue(one, "greeter", str(chat))
    async with asyncio.timeout(LONGEST):
        while (action := await one.value(ACTION)) is None:
            await asyncio.sleep(0.05)
    await one.outside.press(await one.outside.card(str(action)), "Approve")
    await until_it_is(one, session_id, "done")
    said = str(await one.value("SELECT said FROM shared.sessions WHERE id::text = $1", session_id))
    nonce = await one.value("SELECT nonce FROM shared.sessions WHERE id::text = $1", session_id)
    assert said.startswith("<notification"), said
    assert f'nonce="{nonce}"' in said
    assert "The owner approved your telegram message" in said
    assert "Dinner is at eight." in said
    _, out, _ = await one.house.butlers("token", "greeter", "--notices")
    _, listed, _ = await one.house.butlers("tokens", "list", "--json")
    assert out.strip()
    assert [token["butler"] for token in json.loads(listed)["tokens"]] == ["greeter"]
