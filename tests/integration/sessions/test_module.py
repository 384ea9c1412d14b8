"""The module `sessions`: an agent sees the sessions of its own butler, and nobody else's."""

from uuid import uuid4

import pytest

from butlers.butler import NoConfig, Result, ToolCall
from butlers.modules.sessions import MODULE
from shared.auth.tokens import Caller
from shared.errors import InvalidInput
from shared.storage import sessions
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def call(house: House, tool: str, **arguments: object) -> Result:
    """The greeter's tool, called by its agent."""
    parts = MODULE.build(house.context("greeter"), NoConfig())
    (found,) = [one for one in parts.tools if one.name == tool]
    return await found.handler(ToolCall(Caller("greeter", "client", "a-token"), arguments))


async def enqueue(house: House, butler: str, prompt: str) -> str:
    """A session that waits; its id."""
    session_id = str(uuid4())
    await sessions.enqueue(house.sql, session_id=session_id, butler=butler, cause="test", prompt=prompt)
    return session_id


async def test_a_butler_sees_its_own_sessions(still_house: House, message: str) -> None:
    own, other = await enqueue(still_house, "greeter", message), await enqueue(still_house, "health", message)
    listed = (await call(still_house, "session_list")).answer
    assert listed is not None
    found = listed["sessions"]
    assert isinstance(found, list)
    assert [(one["id"], one["status"], one["prompt"]) for one in found] == [(own, "waiting", message)]
    shown = (await call(still_house, "session_show", id=own)).answer
    assert shown is not None
    assert (shown["id"], shown["steps"]) == (own, [])
    for wrong in (other, str(uuid4()), "x", None):
        with pytest.raises(InvalidInput):
            await call(still_house, "session_show", id=wrong)
