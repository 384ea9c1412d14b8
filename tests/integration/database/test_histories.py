"""The history of one message or question is found by indexes: the audit grows for ever, and is never read whole."""

import re
from uuid import uuid4

import pytest

from butlers.console.queries import approvals
from butlers.console.queries import history as history_shown
from messenger.storage import cards
from shared.config.timings import STANDARD
from shared.storage import history
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

# So many questions that were answered, each with its card.
MANY = 5000
LONG_ANSWERED = """
WITH a AS (
    INSERT INTO shared.pending_actions (id, origin_butler, tool_args, status, expires_at)
    SELECT gen_random_uuid(), 'greeter', '{}', 'denied', clock_timestamp() FROM generate_series(1, $1) RETURNING id)
INSERT INTO messenger.deliveries (class, card_kind, channel, address, action_id, revision, origin_butler, status,
    reason, created_at, settled_at)
SELECT 'card', 'approval', 'telegram', '1', id, 1, 'greeter', 'sent', 'closed', clock_timestamp() - interval '30 days',
    clock_timestamp() FROM a
"""


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


async def test_cards_of_long_ago_are_not_looked_at(still_house: House) -> None:
    within = (STANDARD.card_elsewhere, 3, STANDARD.burst_window)
    undone = still_house.sql.transaction()
    await undone.start()
    try:
        await still_house.sql.execute(LONG_ANSWERED, MANY)
        await still_house.sql.execute("ANALYZE shared.pending_actions, messenger.deliveries")
        rows = await still_house.sql.fetch(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT TEXT) {cards.ASK_APPROVALS}", *within)
    finally:
        await undone.rollback()
    plan = "\n".join(row[0] for row in rows)
    most = max(int(float(found)) for found in re.findall(r"actual rows=([\d.]+)", plan))
    assert most < MANY, plan
