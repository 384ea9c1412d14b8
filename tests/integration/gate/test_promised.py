"""What a session says that answers for the owner: the owner was promised to approve it, whatever the rules say."""

from collections.abc import Awaitable, Callable
from typing import Final
from uuid import uuid4

import pytest

from butlers.butler import NoConfig, Result, ToolCall
from butlers.modules import schedule
from butlers.tools.notify import tell
from messenger.maintenance import rechecker
from shared.auth.tokens import Caller
from shared.errors import InvalidInput
from shared.gate.decide import PROMISED
from shared.rpc import Answer
from shared.storage import contacts
from tests.integration.gate.test_asked import question
from tests.integration.house import House
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")

SESSION: Final = """
INSERT INTO shared.sessions (id, butler, cause, prompt, status, began_at, owners_words)
VALUES ($1, 'greeter', 'message', 'x', 'running', clock_timestamp(), $2)
"""


LATER: Final = {"cron": "0 9 * * *", "prompt": "Write to Anna."}


async def said(house: House, message: str, contact: str, owners_words: str) -> Answer:
    """The answer to a session that says this to a contact."""
    session = await session_of(house, owners_words)
    arguments = {"channel": "telegram", "message": message, "contact_id": contact}
    return await tell(house.context("greeter"), arguments, session)


def tool_of(house: House, name: str) -> Callable[[ToolCall], Awaitable[Result]]:
    tools = schedule.MODULE.build(house.context("greeter"), NoConfig()).tools
    return next(tool.handler for tool in tools if tool.name == name)


async def session_of(house: House, owners_words: str) -> str:
    session = uuid4()
    await house.sql.execute(SESSION, session, owners_words)
    return str(session)


async def test_what_answers_for_the_owner_waits_for_the_owners_yes_whatever_a_rule_allows(
    house: House, message: str
) -> None:
    contact = await house.contact("Anna", telegram=new_chat())
    await house.rule({"contact_id": contact})
    assert (await said(house, message, contact, "own"))["status"] == "ok"
    answer = await said(house, f"{message} reply", contact, "reply")
    assert answer["status"] == "pending_approval"
    asked = await question(house, str(answer["notification_id"]))
    assert (asked.findings, asked.summary) == ((PROMISED,), "")


async def test_what_answers_for_the_owner_is_not_let_go_once_there_is_an_address(
    still_house: House, message: str
) -> None:
    contact = await still_house.contact("Bo", email=f"{uuid4().hex}@example.org")
    await still_house.rule({"contact_id": contact})
    answer = await said(still_house, message, contact, "reply")
    await contacts.add_address(still_house.sql, contact, "telegram", new_chat())
    await rechecker.identified(still_house.context("messenger"))
    assert answer["status"] == "pending_missing_identifier"
    assert await still_house.status(answer["action_id"]) == "pending_approval"


async def test_what_answers_for_the_owner_plans_nothing_for_later(house: House) -> None:
    plan, remind = (tool_of(house, name) for name in ("schedule_add", "remind_me"))
    own, reply = [Caller("greeter", "session", await session_of(house, words)) for words in ("own", "reply")]
    with pytest.raises(InvalidInput) as refused:
        await plan(ToolCall(reply, {"name": "later", **LATER}))
    assert "nothing is planned from here" in str(refused.value)
    await remind(ToolCall(reply, {"text": "Write to Anna.", "in": "20m"}))
    await plan(ToolCall(own, {"name": "later", **LATER}))
