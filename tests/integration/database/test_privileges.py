"""What each login may do to the rows, tried with the login itself: no row a butler writes is authority."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest

from shared.auth import keystore
from shared.db import dsn
from tests.integration.house import NAMES, House, Rows
from tests.integration.workers import ACTION, OLDER, admitted, new_chat
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERYBODY = (*NAMES, "console", keystore.OWNER)
BUTLERS = ("greeter", "health")
MOVERS = (*BUTLERS, "switchboard")
# A view over more than one table takes no row from anybody.
REFUSED = asyncpg.InsufficientPrivilegeError, asyncpg.ObjectNotInPrerequisiteStateError
INSERT = """
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, content_sha,
    envelope, whom, third_party, not_after, status, answer)
VALUES ($1, $2, $3, 'sandbox', $4, 'request:1', 'sha', NULL, $5, $6, $7, clock_timestamp() + interval '1 day', $8,
    jsonb_build_object('status', $8::text))
"""
PARK = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_args, content_sha, agent_summary, notification_id,
    expires_at)
VALUES (gen_random_uuid(), $1, '{}', 'sha', 'mine', $2, clock_timestamp() + interval '1 day')
"""
DECIDE = "UPDATE shared.pending_actions SET status = 'approved', decided_by = gen_random_uuid() WHERE id = $1"
RULE = 'INSERT INTO shared.approval_rules (arg_constraints) VALUES (\'{"recipient": "1"}\')'
CONTACT = "INSERT INTO shared.contacts (name, roles) VALUES ('Mallory', '{}')"
ENTRY = "INSERT INTO shared.contact_info (contact_id, type, value) SELECT id, 'telegram', '666' FROM shared.contacts"
RECEIVED = """
INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, thread, sender, text, routed_to,
    request_context)
VALUES ('telegram', '1', gen_random_uuid()::text, $1, 'Some@Body', 'secret words', $2, '{}')
"""
EVENT = "INSERT INTO shared.approval_events (event_type, actor) VALUES ('approved', $1)"


@asynccontextmanager
async def logged_in(house: House, name: str) -> AsyncIterator[Rows]:
    """A connection by the login of that daemon; nothing it does stays."""
    keys = keystore.read(house.settings.home, name)
    connection = await asyncpg.connect(dsn.dsn_as(house.dsn, name, keys.password))
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection
    finally:
        await connection.close()


async def refused(house: House, name: str, text: str, *values: object) -> None:
    async with logged_in(house, name) as connection:
        with pytest.raises(REFUSED):
            await connection.execute(text, *values)


def row(origin: str, admitted_by: str, **more: str) -> tuple[object, ...]:
    """The values of a forged notification to somebody else that calls itself allowed."""
    delivery = {"intent": "send", "channel": "telegram", "message": more.get("message", "forged")}
    envelope = {"schema_version": "notify.v1", "origin_butler": origin, "delivery": delivery}
    whom, status = more.get("whom", "recipient:4242"), more.get("status", "queued")
    return uuid4(), origin, admitted_by, uuid4().hex, json.dumps(envelope), whom, False, status


@pytest.mark.parametrize("name", BUTLERS)
async def test_a_butler_sees_its_own_notifications_only(still_house: House, message: str, name: str) -> None:
    ids = {butler: await admitted(still_house, message, butler) for butler in BUTLERS}
    async with logged_in(still_house, name) as connection:
        rows = await connection.fetch(
            "SELECT notification_id::text AS id, origin_butler FROM shared.notification_status"
        )
    assert {row["origin_butler"] for row in rows} == {name}
    assert ids[name] in {row["id"] for row in rows}


@pytest.mark.parametrize("name", BUTLERS)
@pytest.mark.parametrize("table", ["shared.notifications", "shared.approval_events"])
async def test_a_butler_does_not_read_the_rows_behind_them(still_house: House, name: str, table: str) -> None:
    async with logged_in(still_house, name) as connection:
        with pytest.raises(REFUSED):
            await connection.fetch(f"SELECT * FROM {table}")


CALLED = """
WITH a AS (INSERT INTO shared.pending_actions (id, origin_butler, tool_name, tool_args, content_sha, status)
    VALUES (gen_random_uuid(), $1, 'water', '{}', gen_random_uuid()::text, $2) RETURNING id, notification_id)
SELECT id::text FROM a
"""


