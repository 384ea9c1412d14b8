"""Rows that none of ours writes, tried cell by cell by the logins that might; and the longest that they do write."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final
from uuid import uuid4

import asyncpg
import pytest

from shared.auth import keystore
from shared.contracts import route_request
from shared.db import dsn
from tests.integration.house import House, Rows, opened
from tests.integration.workers import ACTION, admitted, new_chat
from tests.privileges.matrix import SCHEMAS
from tests.rig.cluster import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

# By column, as SQL; `me` is the login's name.
Row = Mapping[str, str]
NAMES: Final = ("greeter", "switchboard")
REFUSED: Final = asyncpg.InsufficientPrivilegeError
NOTIFICATION: Final = {
    "id": "gen_random_uuid()",
    "origin_butler": "'greeter'",
    "admitted_by": "shared.me()",
    "realm": "'sandbox'",
    "key": "gen_random_uuid()::text",
    "lineage": "'request:1'",
    "request_sha": "'sha'",
    "envelope": '\'{"origin_butler": "greeter", "delivery": {"message": "words"}}\'',
    "whom": "'recipient:4242'",
    "third_party": "true",
    "status": "'pending_approval'",
    "answer": "'{}'",
}
QUESTION: Final = {"origin_butler": "'greeter'", "tool_args": "'{}'"}
LINE: Final = {"event_type": "'tried'", "actor": "shared.me()"}


def nested(levels: int, inside: str = "1") -> str:
    """So many lists in one another."""
    return f"{'[' * levels}{inside}{']' * levels}"


def envelope(more: str) -> str:
    """An envelope with this beside its delivery."""
    return f'\'{{"origin_butler": "greeter", "delivery": {{"message": "words"}}, {more}}}\''


def numbers(form: str) -> list[str]:
    """JSON in which $ is a number that no double holds, or that is too long to be read."""
    beyond = ("1.8e308", "-1.8e308", "1" + "0" * 5000, "1e100000", "[[-1e400]]", '{"a": 1e400}')
    return [form.replace("$", n) for n in beyond]


def long(length: int) -> str:
    """Text of that length which nothing makes shorter."""
    return f"(SELECT left(string_agg(md5(n::text), ''), {length}) FROM generate_series(1, {length // 32 + 1}) n)"


def object_of(length: int) -> str:
    """A JSON object that is about so long."""
    return f"jsonb_build_object('x', {long(length)})"


ODD_NOTIFICATIONS: Final = [
    ("status", "'ok'"),
    ("status", "'uncertain'"),
    ("status", "'queued'"),  # for ever
    ("realm", long(1001)),
    ("key", long(201)),
    ("lineage", long(401)),
    ("whom", long(1101)),
    ("request_sha", long(65)),
    ("content_sha", long(65)),
    ("not_after", "'infinity'"),
    ("not_after", "'-infinity'"),
    ("not_after", "'20000-01-01'"),
    ("not_after", "clock_timestamp() + interval '25 hours'"),
    ("answer", '\'{"delivery": {"channel": "telegram", "delivery_id": "1"}}\''),
    ("answer", "'{\"delivery\": null}'"),
    *(("answer", f"'{value}'") for value in ("[]", '["delivery"]', "7", "null", '"x"')),
    *(("answer", f"'{value}'") for value in numbers('{"message": $}')),
    ("answer", f"'{{\"x\": {nested(32)}}}'"),
    ("answer", object_of(66_000)),
    *(("envelope", envelope(value)) for value in numbers('"request_context": {"n": $}')),
    ("envelope", envelope(f'"request_context": {nested(32)}')),
    ("envelope", envelope(f'"request_context": {nested(4000)}')),
    *(
        ("envelope", f'\'{{"origin_butler": "greeter", "delivery": {value}}}\'')
        for value in ("[]", '"x"', "7", "null", '{"message": 7}', '{"message": null}', '{"message": {}}')
    ),
    ("envelope", '\'{"origin_butler": "greeter"}\''),
]
ODD_QUESTIONS: Final = [
    ("tool_name", long(61)),
    ("agent_summary", long(4001)),
    ("session_id", long(201)),
    ("content_sha", long(65)),
    *(("tool_args", f"'{value}'") for value in ("[]", "7", "null", '"x"')),
    *(("tool_args", f"'{value}'") for value in numbers('{"n": $}')),
    ("tool_args", f"'{{\"x\": {nested(32)}}}'"),
    ("tool_args", object_of(200_000)),
    ("expires_at", "'infinity'"),
    ("expires_at", "'-infinity'"),
    ("expires_at", "clock_timestamp() + interval '3662 days'"),
    ("notification_id", "gen_random_uuid()"),
]
ODD_LINES: Final = [
    ("event_type", long(61)),
    ("reason", long(4001)),
    *(("detail", f"'{value}'") for value in ("[]", "7", "null", '"x"')),
    *(("detail", f"'{value}'") for value in numbers('{"n": $}')),
    ("detail", f"'{{\"x\": {nested(32)}}}'"),
    ("detail", object_of(17_000)),
    ("actor", "'owner'"),
]
# What honest rows reach, and a little more.
SOUND_NOTIFICATIONS: Final = [
    ("status", "'error'"),
    ("status", "'pending_approval'"),
    ("status", "'pending_missing_identifier'"),
    ("lineage", long(300)),
    ("whom", long(1007)),
    ("request_sha", long(64)),
    ("content_sha", long(64)),
    ("not_after", "NULL"),
    ("not_after", "clock_timestamp() + interval '24 hours'"),
    ("envelope", '\'{"origin_butler": "greeter", "delivery": {}}\''),
    ("envelope", envelope(f'"request_context": {nested(30)}')),
    ("envelope", envelope('"request_context": {"n": [18446744073709551615, -1.7976931348623157e308, 0.1, 1e-300]}')),
    ("answer", f"'{{\"x\": {nested(31)}}}'"),
    ("answer", '\'{"status": "pending_approval"}\''),
]
FAILED: Final = '{"class": "forbidden", "message": "no", "retryable": false}'
# Of a row that says `error`.
CONTRADICTIONS: Final = [
    ("answer", '\'{"status": "ok"}\''),
    ("answer", f'\'{{"status": "ok", "error": {FAILED}}}\''),
    ("answer", f'\'{{"status": 7, "error": {FAILED}}}\''),
    ("answer", f"jsonb_build_object('notification_id', gen_random_uuid(), 'error', '{FAILED}'::jsonb)"),
    ("status", "'pending_approval'"),
]


def statement(table: str, row: Row, schema: str = "shared") -> str:
    """The row as an INSERT."""
    return f"INSERT INTO {schema}.{table} ({', '.join(row)}) VALUES ({', '.join(row.values())})"


@asynccontextmanager
async def logged_in(house: House, name: str) -> AsyncIterator[Rows]:
    """A connection by the login of that daemon; nothing it does stays."""
    password = keystore.read(house.settings.home, name).password
    connection = await asyncpg.connect(dsn.dsn_as(house.dsn, name, password))
    try:
        await connection.execute("BEGIN")
        yield connection
    finally:
        await connection.close()


async def taken(house: House, name: str, table: str, row: Row) -> bool:
    """Whether the row gets in; what keeps it out is the policies and nothing else."""
    async with logged_in(house, name) as connection:
        try:
            await connection.execute(statement(table, row))
        except REFUSED:
            return False
        return True


def names(cells: list[tuple[str, str]]) -> list[str]:
    return [f"{column}-{n}" for n, (column, _) in enumerate(cells)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("column", "value"), ODD_NOTIFICATIONS, ids=names(ODD_NOTIFICATIONS))
async def test_an_odd_notification_is_refused(still_house: House, name: str, column: str, value: str) -> None:
    assert not await taken(still_house, name, "notifications", {**NOTIFICATION, column: value})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("column", "value"), SOUND_NOTIFICATIONS, ids=names(SOUND_NOTIFICATIONS))
async def test_a_notification_as_long_as_honest_ones_is_taken(
    still_house: House, name: str, column: str, value: str
) -> None:
    assert await taken(still_house, name, "notifications", {**NOTIFICATION, column: value})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("column", "value"), CONTRADICTIONS, ids=names(CONTRADICTIONS))
async def test_an_answer_that_contradicts_itself_or_its_row_is_refused(
    still_house: House, name: str, column: str, value: str
) -> None:
    answered = {**NOTIFICATION, "status": "'error'", "answer": f"'{{\"error\": {FAILED}}}'"}
    assert await taken(still_house, name, "notifications", answered)
    assert not await taken(still_house, name, "notifications", {**answered, column: value})


async def test_the_switchboard_admits_for_nobody_who_is_not_there(still_house: House) -> None:
    ghost = {"origin_butler": "'ghost'", "envelope": '\'{"origin_butler": "ghost", "delivery": {}}\''}
    assert not await taken(still_house, "switchboard", "notifications", {**NOTIFICATION, **ghost})
    assert not await taken(still_house, "switchboard", "pending_actions", {**QUESTION, "origin_butler": "'ghost'"})


@pytest.mark.parametrize(("column", "value"), ODD_QUESTIONS, ids=names(ODD_QUESTIONS))
async def test_an_odd_question_is_refused(still_house: House, column: str, value: str) -> None:
    assert await taken(still_house, "greeter", "pending_actions", QUESTION)
    assert not await taken(still_house, "greeter", "pending_actions", {**QUESTION, column: value})


async def test_the_switchboard_asks_only_about_what_it_admitted_and_for_whom(still_house: House) -> None:
    async with logged_in(still_house, "switchboard") as connection:
        own, other = uuid4(), await admitted(still_house, f"words {uuid4()}")
        await connection.execute(statement("notifications", {**NOTIFICATION, "id": f"'{own}'"}))
        for origin, about, lets in (("greeter", own, True), ("health", own, False), ("greeter", other, False)):
            row = {**QUESTION, "origin_butler": f"'{origin}'", "notification_id": f"'{about}'"}
            await connection.execute("SAVEPOINT s")
            try:
                await connection.execute(statement("pending_actions", row))
            except REFUSED:
                assert not lets, origin
            else:
                assert lets, origin
            await connection.execute("ROLLBACK TO s")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("column", "value"), ODD_LINES, ids=names(ODD_LINES))
async def test_an_odd_line_of_the_audit_is_refused(still_house: House, name: str, column: str, value: str) -> None:
    assert await taken(still_house, name, "approval_events", LINE)
    assert not await taken(still_house, name, "approval_events", {**LINE, column: value})


async def test_a_butlers_line_names_nothing_of_another(still_house: House) -> None:
    own, foreign = [await asked(still_house, butler) for butler in ("greeter", "health")]
    nothing = {"notification_id": "gen_random_uuid()", "action_id": "gen_random_uuid()"}
    for row, lets in (
        (own, True),
        ({**own, "action_id": nothing["action_id"]}, True),  # the action comes after its line
        ({"notification_id": own["notification_id"]}, True),
        (foreign, False),
        (nothing, False),
        ({"notification_id": foreign["notification_id"]}, False),
        ({"action_id": own["action_id"]}, False),
        ({"action_id": nothing["action_id"]}, False),
        ({**own, "action_id": foreign["action_id"]}, False),
    ):
        assert await taken(still_house, "greeter", "approval_events", {**LINE, **row}) is lets, row
    for row in (own, foreign):
        assert await taken(still_house, "switchboard", "approval_events", {**LINE, **row})


async def asked(house: House, butler: str) -> dict[str, str]:
    """A notification of that butler and the question about it, as SQL."""
    told = await admitted(house, f"words {uuid4()}", butler, recipient=new_chat())
    action = await house.row(ACTION, told)
    return {"notification_id": f"'{told}'", "action_id": f"'{action['id']}'"}


async def test_the_longest_that_a_butler_and_the_switchboard_honestly_write_is_taken(cluster: Cluster) -> None:
    """By each way in: allowed, parked, without an identifier; the owner has ten years to answer."""
    async with opened(cluster, loops=False, BUTLERS_APPROVAL_TTL="3660d") as house:
        nobody = await house.contact("N" * 200, email=f"{uuid4()}@example.test")
        context = {
            "request_id": "r" * 200,
            "deep": deep(18),
            "many": [0] * 6400,
            "ids": [2**64, 1.7976931348623157e308, -0.1],
        }
        message = "\U0001f600" * 10_000
        expected = {"owner": "queued", "parked": "pending_approval", "missing": "pending_missing_identifier"}
        whom = {"owner": {}, "parked": {"recipient": new_chat()}, "missing": {"contact_id": nobody}}
        for what, meant in whom.items():
            told = await admitted(house, message, "greeter", request_context=context, **meant)
            assert await house.status(told) == expected[what]
        delivery = {"intent": "send", "channel": "telegram", "message": message, "recipient": new_chat()}
        request = {"schema_version": "notify.v1", "origin_butler": "greeter", "delivery": delivery}
        request["request_context"] = {**context, "idempotency_key": "k" * 200}
        answer = await house.hop("greeter", "switchboard", "route", route_request(request, "greeter", "r"))
        assert answer["result"]["notify_response"]["status"] == "pending_approval", answer  # type: ignore[index]


def deep(levels: int) -> object:
    return [deep(levels - 1)] if levels else "inside"


FAR: Final = ("'250000-01-01Z'", "'infinity'", "'-infinity'", "'0044-03-15 BC'")
ASKED: Final = {
    "id": "gen_random_uuid()",
    "origin_butler": "'greeter'",
    "title": "'Milk'",
    "question": "'Which milk?'",
    "options": "'{Oat,Soy}'",
    "action_label": "'OK'",
    "urgency": "'high'",
    "about": '\'{"repo": "butlers"}\'',
    "expires_at": "clock_timestamp() + interval '1 day'",
}
ODD_ASKED: Final = [
    *((column, moment) for column in ("show_at", "remind_at", "until", "heard_until") for moment in FAR),
    *(("expires_at", moment) for moment in FAR[2:]),
    *(("about", f"'{value}'") for value in numbers('{"repo": $}') if "1e100000" not in value),
    ("about", f"'{{\"repo\": {nested(32)}}}'"),
    ("options", "'[0:2]={Yes,No,Maybe}'"),
    ("options", "'[2:3]={Yes,No}'"),
]


@pytest.mark.parametrize(("column", "value"), ODD_ASKED, ids=names(ODD_ASKED))
async def test_a_question_to_the_owner_that_a_reader_cannot_hold_is_refused(
    still_house: House, column: str, value: str
) -> None:
    async with logged_in(still_house, "greeter") as connection:
        await connection.execute(statement("questions", ASKED))
        with pytest.raises((REFUSED, asyncpg.CheckViolationError)):
            await connection.execute(statement("questions", {**ASKED, column: value}))


NAMES_OF_IT: Final = ("channel", "endpoint_identity", "external_event_id", "sender")
CAME: Final = {**dict.fromkeys((*NAMES_OF_IT, "text"), "'x'"), "request_context": "'{}'"}
WENT: Final = dict.fromkeys(("request_id", "origin_butler", "target_butler", "tool", "status"), "'x'")
LOOKED: Final = {"name": "'x'", "url": "'x'", "kind": "'butler'"}
LONGEST: Final = [
    *(("inbox", CAME, column, 1000) for column in (*NAMES_OF_IT, "thread")),
    ("inbox", CAME, "text", 100_000),
    *(("routes", WENT, column, 1000) for column in (*WENT, "error_class")),
    *(("butlers", LOOKED, column, 1000) for column in ("name", "url")),
]


@pytest.mark.parametrize(
    ("table", "row", "column", "most"), LONGEST, ids=[f"{table}-{column}" for table, _, column, _ in LONGEST]
)
async def test_a_row_of_the_switchboards_is_no_longer_than_what_it_takes_in(
    still_house: House, table: str, row: Row, column: str, most: int
) -> None:
    async with logged_in(still_house, "switchboard") as connection:
        await connection.execute(statement(table, {**row, column: long(most)}, "switchboard"))
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute(statement(table, {**row, column: long(most + 1)}, "switchboard"))


@pytest.mark.parametrize(("column", "most"), [("route_holder", 1000), ("routed_to", 31)])
async def test_it_says_no_more_of_where_a_message_went(still_house: House, column: str, most: int) -> None:
    routed = f"UPDATE switchboard.inbox SET {column} = "
    async with logged_in(still_house, "switchboard") as connection:
        await connection.execute(statement("inbox", CAME, "switchboard"))
        await connection.execute(routed + long(most))
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute(routed + long(most + 1))


async def test_it_says_not_when_a_message_came_in(still_house: House) -> None:
    """One of a day to come would stand behind every message of its chat, for good."""
    async with logged_in(still_house, "switchboard") as connection:
        await connection.execute(statement("inbox", CAME, "switchboard"))
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement("inbox", {**CAME, "received_at": "'2199-01-01Z'"}, "switchboard"))


WAITS: Final = {**CAME, "route_until": "clock_timestamp()", "request_context": '\'{"source_channel": "x"}\''}
ODD_WAITING: Final = [
    *(("route_until", moment) for moment in FAR),
    *(("request_context", f"'{value}'") for value in ("{}", "null", "[]", '{"source_channel": 5}')),
]


@pytest.mark.parametrize(("column", "value"), ODD_WAITING, ids=names(ODD_WAITING))
async def test_what_came_in_and_cannot_be_routed_is_refused(still_house: House, column: str, value: str) -> None:
    """One such row would keep all that people write from every butler."""
    async with logged_in(still_house, "switchboard") as connection:
        await connection.execute(statement("inbox", WAITS, "switchboard"))
        with pytest.raises((REFUSED, asyncpg.CheckViolationError)):
            await connection.execute(statement("inbox", {**WAITS, column: value}, "switchboard"))


SET_ITSELF: Final[Mapping[str, Row]] = {
    "schedules": {
        "id": "gen_random_uuid()",
        "butler": "'greeter'",
        "name": "'often'",
        "source": "'tool'",
        "zone": "'UTC'",
        "prompt": "'x'",
        "catch_up": "'once'",
        "once_at": "'2030-01-01Z'",
    },
    "occurrences": {
        "butler": "'greeter'",
        "due_at": "clock_timestamp()",
        "status": "'claimed'",
        "claimed_by": "'x'",
        "leased_until": "clock_timestamp()",
        "schedule_id": "(SELECT id FROM shared.schedules WHERE name = 'often')",
    },
    "state": {"butler": "'greeter'", "key": "'x'", "value": "'1'"},
}
ODD_SET: Final = [
    *(("schedules", column, moment) for column in ("created_at", "once_at", "next_due_at") for moment in FAR),
    *(("occurrences", column, moment) for column in ("due_at", "leased_until") for moment in FAR),
    *(("state", "changed_at", moment) for moment in FAR),
]


@pytest.mark.parametrize(("table", "column", "value"), ODD_SET)
async def test_a_time_of_what_a_butler_set_itself_can_be_read(
    still_house: House, table: str, column: str, value: str
) -> None:
    """One that cannot would keep all else that the butler has set itself from being done, for good."""
    async with logged_in(still_house, "greeter") as connection:
        if table == "occurrences":
            await connection.execute(statement("schedules", SET_ITSELF["schedules"]))
        row = SET_ITSELF[table]
        await connection.execute("SAVEPOINT fit")
        await connection.execute(statement(table, row))
        await connection.execute("ROLLBACK TO SAVEPOINT fit")
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute(statement(table, {**row, column: value}))


RULE: Final = """
INSERT INTO shared.approval_rules (tool_name, effect, arg_constraints) VALUES ('water', 'allow', '{}') RETURNING id
"""
LET_THROUGH: Final = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_name, tool_args, content_sha, agent_summary, expires_at,
    status, rule_id)
VALUES ($1, 'greeter', 'water', '{}', random()::text, '', clock_timestamp() + interval '1 day', 'approved', $2)
"""
CALL: Final = """
INSERT INTO shared.tool_calls (id, origin_butler, tool_name, arguments, says, risk, repeatable)
VALUES ($1, 'greeter', 'water', '{}', 'Water.', 'low', false)
"""
USE: Final = "INSERT INTO shared.rule_uses (rule_id, notification_id, n) VALUES ($1, $2, $3)"


