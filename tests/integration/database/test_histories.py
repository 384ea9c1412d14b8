"""The history of one message or question is found by indexes: the audit grows for ever, and is never read whole."""

from uuid import uuid4

import pytest

from butlers.console.queries import approvals
from butlers.console.queries import history as history_shown
from messenger.storage import cards
from shared.config.timings import STANDARD
from shared.storage import history
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("text", "ids", "indexes"),
    [
        pytest.param(history.STEPS, 1, ("events_by_notification", "events_by_action"), id="life"),
        pytest.param(history_shown.EVENTS, 1, ("events_by_notification",), id="page of a message"),
        pytest.param(approvals.EVENTS, 2, ("events_by_notification", "events_by_action"), id="page of question"),
    ],
)
async def test_a_history_is_found_by_indexes(still_house: House, text: str, ids: int, indexes: tuple[str, ...]) -> None:
    plan = await still_house.plan_of(text, *(uuid4() for _ in range(ids)))
    assert [name for name in indexes if name not in plan] == [], plan


async def test_what_the_owner_said_of_a_question_is_found_by_an_index(still_house: House) -> None:
    plan = await still_house.plan_of(cards.ASK_APPROVALS, STANDARD.card_elsewhere, 3, STANDARD.burst_window)
    assert "events_of_the_owner" in plan, plan