@pytest.mark.parametrize("name", BUTLERS)
async def test_a_butler_sees_of_the_actions_its_own_calls_only(still_house: House, message: str, name: str) -> None:
    await admitted(still_house, message, name, contact_id=await still_house.contact("Zoe", telegram=new_chat()))
    calls = {butler: await still_house.sql.fetchval(CALLED, butler, "pending") for butler in BUTLERS}
    async with logged_in(still_house, name) as connection:
        rows = await connection.fetch("SELECT id::text, origin_butler, notification_id FROM shared.pending_actions")
    assert {(row["origin_butler"], row["notification_id"]) for row in rows} == {(name, None)}
    assert calls[name] in {row["id"] for row in rows}


@pytest.mark.parametrize("name", MOVERS)
@pytest.mark.parametrize("to", ["approved", "executing", "executed"])
async def test_nobody_who_asks_answers_its_own_call(still_house: House, name: str, to: str) -> None:
    call = await still_house.sql.fetchval(CALLED, name, "pending")
    async with logged_in(still_house, name) as connection:
        text = "UPDATE shared.pending_actions SET status = $2 WHERE id::text = $1"
        assert await connection.execute(text, call, to) == "UPDATE 0"
        with pytest.raises(REFUSED):
            await connection.execute("UPDATE shared.pending_actions SET decided_by = gen_random_uuid()")


@pytest.mark.parametrize("name", BUTLERS)
async def test_a_butler_runs_what_was_let_through_and_undoes_no_end(still_house: House, name: str) -> None:
    call = await still_house.sql.fetchval(CALLED, name, "approved")
    text = "UPDATE shared.pending_actions SET status = $2 WHERE id::text = $1"
    await refused(still_house, name, text, call, "denied")
    async with logged_in(still_house, name) as connection:
        for to, moved in (("executing", 1), ("executed", 1), ("approved", 0), ("executing", 0)):
            assert await connection.execute(text, call, to) == f"UPDATE {moved}"


@pytest.mark.parametrize("name", BUTLERS)
async def test_a_butler_has_no_way_to_deliveries_and_inbox(still_house: House, name: str) -> None:
    tables = ("deliveries", "mailboxes", "updates")
    for table in (*(f"messenger.{name}" for name in tables), "switchboard.inbox", "switchboard.routes"):
        await refused(still_house, name, f"SELECT count(*) FROM {table}")


@pytest.mark.parametrize("name", BUTLERS)
async def test_a_butler_sees_the_threads_routed_to_it_only(still_house: House, name: str) -> None:
    thread = f"{new_chat()}:1"
    for butler in (*BUTLERS, None):
        await still_house.sql.execute(RECEIVED, thread, butler)
    async with logged_in(still_house, name) as connection:
        rows = await connection.fetch("SELECT * FROM shared.threads")
    assert {row["butler"] for row in rows} == {name}
    assert [dict(row) for row in rows if row["thread"] == thread] == [
        {"butler": name, "channel": "telegram", "thread": thread, "sender": "some@body", "endpoint": "1"}
    ]


@pytest.mark.parametrize("name", EVERYBODY)
async def test_nobody_makes_a_proof_of_a_thread_by_its_view(still_house: House, name: str) -> None:
    text = "INSERT INTO shared.threads (butler, channel, thread) VALUES ('greeter', 'telegram', '1:1')"
    await refused(still_house, name, text)
    await refused(still_house, name, "UPDATE shared.threads SET butler = 'greeter'")


@pytest.mark.parametrize("name", [*MOVERS, "console"])
async def test_nobody_speaks_as_another_origin(still_house: House, name: str) -> None:
    others = [other for other in ("health", "greeter") if other != name]
    await refused(still_house, name, INSERT, *row(others[0], others[0]))


@pytest.mark.parametrize("name", BUTLERS)
async def test_a_butler_admits_only_as_itself(still_house: House, name: str) -> None:
    other = next(other for other in BUTLERS if other != name)
    await refused(still_house, name, INSERT, *row(other, name))
    await refused(still_house, name, INSERT, *row(name, other))
    await refused(still_house, name, INSERT, *row(name, "messenger"))
    async with logged_in(still_house, name) as connection:
        await connection.execute(INSERT, *row(name, name))


async def test_the_switchboard_admits_for_others_only_under_its_own_name(still_house: House) -> None:
    await refused(still_house, "switchboard", INSERT, *row("greeter", "greeter"))
    async with logged_in(still_house, "switchboard") as connection:
        await connection.execute(INSERT, *row("greeter", "switchboard"))


async def test_the_messenger_admits_for_nobody_else(still_house: House) -> None:
    await refused(still_house, "messenger", INSERT, *row("greeter", "messenger"))
    async with logged_in(still_house, "messenger") as connection:
        await connection.execute(INSERT, *row("messenger", "messenger"))


