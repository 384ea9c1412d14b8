"""What is worked through some at a time: butlers take turns, so that the rows of one keep nobody else's waiting."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from uuid import UUID, uuid4

import pytest

from messenger.cards import digest
from messenger.storage import queries
from shared.config.timings import STANDARD
from shared.db.pool import Connection
from shared.gate.tool_call import RUN_WITHIN
from shared.storage import pending_actions, questions, tool_calls
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

# More than any of these lists holds; what one butler may have at once is less for open questions.
MANY: Final = 120
MANY_OPEN: Final = 100

CALL: Final = """
WITH call AS (
    INSERT INTO shared.pending_actions (id, origin_butler, tool_name, tool_args, content_sha, expires_at, status,
        requested_at)
    VALUES ($1, $2, 'prune', '{{}}', $1::uuid::text, now() + interval '1 day', '{status}',
        now() - $3::int * interval '1 hour'))
INSERT INTO shared.tool_calls (id, origin_butler, tool_name, arguments, says, risk, repeatable, holder, attempt,
    lease_until)
VALUES ($1, $2, 'prune', '{{}}', 'x', 'low', false, 'gone', 1, now() - interval '1 second')
"""
CLOSED: Final = """
INSERT INTO shared.questions (id, origin_butler, title, question, options, action_label, allow_text, urgency, about,
    status, surface, answered_by, choice, expires_at, closed_at)
SELECT $1, $2, 't', 'q', '{}', 'OK', false, 'normal', '{}', 'accepted', 'console', id, 'answer',
    now() + interval '1 day', now() - $3::int * interval '1 hour' FROM shared.contacts WHERE 'owner' = ANY (roles)
"""
RUN_OUT: Final = """
INSERT INTO shared.questions (id, origin_butler, title, question, options, action_label, allow_text, urgency, about,
    expires_at, asked_at)
VALUES ($1, $2, 't', 'q', '{}', 'OK', false, 'normal', '{}', now() - $3::int * interval '1 second',
    now() - $3::int * interval '1 hour')
"""
UNANSWERED: Final = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_args, expires_at)
VALUES ($1, $2, '{}', now() - $3::int * interval '1 second')
"""
LATE: Final = """
WITH told AS (
    INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
        third_party, not_after, status, answer)
    VALUES ($1, $2, $2, 'sandbox', $1::uuid::text, $1::uuid::text, 's',
        jsonb_build_object('origin_butler', $2::text), 'x', false, now(), 'queued', '{"status": "queued"}'))
INSERT INTO messenger.deliveries (notification_id, class, channel, address, realm, not_after, origin_butler, lineage)
VALUES ($1, 'owner', 'telegram', '1', 'sandbox', now() - $3::int * interval '1 second', $2, 'x')
"""


NOT_BROUGHT: Final = """
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
    third_party, not_after, status, answer)
VALUES ($1, $2, $2, 'sandbox', $1::uuid::text, $1::uuid::text, 's', jsonb_build_object('origin_butler', $2::text), 'x',
    false, now() - $3::int * interval '1 second', 'queued', '{"status": "queued"}')
"""


async def _unanswered(connection: Connection) -> Iterable[str]:
    return [row["id"] for row in await pending_actions.unanswered(connection)]


async def _untold(connection: Connection) -> Iterable[str]:
    return [row["id"] for row in await questions.untold(connection, STANDARD.question_heard)]


async def _expired(connection: Connection) -> Iterable[str]:
    await questions.expire_questions(connection)
    return [
        row["id"] for row in await connection.fetch("SELECT id::text FROM shared.questions WHERE status = 'expired'")
    ]


async def _silent(connection: Connection) -> Iterable[str]:
    return [row["id"] for row in await tool_calls.silent_calls(connection, STANDARD.lease)]


async def _overdue(connection: Connection) -> Iterable[str]:
    return await tool_calls.overdue_calls(connection, RUN_WITHIN)


async def _seen(connection: Connection) -> Iterable[str]:
    return [row["id"] for row in await queries.questions(connection, "telegram", digest.MOST)]


@pytest.mark.parametrize(
    ("insert", "some", "many"),
    [
        pytest.param(UNANSWERED, _unanswered, MANY, id="what nobody answered in time"),
        pytest.param(LATE, queries.overdue, MANY, id="messages past their time"),
        pytest.param(NOT_BROUGHT, queries.not_brought, MANY, id="messages past their time that nobody brought"),
        pytest.param(CLOSED, _untold, MANY, id="answers nobody waits for"),
        pytest.param(RUN_OUT, _expired, MANY_OPEN, id="questions past their time"),
        pytest.param(CALL.format(status="executing"), _silent, MANY, id="calls of a daemon that fell silent"),
        pytest.param(CALL.format(status="pending"), _seen, MANY, id="what the owner asks to see"),
        pytest.param(CALL.format(status="approved"), _overdue, MANY, id="calls nobody began in time"),
    ],
)
async def test_one_butlers_many_rows_keep_nobody_elses_waiting(
    still_house: House, insert: str, some: Callable[[Connection], Awaitable[Iterable[str]]], many: int
) -> None:
    """The other's is the last by its time and by its id; nothing of this is kept."""
    last = UUID(int=uuid4().int | 0xFF << 120)
    undone = still_house.sql.transaction()
    await undone.start()
    try:
        await still_house.sql.executemany(insert, [(UUID(int=n), "greeter", 50 + n) for n in range(many)])
        await still_house.sql.execute(insert, last, "health", 40)
        found = set(await some(still_house.sql))
    finally:
        await undone.rollback()
    assert str(last) in found
    assert len(found) > 1, "and some of the many"
