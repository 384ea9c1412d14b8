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


CLIENT = Caller("greeter", "client", "a-token")


async def call(house: House, tool: str, caller: Caller = CLIENT, **arguments: object) -> Result:
    """The greeter's tool, called by its agent, or by whom the owner gave a token."""
    parts = MODULE.build(house.context("greeter"), NoConfig())
    (found,) = [one for one in parts.tools if one.name == tool]
    return await found.handler(ToolCall(caller, arguments))


async def listed_to(house: House, caller: Caller) -> list[str]:
    """The ids of the sessions that this caller is listed."""
    answer = (await call(house, "session_list", caller)).answer
    assert answer is not None
    found = answer["sessions"]
    assert isinstance(found, list)
    return [str(one["id"]) for one in found]


async def enqueue(house: House, butler: str, prompt: str, cause: str = "test") -> str:
    """A session that waits; its id."""
    session_id = str(uuid4())
    await sessions.enqueue(house.sql, session_id=session_id, butler=butler, cause=cause, prompt=prompt)
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


async def test_a_session_of_somebody_else_sees_itself_alone(still_house: House, message: str) -> None:
    """Who writes to a butler may tell its agent what to look at: what the owner asked is not among it."""
    owners, others = await enqueue(still_house, "greeter", f"{message} of the owner", "ask"), list[str]()
    for cause in ("message", "schedule:own", "butler:health", "notice"):
        other = await enqueue(still_house, "greeter", message, cause)
        others.append(other)
        caller = Caller("greeter", "session", other)
        assert await listed_to(still_house, caller) == [other]
        assert (await call(still_house, "session_show", caller, id=other)).answer
        with pytest.raises(InvalidInput):
            await call(still_house, "session_show", caller, id=owners)
    assert {owners, *others} <= set(await listed_to(still_house, Caller("greeter", "session", owners)))