@pytest.mark.parametrize("name", MOVERS)
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE shared.notifications SET status = 'queued'",
        "UPDATE shared.notifications SET envelope = '{}'",
        "DELETE FROM shared.notifications",
        "DELETE FROM shared.pending_actions",
        "UPDATE shared.approval_rules SET max_uses = NULL",
        "DELETE FROM shared.approval_rules",
        "INSERT INTO shared.brakes DEFAULT VALUES",
        "UPDATE shared.brakes SET lifted_at = clock_timestamp()",
        "DELETE FROM shared.rule_uses",
        "UPDATE shared.contact_info SET value = '666'",
        "UPDATE shared.contacts SET roles = '{owner}'",
        "UPDATE shared.channels SET realm = 'sandbox'",
        "UPDATE shared.authority SET epoch = 1",
        "LOCK TABLE shared.authority IN SHARE MODE",
        "INSERT INTO shared.keyring VALUES ('greeter', 'key')",
        "UPDATE shared.keyring SET public_key = 'key'",
        "INSERT INTO shared.client_tokens VALUES ('jti', 'greeter')",
        "UPDATE messenger.deliveries SET status = 'queued'",
        "INSERT INTO messenger.deliveries (class, channel, address) VALUES ('owner', 'telegram', '1')",
        "UPDATE messenger.parts SET status = 'queued'",
        "INSERT INTO shared.resolutions DEFAULT VALUES",
        "SELECT * FROM shared.resolutions",
        "CREATE TABLE public.mine ()",
        "SET ROLE butlers_group_messenger",
        "SET SESSION AUTHORIZATION postgres",
        RULE,
        CONTACT,
        ENTRY,
    ],
)
async def test_who_moves_messages_changes_nothing_that_gives_authority(
    still_house: House, name: str, change: str
) -> None:
    async with logged_in(still_house, name) as connection:
        with pytest.raises(asyncpg.PostgresError) as found:
            await connection.execute(change)
    assert isinstance(found.value, REFUSED), found.value


@pytest.mark.parametrize("name", MOVERS)
async def test_who_moves_messages_does_not_decide(still_house: House, message: str, name: str) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Zoe", telegram=new_chat()))
    action = await still_house.row(ACTION, told)
    await refused(still_house, name, DECIDE, action["id"])


async def test_the_switchboard_asks_about_messages_that_it_admitted_and_nothing_else(still_house: House) -> None:
    await refused(still_house, "switchboard", PARK, "greeter", None)
    own = row("greeter", "switchboard", status="pending_approval")
    async with logged_in(still_house, "switchboard") as connection:
        await connection.execute(INSERT, *own)
        await connection.execute(PARK, "greeter", own[0])


@pytest.mark.parametrize("name", MOVERS)
@pytest.mark.parametrize("column", ["status", "decided_by", "decided_at", "wire_shas", "rule_id", "execution_result"])
async def test_nobody_inserts_an_action_that_is_decided(still_house: House, name: str, column: str) -> None:
    value = {"status": "'approved'", "wire_shas": "'{}'", "decided_at": "now()", "execution_result": "'{}'"}
    text = f"INSERT INTO shared.pending_actions (origin_butler, tool_args, {column}) VALUES ($1, '{{}}', "
    await refused(still_house, name, f"{text}{value.get(column, 'gen_random_uuid()')})", name)


@pytest.mark.parametrize("name", BUTLERS)
async def test_a_butler_parks_and_speaks_only_as_itself(still_house: House, message: str, name: str) -> None:
    other = next(other for other in BUTLERS if other != name)
    told = await admitted(still_house, message, name)
    await refused(still_house, name, PARK, other, told)
    await refused(still_house, name, PARK, name, await admitted(still_house, message, other))
    await refused(still_house, name, EVENT, other)
    await refused(still_house, name, EVENT, "owner")
    await refused(still_house, name, PARK, name, told)  # which waits for nobody
    async with logged_in(still_house, name) as connection:
        own = row(name, name, status="pending_approval")
        await connection.execute(INSERT, *own)
        await connection.execute(PARK, name, own[0])
        await connection.execute(EVENT, name)


@pytest.mark.parametrize("name", EVERYBODY)
async def test_nobody_changes_what_was_recorded(still_house: House, name: str) -> None:
    for text in ("UPDATE shared.approval_events SET actor = 'me'", "DELETE FROM shared.approval_events"):
        await refused(still_house, name, text)


async def test_not_even_a_superuser_changes_what_was_recorded_by_mistake(still_house: House) -> None:
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await still_house.sql.execute("DELETE FROM shared.approval_events")


