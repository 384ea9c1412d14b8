"""When a row goes for good: not before its time, never by a scan, never against another Messenger, never the audit."""

import ast
import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from messenger.maintenance import purger, reaper
from shared import retention
from shared.db.clock import Reading, now
from shared.storage import audit_bindings
from shared.telemetry.metrics import metrics_text
from tests.integration.database.test_privileges import logged_in, refused
from tests.integration.delivery.test_returned import mailed, read, report_of
from tests.integration.house import House, standing_work
from tests.integration.purged import ANCIENT, OLD, age, purge, row
from tests.integration.workers import friend, in_queue, work
from tests.rig.waiting import LONGEST, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Of each table one row that is over and one that is not yet, by days.
LEFTOVERS: Final = {
    "shared.request_windows": 1,
    "shared.client_tokens": 30,
    "switchboard.routes": 30,
    "messenger.updates": 7,
    "messenger.strangers": 1,
    "messenger.pairings": 1,
    "switchboard.inbox": 400,
    "messenger.deliveries": 30,
}
INSERT: Final = {
    "shared.request_windows": "(origin_butler, request_sha, lineage, first_at) VALUES ('greeter', $1, 'x', $2)",
    "shared.client_tokens": "(jti, butler, expires_at) VALUES ($1, 'greeter', $2)",
    "switchboard.routes": """
(request_id, origin_butler, target_butler, tool, status, at) VALUES ($1, 'greeter', 'messenger', 'x', 'ok', $2)
""",
    "messenger.updates": "(bot, update_id, body, handled_at) VALUES ($1, 1, '{}', $2)",
    "messenger.strangers": "(channel, sender, first_at, messages, bytes) VALUES ('email', $1, $2, 1, 1)",
    "messenger.pairings": "(code_sha, expires_at) VALUES ($1, $2)",
    "switchboard.inbox": """
(channel, endpoint_identity, external_event_id, sender, text, request_context, received_at)
VALUES ('telegram', 'bot', $1, '1', 'secret words', '{"request_id": "1"}', $2)
""",
    "messenger.deliveries": """
(class, card_kind, channel, address, status, claimed_by, settled_at)
VALUES ('card', 'strangers', 'telegram', '1', 'sent', $1, $2)
""",
}
# The old rows that a butler may hold.
OF_BUTLERS: Final = [
    pytest.param(
        "shared.sessions",
        "butler",
        """
INSERT INTO shared.sessions (id, butler, prompt, status, ended_at) VALUES (gen_random_uuid(), $1, 'x', 'done', $2)
""",
        id="sessions",
    ),
    pytest.param(
        "shared.questions",
        "origin_butler",
        """
INSERT INTO shared.questions (id, origin_butler, title, question, options, action_label, allow_text, urgency, about,
    status, expires_at, closed_at, told)
VALUES (gen_random_uuid(), $1, 't', 'q', '{}', 'OK', false, 'normal', '{}', 'expired', $2, $2, true)
""",
        id="questions",
    ),
    pytest.param(
        "shared.notices",
        "butler",
        "INSERT INTO shared.notices (butler, source, kind, text, created_at) VALUES ($1, 'x', 'x', 'x', $2)",
        id="notices",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "shared.occurrences",
        "butler",
        """
WITH due AS (
    INSERT INTO shared.schedules (butler, name, source, once_at, zone, prompt, catch_up, created_at)
    VALUES ($1, 'once', 'tool', $2, 'UTC', 'x', 'once', $2) RETURNING id)
INSERT INTO shared.occurrences (schedule_id, butler, due_at, status, ended_at) SELECT id, $1, $2, 'done', $2 FROM due
""",
        id="occurrences",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "shared.schedules",
        "butler",
        """
INSERT INTO shared.schedules (id, butler, name, source, once_at, zone, prompt, catch_up, created_at)
VALUES (('00000000-0000-4000-8000-0000000000' || CASE $1 WHEN 'health' THEN '01' ELSE '02' END)::uuid, $1, 'over',
    'tool', $2, 'UTC', 'x', 'once', $2)
""",
        id="schedules",
        marks=pytest.mark.slow,
    ),
]
# An old call and an old question of a butler, by their ids, and the cards about them.
CALL: Final = """
WITH call AS (
    INSERT INTO shared.pending_actions (id, origin_butler, tool_name, tool_args, content_sha, status, requested_at,
        expires_at)
    VALUES ($1, $2, 'prune', '{}', 'x', 'executed', $3, $3))
INSERT INTO shared.tool_calls (id, origin_butler, tool_name, arguments, says, risk, repeatable)
VALUES ($1, $2, 'prune', '{}', 'x', 'low', false)
"""
SAID_YES: Final = """
UPDATE shared.pending_actions SET decided_at = $2, wire_shas = '{x}' WHERE id = $1
"""
LINE_OF_THE_YES: Final = """
INSERT INTO shared.approval_events (event_type, action_id, actor, at, detail) VALUES ('approved', $1, 'owner', $2,
    jsonb_build_object('content', 'x', 'wire', encode(sha256('x'), 'hex'), 'revision', 1)) RETURNING seq
"""
CARD_OF_A_CALL: Final = """
INSERT INTO messenger.deliveries (class, card_kind, channel, address, action_id, revision)
VALUES ('card', 'tool_call', 'email', 'x', $1, 1)
"""
CLOSED: Final = """
INSERT INTO shared.questions (id, origin_butler, title, question, options, action_label, allow_text, urgency, about,
    status, expires_at, closed_at, told)
VALUES ($1, $2, 't', 'q', '{}', 'OK', false, 'normal', '{}', 'expired', $3, $3, true)
"""
CARD_OF_A_QUESTION: Final = """
INSERT INTO messenger.deliveries (class, card_kind, channel, address, about, revision)
VALUES ('card', 'question', 'email', 'x', $1, 1)
"""
CARD: Final = """
INSERT INTO messenger.deliveries (class, card_kind, channel, address, about, revision)
VALUES ('card', 'uncertain', 'email', 'x', $1, 1)
"""
WORD: Final = """
INSERT INTO shared.resolutions (delivery_id, attempt, word, by, surface) VALUES ($1, 1, 'leave', gen_random_uuid(), 'x')
"""
QUESTION: Final = """
INSERT INTO shared.pending_actions (origin_butler, tool_args, notification_id) VALUES ('greeter', '{}', $1)
"""
QUESTION_ABOUT_NOTHING: Final = """
INSERT INTO shared.pending_actions (origin_butler, tool_args, expires_at)
VALUES ('greeter', '{}', clock_timestamp() - interval '1 second') RETURNING id
"""
LONG_AGO: Final = datetime(2020, 1, 1, tzinfo=UTC)
BUSY: Final = (
    "shared.notifications",
    "shared.pending_actions",
    "shared.resolutions",
    "shared.withdrawals",
    "messenger.deliveries",
    "messenger.attempts",
    "messenger.parts",
    "messenger.digest_items",
    "switchboard.routes",
    "switchboard.inbox",
)