@pytest.mark.parametrize("said", [2**31 - 1, 1_000_000, -1])
async def test_a_butler_says_nothing_of_which_use_of_a_rule_it_is(still_house: House, said: int) -> None:
    """A number after which there is none would end the rule for every butler."""
    rule = await still_house.sql.fetchval(RULE)
    async with logged_in(still_house, "greeter") as connection:
        for said_of_the_next in (said, 1):
            call = uuid4()
            await connection.execute(LET_THROUGH, call, rule)
            await connection.execute(CALL, call)
            await connection.execute(USE, rule, call, said_of_the_next)
        found = await connection.fetch("SELECT n FROM shared.rule_uses WHERE rule_id = $1 ORDER BY n", rule)
        assert [row["n"] for row in found] == [1, 2]
    await still_house.sql.execute("DELETE FROM shared.approval_rules WHERE id = $1", rule)


LAST: Final = import_module("migrations.versions.0065_no_row_stops_others")
AS_BEFORE: Final = """
ALTER TABLE shared.questions DROP CONSTRAINT times_that_can_be_read, DROP CONSTRAINT options_begin_at_one;
ALTER TABLE switchboard.inbox DROP CONSTRAINT inbox_routed_to_check;
ALTER TABLE shared.rule_uses DISABLE TRIGGER counted;
"""
PUT_RIGHT: Final = """
SELECT status, options, about::text, show_at, remind_at, until, heard_until, expires_at, closed_at
FROM shared.questions WHERE title = 'Milk'
"""


