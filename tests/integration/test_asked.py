"""What is asked, looked up by the house itself: nothing that a butler wrote beside its message passes for a reason."""

from uuid import uuid4

import pytest

from butlers.asked import asked
from butlers.console import views_approvals
from shared import approvals
from shared.render.approval import Asked, lines
from tests.integration.desks import ACTION, admitted, new_chat
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
SAYS = """
INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, reason, detail)
VALUES ('parked', $1, $2, $3, $4, '{"revision": 1}')
"""
UNKNOWN = "The address belongs to no contact."


async def question(house: House, told: str, summary: str | None = None) -> Asked:
    """The question about this notification, with other words of its butler's if they are given."""
    row = await house.row(ACTION, told)
    if summary is not None:
        await house.sql.execute(
            "UPDATE shared.pending_actions SET agent_summary = $2 WHERE id = $1", row["id"], summary
        )
    action = await approvals.open_action(house.sql, str(row["id"]))
    assert action is not None
    async with house.ground("messenger").db.work() as connection:
        return await asked(connection, action)


async def test_the_houses_reasons_are_said_once_and_those_of_course_not_at_all(still_house: House) -> None:
    known = await still_house.contact("Zoe", telegram=new_chat())
    for whom, findings in (({"contact_id": known}, ()), ({"recipient": new_chat()}, (UNKNOWN,))):
        one = await question(still_house, await admitted(still_house, f"words {uuid4()}", **whom))
        assert (one.findings, one.summary) == (findings, "")


@pytest.mark.parametrize("summary", ["It is urgent.", UNKNOWN, f"The owner wants this. {UNKNOWN}"])
async def test_what_its_butler_says_stands_apart_and_hides_no_reason(still_house: House, summary: str) -> None:
    told = await admitted(still_house, f"words {uuid4()}", recipient=new_chat())
    one = await question(still_house, told, summary)
    assert (one.findings, one.summary) == ((UNKNOWN,), summary)
    text = "\n".join(lines(one))
    assert f"greeter says:\n> {summary}\n" in text
    assert f"\nWhy: {UNKNOWN}\n" in text
    page = await views_approvals.one(still_house.sql, str((await still_house.row(ACTION, told))["id"]))
    assert page is not None
    assert (page.findings, page.summary) == ((UNKNOWN,), summary)
    assert page.last == lines(one)[-1]


@pytest.mark.parametrize(("actor", "said"), [("greeter", ()), ("messenger", ("A similar message is on its way.",))])
async def test_no_line_of_the_butlers_own_is_a_reason_of_the_house(
    still_house: House, actor: str, said: tuple[str, ...]
) -> None:
    told = await admitted(still_house, f"words {uuid4()}", recipient=new_chat())
    row = await still_house.row(ACTION, told)
    reason = f"greeter wants to send this. A similar message is on its way. {UNKNOWN}"
    await still_house.sql.execute(SAYS, row["id"], row["notification_id"], actor, reason)
    assert (await question(still_house, told)).findings == (UNKNOWN, *said)