def counted(table: str, how: str) -> float:
    """What the metric says."""
    for family in text_string_to_metric_families(metrics_text().decode()):
        for sample in family.samples:
            if sample.name == "butlers_purged_rows_total" and sample.labels == {"table": table, "how": how}:
                return sample.value
    return 0


async def ended(house: House) -> str:
    """A message that went by mail, old enough to be wiped."""
    told = await mailed(house, f"words {uuid4()}", f"{uuid4().hex}@example.org")
    await age(house, told, OLD)
    return told


@pytest.mark.parametrize("table", LEFTOVERS)
async def test_a_row_goes_after_its_days_and_not_before(still_house: House, table: str) -> None:
    days, over, young = LEFTOVERS[table], uuid4().hex, uuid4().hex
    now = await still_house.sql.fetchval("SELECT clock_timestamp()")
    for name, moment in ((over, timedelta(minutes=-1)), (young, timedelta(minutes=1))):
        await still_house.sql.execute(f"INSERT INTO {table} {INSERT[table]}", name, now - timedelta(days=days) + moment)
    before = counted(table, "removed")
    await purge(still_house)
    left = "\n".join(str(line) for line in await still_house.sql.fetch(f"SELECT * FROM {table}"))
    assert over not in left
    assert young in left
    assert counted(table, "removed") > before


