"""The history of one message or question is found by indexes: the audit grows for ever, and is never read whole."""

import re

import pytest

from butlers.console.queries import approvals
from butlers.console.queries import contacts as people
from butlers.console.queries import history as history_shown
from messenger.storage import cards, queries
from shared.config.timings import STANDARD
from shared.storage import (
    audit_seals,
    contacts,
    deliveries,
    history,
    pending_actions,
    questions,
    rules,
    session_list,
    session_steps,
)
from switchboard.storage import inbox
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

# So many questions that were answered, each with its card.
MANY = 1000
LONG_ANSWERED = """
WITH a AS (
    INSERT INTO shared.pending_actions (id, origin_butler, tool_args, status, expires_at)
    SELECT gen_random_uuid(), 'greeter', '{}', 'denied', clock_timestamp() FROM generate_series(1, $1) RETURNING id)
INSERT INTO messenger.deliveries (class, card_kind, channel, address, action_id, revision, origin_butler, status,
    reason, created_at, settled_at)
SELECT 'card', 'approval', 'telegram', '1', id, 1, 'greeter', 'sent', 'closed', clock_timestamp() - interval '30 days',
    clock_timestamp() FROM a
"""
OF_OTHERS = """
WITH made AS (INSERT INTO shared.contacts (name, roles) SELECT 'One of many', '{}' FROM generate_series(1, $1)
    RETURNING id)
INSERT INTO shared.contact_info (contact_id, type, value)
SELECT id, 'telegram', (8000000000000000 + row_number() OVER ())::text FROM made
"""


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        pytest.param(history.STEPS, ("events_by_notification", "events_by_action"), id="life"),
        pytest.param(history_shown.EVENTS, ("events_by_notification",), id="page of a message"),
        pytest.param(approvals.EVENTS, ("events_by_notification", "events_by_action"), id="page of question"),
        pytest.param(deliveries.ONE, ("deliveries_pkey",), id="delivery"),
        pytest.param(people.PERSON, ("contacts_pkey", "entries_of_a_contact"), id="page of a contact"),
        pytest.param(rules.ONE, ("approval_rules_pkey",), id="page of a rule"),
        pytest.param(pending_actions.ABOUT, ("actions_by_notification",), id="approvals of a message"),
        pytest.param(pending_actions.ONE, ("pending_actions_pkey", "tool_calls_pkey"), id="approval"),
        pytest.param(session_list.ONE, ("Index Cond: (id = $1)",), id="session"),
        pytest.param(session_steps.OF, ("session_steps_pkey",), id="steps of a session"),
        pytest.param(
            inbox.WROTE,
            ("deliveries_to_the_owner", "notifications_pkey"),
            id="who wrote to the owner last",
        ),
        pytest.param(queries.SIMILAR, ("deliveries_uncertain",), id="the same words that may have arrived"),
        pytest.param(audit_seals.LATEST, ("Index Cond: (seq < COALESCE",), id="further page of the audit"),
    ],
)
async def test_what_is_asked_for_is_found_by_indexes(still_house: House, text: str, indexes: tuple[str, ...]) -> None:
    plan = await still_house.plan_of(text)
    assert [name for name in indexes if name not in plan] == [], plan


BETWEEN = re.compile(r"Index Cond: \(\(\w*id >= \$1\) AND \(\w*id <= \$2\)\)")


@pytest.mark.parametrize("text", [pending_actions.BEGINS, questions.BEGINS, session_list.BEGINS])
async def test_what_an_id_begins_with_is_looked_up_in_an_index_and_no_further(still_house: House, text: str) -> None:
    plan = await still_house.plan_of(text)
    assert BETWEEN.search(plan), plan
    assert "Sort" not in plan, plan


@pytest.mark.parametrize(("text", "times"), [(deliveries.FIND, 2), (history.FIND, 3)], ids=["delivery", "life"])
async def test_each_id_a_message_is_meant_by_is_looked_up_in_an_index(
    still_house: House, text: str, times: int
) -> None:
    plan = await still_house.plan_of(text)
    assert len(BETWEEN.findall(plan)) == times, plan


async def test_what_the_owner_said_of_a_question_is_found_by_an_index(still_house: House) -> None:
    plan = await still_house.plan_of(cards.ASK_APPROVALS)
    assert "events_of_the_owner" in plan, plan


@pytest.mark.parametrize(
    ("many", "text", "within"),
    [
        pytest.param(
            LONG_ANSWERED, cards.ASK_APPROVALS, (STANDARD.card_elsewhere, 3, STANDARD.burst_window), id="cards"
        ),
        pytest.param(OF_OTHERS, contacts.BY_OWNER, ("telegram",), id="the owner's address"),
    ],
)
async def test_what_is_not_asked_for_is_not_looked_at(
    still_house: House, many: str, text: str, within: tuple[object, ...]
) -> None:
    undone = still_house.sql.transaction()
    await undone.start()
    try:
        await still_house.sql.execute(many, MANY)
        await still_house.sql.execute("ANALYZE shared.pending_actions, messenger.deliveries, shared.contact_info")
        rows = await still_house.sql.fetch(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT TEXT) {text}", *within)
    finally:
        await undone.rollback()
    plan = "\n".join(row[0] for row in rows)
    most = max(int(float(found)) for found in re.findall(r"actual rows=([\d.]+)", plan))
    assert most < MANY, plan


async def test_a_statement_is_planned_once_a_connection(still_house: House) -> None:
    text = "SELECT 1 + $1::int AS planned_once"
    async with still_house.context("greeter").db.work() as connection:
        for n in range(3):
            await connection.fetchval(text, n)
        plans = await connection.fetchrow(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement = $1", text
        )
    assert plans is not None
    assert tuple(plans) == (3, 0)
