"""Each message to somebody else leaves a line in the audit that says by which authority it left."""

from typing import Final
from uuid import uuid4

import pytest

from tests.integration.house import House
from tests.integration.workers import new_chat
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
LINES: Final = """
SELECT rule_id::text, reason, detail ->> 'yes' AS yes, (detail ->> 'use')::int AS use, detail ? 'wire' AS bound
FROM shared.approval_events WHERE event_type = 'marked' AND notification_id = $1 ORDER BY seq
"""
ABOUT: Final = "SELECT notification_id FROM shared.pending_actions WHERE id = $1::text::uuid"
MARKED: Final = """
SELECT count(*) > 0 FROM shared.approval_events WHERE notification_id = $1 AND event_type = 'marked'
"""


async def test_a_rule_is_named_with_the_number_of_its_use(house: House) -> None:
    chat = new_chat()
    rule = await house.rule({"recipient": chat}, max_uses=5)
    for use in (1, 2):
        answer = await house.notify(message=f"use {uuid4()}", recipient=chat)
        (line,) = await house.sql.fetch(LINES, answer["notification_id"])
        assert tuple(line) == (rule, f"By rule {rule}, use {use}.", None, use, True)
    long = await house.notify(message="long words " * 500, recipient=chat)
    assert [line["use"] for line in await house.sql.fetch(LINES, long["notification_id"])] == [3, 3]


async def test_a_yes_is_named_by_its_question(house: House) -> None:
    answer = await house.notify(message=f"a yes {uuid4()}", recipient=new_chat())
    action = str(answer["action_id"])
    assert (await house.decide(action)).code == "approved"
    told = await house.sql.fetchval(ABOUT, action)
    await eventually(lambda: house.sql.fetchval(MARKED, told))
    (line,) = await house.sql.fetch(LINES, told)
    assert tuple(line) == (None, f"By your approval of {action}.", action, None, True)