async def test_inbound_words_are_wiped_long_before_their_row_goes(still_house: House) -> None:
    event = uuid4().hex
    now = await still_house.sql.fetchval("SELECT clock_timestamp()")
    await still_house.sql.execute(
        f"INSERT INTO switchboard.inbox {INSERT['switchboard.inbox']}", event, now - timedelta(days=31)
    )
    await purge(still_house)
    found = await still_house.row("SELECT * FROM switchboard.inbox WHERE external_event_id = $1", event)
    assert (found["text"], found["request_context"], found["sender"]) == (retention.WIPED, {}, "1")


async def test_an_update_that_nobody_handled_stays(still_house: House) -> None:
    bot = uuid4().hex
    text = "INSERT INTO messenger.updates (bot, update_id, body, received_at) VALUES ($1, 1, '{}', '2020-01-01')"
    await still_house.sql.execute(text, bot)
    await purge(still_house)
    assert await still_house.sql.fetchval("SELECT count(*) FROM messenger.updates WHERE bot = $1", bot) == 1


async def test_after_its_fence_a_message_goes_with_all_that_belongs_to_it_but_the_audit(still_house: House) -> None:
    told = await ended(still_house)
    delivery = (await still_house.delivery(told))["id"]
    await read(still_house, await report_of(still_house, told))
    await still_house.sql.execute(CARD, delivery)
    await still_house.sql.execute(WORD, delivery)
    events = "SELECT count(*) FROM shared.approval_events WHERE notification_id = $1"
    said = await still_house.sql.fetchval(events, told)
    assert said > 0
    await age(still_house, told, OLD)
    await purge(still_house)
    await age(still_house, told, 370)
    # The report of its bounce has made it 31 days younger than its words.
    await purge(still_house)
    assert await still_house.sql.fetchval("SELECT count(*) FROM shared.notifications WHERE id = $1", told) == 0
    for text in (
        "SELECT count(*) FROM messenger.deliveries WHERE id = $1 OR about = $1",
        "SELECT count(*) FROM messenger.parts WHERE delivery_id = $1",
        "SELECT count(*) FROM messenger.attempts WHERE delivery_id = $1",
        "SELECT count(*) FROM shared.resolutions WHERE delivery_id = $1",
    ):
        assert await still_house.sql.fetchval(text, delivery) == 0, text
    assert await still_house.sql.fetchval(events, told) == said


async def test_what_is_said_after_the_wipe_is_wiped_in_its_turn(still_house: House) -> None:
    told = await ended(still_house)
    await purge(still_house)
    assert (await row(still_house, told))["wiped_at"] is not None
    assert await read(still_house, await report_of(still_house, told)) == "bounced"
    said = await row(still_house, told)
    assert (said["wiped_at"], said["status"]) == (None, "error")
    assert "nobody of that name" in str(said["answer"])
    await age(still_house, told, OLD)
    assert await purge(still_house) == 1
    assert "nobody of that name" not in str((await row(still_house, told))["answer"])


async def test_the_audit_holds_no_word_of_a_provider_or_of_a_far_end(still_house: House) -> None:
    told = await ended(still_house)
    await read(still_house, await report_of(still_house, told))
    words = f"words {uuid4()}"
    await still_house.fault(words, "400", times=1)
    refused_one = await in_queue(still_house, words, contact_id=await friend(still_house))
    await work(still_house.worker())
    assert await still_house.status(refused_one) == "error"
    kept = await still_house.sql.fetchval("SELECT string_agg(e::text, E'\\n') FROM shared.approval_events e")
    for quoted in ("nobody of that name", words, "Bad Request"):
        assert quoted not in kept