async def test_rows_of_before_that_the_checks_refuse_are_put_right(still_house: House) -> None:
    connection = await asyncpg.connect(still_house.dsn)
    try:
        await connection.execute(f"BEGIN; {AS_BEFORE}")
        over = {"status": "'withdrawn'", "closed_at": "clock_timestamp()"}
        for odd in [{column: value} for column, value in ODD_ASKED] + [{**over, "closed_at": far} for far in FAR]:
            await connection.execute(statement("questions", {**ASKED, **odd}))
        rule, call = await connection.fetchval(RULE), uuid4()
        await connection.execute(USE, rule, call, 2**31 - 1)
        await connection.execute(statement("inbox", {**CAME, "routed_to": long(10_000)}, "switchboard"))
        await connection.execute(LAST.PUT_RIGHT)
        await connection.execute(LAST.BOUNDS)
        found = await connection.fetch(PUT_RIGHT)
        assert await connection.fetchval("SELECT n FROM shared.rule_uses WHERE rule_id = $1", rule) is None
        assert await connection.fetchval("SELECT routed_to FROM switchboard.inbox WHERE channel = 'telegram'") is None
    finally:
        await connection.close()
    assert len(found) == len(ODD_ASKED) + len(FAR)
    kept = Counter(tuple(row["options"]) for row in found)
    assert kept == {("Oat", "Soy"): len(found) - 2, ("Yes", "No", "Maybe"): 1, ("Yes", "No"): 1}
    assert {row["about"] for row in found} == {'{"repo": "butlers"}', "{}"}
    assert Counter(row["status"] for row in found) == {"open": len(ODD_ASKED), "withdrawn": len(FAR)}


LONG_WORDS: Final = import_module("migrations.versions.0088_inbox_bounds")
UNCHECKED: Final = """
SELECT conname FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace
WHERE n.nspname = ANY ($1) AND NOT convalidated
"""


async def test_every_check_holds_for_what_was_there_before_it(still_house: House) -> None:
    """One row that it refuses would stop each statement that changes others beside it."""
    assert await still_house.sql.fetch(UNCHECKED, list(SCHEMAS)) == []
    connection = await asyncpg.connect(still_house.dsn)
    try:
        await connection.execute("BEGIN; ALTER TABLE switchboard.inbox DROP CONSTRAINT as_long_as_it_may_come")
        await connection.execute(statement("inbox", {**CAME, "text": long(150_000)}, "switchboard"))
        await connection.execute(LONG_WORDS.INBOX)
        assert await connection.fetchval("SELECT count(*) FROM switchboard.inbox WHERE length(text) > 100000") == 0
    finally:
        await connection.close()