@pytest.mark.parametrize("name", BUTLERS)
async def test_a_butler_reads_the_rules_that_concern_it(still_house: House, name: str) -> None:
    own, others, all_butlers = [
        await still_house.rule({"recipient": uuid4().hex}, origin_butler=origin)
        for origin in (name, next(other for other in BUTLERS if other != name), None)
    ]
    async with logged_in(still_house, name) as connection:
        seen = {row["id"] for row in await connection.fetch("SELECT id::text FROM shared.approval_rules")}
    assert {own, all_butlers} <= seen
    assert others not in seen


@pytest.mark.parametrize("name", BUTLERS)
async def test_a_butler_reads_its_own_recent_calls_only(still_house: House, message: str, name: str) -> None:
    for butler in BUTLERS:
        await admitted(still_house, message, butler)
    async with logged_in(still_house, name) as connection:
        rows = await connection.fetch("SELECT origin_butler FROM shared.request_windows")
    assert {row["origin_butler"] for row in rows} == {name}


@pytest.mark.parametrize("name", ["console", keystore.OWNER])
async def test_the_owners_surfaces_decide_and_write_rules_and_contacts(
    still_house: House, message: str, name: str
) -> None:
    told = await admitted(still_house, message, contact_id=await still_house.contact("Yan", telegram=new_chat()))
    action = await still_house.row(ACTION, told)
    async with logged_in(still_house, name) as connection:
        assert await connection.execute(DECIDE, action["id"]) == "UPDATE 1"
        await connection.execute(RULE)
        await connection.execute(CONTACT)


@pytest.mark.parametrize("name", ["console", keystore.OWNER])
async def test_the_owners_surfaces_speak_of_the_uncertain_and_write_no_outcome(still_house: House, name: str) -> None:
    for text in (
        "UPDATE shared.resolutions SET outcome = 'done'",
        "UPDATE shared.resolutions SET word = 'again'",
        "DELETE FROM shared.resolutions",
        "INSERT INTO shared.resolutions (outcome) VALUES ('done')",
    ):
        await refused(still_house, name, text)
    await refused(still_house, "messenger", "UPDATE shared.resolutions SET word = 'again'")


async def test_the_messenger_writes_no_rule_but_may_hold_one(still_house: House) -> None:
    await refused(still_house, "messenger", RULE)
    await refused(still_house, "messenger", "UPDATE shared.approval_rules SET max_uses = NULL")
    await refused(still_house, "messenger", "UPDATE shared.approval_rules SET active = true")
    rule = await still_house.rule({"recipient": uuid4().hex})
    async with logged_in(still_house, "messenger") as connection:
        assert await connection.fetch("SELECT id FROM shared.approval_rules WHERE id = $1 FOR UPDATE", rule)


@pytest.mark.parametrize(
    "table",
    ["shared.contacts", "shared.notification_status", "shared.notifications", "shared.keyring", "switchboard.butlers"],
)
async def test_the_login_of_one_process_mode_reads_nothing_without_a_role(still_house: House, table: str) -> None:
    await refused(still_house, keystore.UP, f"SELECT count(*) FROM {table}")


async def test_the_login_of_one_process_mode_is_what_its_role_is(still_house: House) -> None:
    role = dsn.role_of(still_house.dsn, "greeter")
    async with logged_in(still_house, keystore.UP) as connection:
        await connection.execute("SELECT set_config('role', $1, true)", role)
        assert await connection.fetchval("SELECT shared.me()") == "greeter"
        await connection.fetch("SELECT * FROM shared.contacts")
        with pytest.raises(REFUSED):
            await connection.execute(RULE)
    await refused(still_house, keystore.UP, f"SET ROLE {dsn.role_of(still_house.dsn, keystore.OWNER)}")


@pytest.mark.parametrize("name", EVERYBODY)
async def test_no_login_may_do_more_than_its_grants(still_house: House, name: str) -> None:
    text = "SELECT rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication FROM pg_roles WHERE rolname = $1"
    assert set(await still_house.row(text, dsn.role_of(still_house.dsn, name))) == {False}


async def test_a_row_that_a_butler_forged_goes_to_the_owner_for_a_yes_and_nowhere_else(
    house: House, message: str
) -> None:
    keys = keystore.read(house.settings.home, "greeter")
    connection = await asyncpg.connect(dsn.dsn_as(house.dsn, "greeter", keys.password))
    forged = row("greeter", "greeter", message=message)
    try:
        await connection.execute(INSERT, *forged)
    finally:
        await connection.close()
    await house.sql.execute(OLDER, str(forged[0]))
    assert await house.settled(forged[0], "pending_approval", "ok") == "pending_approval"
    assert await until(lambda: house.cards(message))
    assert house.sent(message) == []