async def test_what_another_holds_is_left_for_later(still_house: House) -> None:
    held, free = await ended(still_house), await ended(still_house)
    async with standing_work(still_house.context("messenger").db) as connection:
        await connection.execute(
            "SELECT FROM shared.notifications WHERE id = $1 FOR UPDATE", await as_id(still_house, held)
        )
        async with asyncio.timeout(LONGEST):
            await purge(still_house)
        assert (await row(still_house, free))["wiped_at"] is not None
        assert (await row(still_house, held))["wiped_at"] is None
    await purge(still_house)
    assert (await row(still_house, held))["wiped_at"] is not None


@pytest.mark.parametrize(("table", "owner", "insert"), OF_BUTLERS)
async def test_a_butler_that_holds_rows_of_its_own_keeps_those_alone(
    still_house: House, table: str, owner: str, insert: str
) -> None:
    here = [row[0] for row in await still_house.sql.fetch(f"SELECT id::text FROM {table}")]
    left = f"SELECT DISTINCT {owner} FROM {table} WHERE id <> ALL ($1::text[]::uuid[])"
    for n, butler in enumerate(("health", "greeter")):
        await still_house.sql.execute(insert, butler, LONG_AGO + timedelta(days=n))
    async with logged_in(still_house, "health") as held:
        assert await held.fetch(f"SELECT FROM {table} WHERE {owner} = 'health' FOR UPDATE")
        async with asyncio.timeout(LONGEST):
            await purge(still_house)
        assert {row[0] for row in await still_house.sql.fetch(left, here)} == {"health"}
    await purge(still_house)
    assert await still_house.sql.fetch(left, here) == []


async def test_a_call_stays_as_long_as_the_audit_is_compared_with_what_was_said_of_it(still_house: House) -> None:
    called, at = str(uuid4()), datetime.now(UTC) - timedelta(days=400)
    await still_house.sql.execute(CALL, called, "greeter", at - timedelta(hours=1))
    await still_house.sql.execute(SAID_YES, called, at + timedelta(hours=1))
    line = await still_house.sql.fetchval(LINE_OF_THE_YES, called, at + timedelta(hours=1))
    await purge(still_house)
    compared = await audit_bindings.compare(still_house.sql)
    await still_house.sql.execute("DELETE FROM shared.pending_actions WHERE id = $1", called)
    assert [differs.text for differs in compared.differs if differs.seq == line] == []


@pytest.mark.parametrize(
    ("insert", "card", "holds", "left"),
    [
        pytest.param(CALL, CARD_OF_A_CALL, "shared.tool_calls", "shared.pending_actions", id="calls"),
        pytest.param(CLOSED, CARD_OF_A_QUESTION, "shared.questions", "shared.questions", id="questions"),
    ],
)
async def test_what_a_butler_holds_keeps_nobody_elses_card_however_few_go_at_once(
    still_house: House, insert: str, card: str, holds: str, left: str
) -> None:
    held, free = str(uuid4()), str(uuid4())
    await still_house.sql.execute(insert, held, "health", LONG_AGO)
    await still_house.sql.execute(insert, free, "greeter", LONG_AGO + timedelta(days=1))
    await still_house.sql.execute(card, free)
    there = f"SELECT id::text FROM {left} WHERE id = ANY ($1::text[]::uuid[])"
    async with logged_in(still_house, "health") as holder:
        assert await holder.fetch(f"SELECT FROM {holds} WHERE id = $1 FOR UPDATE", held)
        async with asyncio.timeout(LONGEST):
            await purge(still_house, batch=1)
        assert [row["id"] for row in await still_house.sql.fetch(there, [held, free])] == [held]
    await purge(still_house)
    assert await still_house.sql.fetch(there, [held, free]) == []


async def test_a_question_put_to_an_old_message_keeps_it_and_stops_nothing_else(still_house: House) -> None:
    told, other, swept = await ended(still_house), await ended(still_house), uuid4().hex
    await purge(still_house)
    for one in (told, other):
        await age(still_house, one, ANCIENT)
    await still_house.sql.execute(QUESTION, told)
    await still_house.sql.execute(f"INSERT INTO messenger.updates {INSERT['messenger.updates']}", swept, LONG_AGO)
    await purge(still_house)
    assert (await row(still_house, told))["wiped_at"] is not None
    await still_house.sql.execute("DELETE FROM shared.pending_actions WHERE notification_id = $1", told)
    assert await still_house.sql.fetchval("SELECT count(*) FROM shared.notifications WHERE id = $1", other) == 0
    assert await still_house.sql.fetchval("SELECT count(*) FROM messenger.updates WHERE bot = $1", swept) == 0


async def test_a_step_that_fails_stops_no_other(still_house: House) -> None:
    told, swept = await ended(still_house), uuid4().hex
    await purge(still_house)
    await age(still_house, told, ANCIENT)
    await still_house.sql.execute(f"INSERT INTO messenger.updates {INSERT['messenger.updates']}", swept, LONG_AGO)
    await still_house.sql.execute("REVOKE DELETE ON shared.notifications FROM butlers_group_messenger")
    try:
        await purge(still_house)
    finally:
        await still_house.sql.execute("GRANT DELETE ON shared.notifications TO butlers_group_messenger")
    assert (await row(still_house, told))["wiped_at"] is not None
    assert await still_house.sql.fetchval("SELECT count(*) FROM messenger.updates WHERE bot = $1", swept) == 0


AGAIN: Final = """
CREATE FUNCTION pg_temp.again() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO shared.request_windows SELECT (OLD).*;
    RETURN NULL;
END $$;
CREATE TRIGGER again AFTER DELETE ON shared.request_windows FOR EACH ROW EXECUTE FUNCTION pg_temp.again()
"""


async def test_old_rows_that_come_without_end_keep_no_others_from_being_taken_away(still_house: House) -> None:
    where, stopping = uuid4().hex, asyncio.Event()
    await still_house.sql.execute(
        f"INSERT INTO shared.request_windows {INSERT['shared.request_windows']}", where, LONG_AGO
    )
    await still_house.sql.execute(f"INSERT INTO messenger.pairings {INSERT['messenger.pairings']}", where, LONG_AGO)
    await still_house.sql.execute(f"INSERT INTO switchboard.inbox {INSERT['switchboard.inbox']}", where, LONG_AGO)
    await still_house.sql.execute(AGAIN)
    left = "SELECT count(*) FROM switchboard.inbox WHERE external_event_id = $1"

    async def is_gone() -> bool:
        return bool(await still_house.sql.fetchval(left, where) == 0)

    try:
        async with still_house.context("messenger").db.work() as connection:
            by = (await now(connection)) + 1
        round_ = asyncio.create_task(purger.purge(still_house.context("messenger").db, by, stopping))
        await eventually(is_gone)
        stopping.set()
        await round_
    finally:
        await still_house.sql.execute("DROP TRIGGER again ON shared.request_windows")
    await purge(still_house)


async def test_a_question_about_no_message_ends_when_its_time_is_over(still_house: House) -> None:
    action = await still_house.sql.fetchval(QUESTION_ABOUT_NOTHING)
    async with still_house.context("messenger").db.work() as connection:
        assert await reaper.close_unanswered(connection) >= 1
    found = await still_house.row("SELECT status FROM shared.pending_actions WHERE id = $1", str(action))
    assert found["status"] == "expired"


async def as_id(house: House, told: str) -> object:
    async with house.context("messenger").db.work() as connection:
        return await connection.fetchval("SELECT id FROM shared.notifications WHERE id::text = $1", told)


async def test_several_at_once_do_each_row_once(still_house: House) -> None:
    told = [await ended(still_house) for _ in range(6)]
    before = counted("shared.notifications", "wiped")
    await asyncio.gather(*(purge(still_house, batch=2) for _ in range(3)))
    await purge(still_house)
    assert all([(await row(still_house, one))["wiped_at"] is not None for one in told])
    assert counted("shared.notifications", "wiped") - before == len(told)


async def test_it_runs_by_itself_and_ends_when_told(still_house: House) -> None:
    told, stopping = await ended(still_house), asyncio.Event()
    pace = purger.Pace(first=0.01, every=0.05)
    running = asyncio.ensure_future(purger.run(still_house.context("messenger"), 0.5, stopping, pace))

    async def wiped() -> bool:
        return (await row(still_house, told))["wiped_at"] is not None

    await eventually(wiped)
    stopping.set()
    async with asyncio.timeout(LONGEST):
        await running


async def test_only_what_was_over_a_round_ago_goes_and_never_across_a_jump(still_house: House) -> None:
    db, stopping = still_house.context("messenger").db, asyncio.Event()
    told, ticks = await ended(still_house), iter((0.0, 3600.0, 3600.0, 3600.0))

    async def next_round(earlier: Reading | None) -> tuple[Reading | None, bool]:
        later = await purger.round_after(db, earlier, lambda: next(ticks), stopping)
        return later, (await row(still_house, told))["wiped_at"] is not None

    first, is_wiped = await next_round(None)
    assert not is_wiped, "the first round looks at the clock only"
    second, is_wiped = await next_round(first)
    assert not is_wiped, "an hour has passed here, and none by the database"
    third, is_wiped = await next_round(second)
    assert third is not None
    assert is_wiped
    other, two_days = await ended(still_house), 2 * 86400.0
    long_ago = Reading(third.ticks - two_days, third.database - two_days)
    await purger.round_after(db, long_ago, lambda: next(ticks), stopping)
    assert (await row(still_house, other))["wiped_at"] is None, "it was not over then"


@pytest.mark.parametrize(
    "text",
    [
        *(purger.ENDED, purger.OVER, *(chore.text for chore in purger.CHORES)),
        *(purger.WIPE_PARTS, purger.WIPE_ATTEMPTS, *purger.REMOVE),
    ],
)
async def test_what_is_old_is_found_by_an_index(still_house: House, text: str) -> None:
    plan = await still_house.plan_of(text)
    assert [table for table in BUSY if f"Seq Scan on {table.partition('.')[2]}" in plan] == [], plan


async def test_no_clock_but_the_databases_says_what_is_old() -> None:
    source = inspect.getsource(purger)
    named = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    named |= {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    assert named & {"time", "datetime", "now", "monotonic", "utcnow", "date", "today"} == set()
    for text in (purger.ENDED, purger.OVER, *(chore.text for chore in purger.CHORES)):
        assert "< to_timestamp($1::float8)" in text
        assert "clock_timestamp()" not in text


async def test_the_messenger_can_take_away_only_what_is_over(still_house: House) -> None:
    told = await ended(still_house)
    await purge(still_house)
    for text in ("DELETE FROM shared.notifications", "DELETE FROM shared.pending_actions"):
        async with logged_in(still_house, "messenger") as connection:
            assert await connection.execute(text) == "DELETE 0"
    await still_house.sql.execute("INSERT INTO shared.client_tokens VALUES ($1, 'x', now(), now())", uuid4().hex)
    async with logged_in(still_house, "messenger") as connection:
        assert await connection.execute("DELETE FROM shared.client_tokens") == "DELETE 0"
    for text in (
        "DELETE FROM shared.approval_events",
        "UPDATE shared.approval_events SET reason = NULL",
        "TRUNCATE shared.approval_events",
        "DELETE FROM shared.approval_rules",
        "DELETE FROM shared.contacts",
        "UPDATE switchboard.inbox SET sender = 'x'",
        "SELECT request_id FROM switchboard.routes",
    ):
        await refused(still_house, "messenger", text)
    for name in ("greeter", "switchboard", "console"):
        await refused(still_house, name, "DELETE FROM shared.notifications")
    assert (await row(still_house, told))["wiped_at"] is not None
