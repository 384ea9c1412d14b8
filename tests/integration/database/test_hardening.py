"""What PostgreSQL gives to every login, closed where it can be, and harmless where it cannot."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from uuid import uuid4

import asyncpg
import pytest

from butlers import fleet
from butlers.console.storage import sessions
from butlers.daemon.assembly import TOPICS
from butlers.setup import logins, migrate
from messenger.cards.questions import question
from shared.auth import keystore
from shared.db import dsn
from shared.errors import Misconfigured
from shared.storage import notices, questions
from shared.storage.questions import Given, NewQuestion, Times
from tests.integration.database.test_questions import OWNER_ID
from tests.integration.house import House, Rows
from tests.privileges.matrix import SCHEMAS
from tests.rig.bench import Bench
from tests.rig.cluster import BUTLERS
from tests.rig.waiting import LONGEST, eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSED = asyncpg.InsufficientPrivilegeError
TABLES = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY ($1) AND c.relkind = 'r'
"""
# The modes for which somebody in this house would have to wait.
STOPPING = ("SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE")
# Under whatever name the database then takes it for.
AS_NOBODY = """
INSERT INTO shared.notifications (origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
    third_party, status, answer)
SELECT me, me, 'sandbox', gen_random_uuid()::text, 'l', 's',
    jsonb_build_object('origin_butler', me, 'delivery', jsonb_build_object('message', 'x')), 'owner', false, 'error',
    '{"status": "error"}'
FROM (SELECT coalesce(shared.me(), 'group_butler') AS me) taken
"""
GROUPS = ("butler", "switchboard", "messenger", "console", "owner")
WAITS = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1"
ON_ITS_WAY_IN = """
SELECT true FROM pg_locks WHERE classid = 'pg_database'::regclass
    AND pid NOT IN (SELECT pid FROM pg_stat_activity WHERE usename IS NOT NULL)
"""
LIMITS = {
    "statement_timeout": "20s",
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "10s",
    "temp_file_limit": "256MB",
}

# A number of ten bytes that is written out with sixteen thousand digits.
TINY = "(SELECT jsonb_agg('1e-16000'::numeric) FROM generate_series(1, $1))"
TINY_ENVELOPE = f"""
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
    third_party, not_after, status, answer)
SELECT gen_random_uuid(), 'greeter', 'greeter', 'sandbox', random(), random(), 's', jsonb_build_object('origin_butler',
    'greeter', 'delivery', '{{"channel":"telegram","message":"x"}}'::jsonb, 'request_context', {TINY}), 'owner', false,
    clock_timestamp() + interval '1 hour', 'queued', '{{"status":"queued"}}'::jsonb
"""
TINY_LINE = f"""
INSERT INTO shared.approval_events (event_type, actor, detail) SELECT 'x', 'greeter', jsonb_build_object('x', {TINY})
"""


@asynccontextmanager
async def logged_in(house: House, name: str) -> AsyncIterator[Rows]:
    keys = keystore.read(house.settings.home, name)
    connection = await asyncpg.connect(dsn.dsn_as(house.dsn, name, keys.password))
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("name", ["switchboard", "messenger", "console", keystore.OWNER, keystore.UP, *BUTLERS])
async def test_a_login_begins_with_limits(still_house: House, name: str) -> None:
    async with logged_in(still_house, name) as connection:
        shown = {
            setting: await connection.fetchval(f"SHOW {setting}")
            for setting in (
                "statement_timeout",
                "idle_in_transaction_session_timeout",
                "lock_timeout",
                "temp_file_limit",
            )
        }
        assert list(shown.values()) == ["20s", "10s", "10s", "256MB"]
        with pytest.raises(REFUSED):
            await connection.execute("SET temp_file_limit = -1")
    limit = await still_house.sql.fetchval(
        "SELECT rolconnlimit FROM pg_roles WHERE rolname = $1", dsn.role_of(still_house.dsn, name)
    )
    assert limit == logins.limit_of(name)


async def test_who_may_make_roles_and_is_no_superuser_ends_what_a_login_of_its_own_has_open(still_house: House) -> None:
    maker, name = f"maker_{uuid4().hex[:8]}", f"visitor_{uuid4().hex[:8]}"
    made = dsn.role_of(still_house.dsn, name)
    database = dsn.database_of(still_house.dsn)
    await still_house.sql.execute(f"CREATE ROLE {maker} LOGIN CREATEROLE PASSWORD 'w'")
    await still_house.sql.execute(f'GRANT CONNECT ON DATABASE "{database}" TO {maker}')
    where = still_house.dsn.rpartition("@")[2]
    connection = await asyncpg.connect(f"postgresql://{maker}:w@{where}")
    try:
        await connection.execute(f"CREATE ROLE \"{made}\" LOGIN PASSWORD 'w'")
        await still_house.sql.execute(f'GRANT CONNECT ON DATABASE "{database}" TO "{made}"')
        visitors = [await asyncpg.connect(f"postgresql://{made}:w@{where}") for _ in range(2)]
        await logins.end_sessions(connection, still_house.dsn, name)
        assert await still_house.sql.fetchval("SELECT count(*) FROM pg_stat_activity WHERE usename = $1", made) == 0
        # The server has ended them; that reaches this process when its sockets are closed.
        await until(lambda: all(visitor.is_closed() for visitor in visitors))
        assert not await connection.fetchval("SELECT pg_has_role($1::name, 'USAGE')", made)
    finally:
        await connection.close()
        for role in (made, maker):
            await still_house.sql.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


async def test_what_makes_itself_wait_on_its_way_in_is_ended_with_all_else_of_its_login(still_house: House) -> None:
    url = dsn.dsn_as(still_house.dsn, "console", keystore.read(still_house.settings.home, "console").password)
    waiting = asyncio.ensure_future(asyncpg.connect(url, server_settings={"post_auth_delay": "3"}))
    await eventually(partial(still_house.sql.fetchval, ON_ITS_WAY_IN))
    await logins.end_sessions(still_house.sql, still_house.dsn, "console")
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await (await waiting).fetchval("SELECT 1")


@pytest.mark.parametrize("name", [*BUTLERS, "switchboard"])
async def test_nobody_becomes_the_group_it_is_in_and_writes_under_a_name_that_no_butler_has(
    still_house: House, name: str
) -> None:
    async with logged_in(still_house, name) as connection:
        with pytest.raises(REFUSED):
            await connection.execute(f"SET ROLE butlers_group_butler; {AS_NOBODY}")


@pytest.mark.parametrize("role", ["postgres", *(f"butlers_group_{one}" for one in GROUPS)])
async def test_who_is_no_login_of_this_database_is_nobody(still_house: House, role: str) -> None:
    """Older servers let a member become its group: there it is nobody too."""
    connection = await asyncpg.connect(still_house.dsn)
    try:
        await connection.execute(f"SET ROLE {role}")
        assert await connection.fetchval("SELECT shared.me()") is None
    finally:
        await connection.close()


async def test_a_group_that_could_be_taken_can_be_taken_no_more_after_the_next_migration(still_house: House) -> None:
    taken = dsn.role_of(still_house.dsn, "greeter")
    await still_house.sql.execute(f'GRANT butlers_group_butler TO "{taken}" WITH SET TRUE')
    async with logged_in(still_house, "greeter") as connection:
        await connection.execute("SET ROLE butlers_group_butler; RESET ROLE")
        await migrated(still_house)
        with pytest.raises(REFUSED):
            await connection.execute("SET ROLE butlers_group_butler")
        assert await connection.fetchval("SELECT shared.me()") == "greeter"


async def test_no_login_is_called_as_a_group_is(still_house: House) -> None:
    with pytest.raises(Misconfigured, match="is no name for a login"):
        await logins.ensure_login(
            still_house.sql, still_house.settings.home, "postgresql://localhost/butlers", "group_owner"
        )


async def migrated(house: House) -> None:
    entries = [fleet.Entry(name, "The same as before.", "") for name in BUTLERS]
    await migrate.migrate(house.settings, house.dsn, entries)


async def test_a_butler_takes_no_connection_from_the_messenger(still_house: House) -> None:
    async with AsyncExitStack() as held:
        for _ in range(logins.LIMIT_OF_A_BUTLER):
            await held.enter_async_context(logged_in(still_house, "greeter"))
        with pytest.raises(asyncpg.TooManyConnectionsError):
            await held.enter_async_context(logged_in(still_house, "greeter"))
        async with logged_in(still_house, "messenger") as connection:
            assert await connection.fetchval("SELECT 1") == 1


@pytest.mark.parametrize("name", ["greeter", "switchboard", "messenger", keystore.UP])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT pg_logical_emit_message(false, 'x', 'x')",
        "SELECT lo_creat(-1)",
        "SELECT lo_create(0)",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT lo_put(1, 0, 'x')",
        "SELECT lowrite(1, 'x')",
        "SELECT lo_import('/etc/hostname')",
        "SELECT lo_export(1, '/nowhere')",
        "SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 100000) n",
        "SELECT pg_advisory_xact_lock_shared(1, 2)",
        "SELECT pg_try_advisory_lock(1)",
    ],
)
async def test_nobody_makes_large_objects_and_advisory_locks(still_house: House, name: str, text: str) -> None:
    async with logged_in(still_house, name) as connection:
        with pytest.raises(REFUSED):
            await connection.execute(text)


async def test_the_databases_owner_takes_turns_by_a_lock_still(still_house: House) -> None:
    """By it the functions that belong to that login bound what the others put."""
    own = "SELECT has_function_privilege(datdba, 'pg_advisory_xact_lock(bigint)', 'EXECUTE') FROM pg_database"
    await still_house.sql.execute("CREATE ROLE maker")
    name = await still_house.sql.fetchval("SELECT current_database()")
    was = await still_house.sql.fetchval("SELECT current_user")
    await still_house.sql.execute(f'ALTER DATABASE "{name}" OWNER TO maker')
    try:
        await migrated(still_house)
        assert await still_house.sql.fetchval(f"{own} WHERE datname = current_database()")
    finally:
        await still_house.sql.execute(f'ALTER DATABASE "{name}" OWNER TO "{was}"; DROP OWNED BY maker; DROP ROLE maker')


@pytest.mark.parametrize("other", ["postgres", "template1"])
async def test_no_login_connects_to_what_else_comes_with_a_server_of_ours_alone(still_house: House, other: str) -> None:
    keys = keystore.read(still_house.settings.home, "greeter")
    with pytest.raises(REFUSED):
        await asyncpg.connect(dsn.dsn_as(still_house.dsn, "greeter", keys.password), database=other)


@pytest.mark.parametrize("name", [*BUTLERS, "switchboard"])
async def test_who_moves_messages_locks_no_table_against_others(still_house: House, name: str) -> None:
    tables = [str(row[0]) for row in await still_house.sql.fetch(TABLES, list(SCHEMAS))]
    own = {"switchboard.butlers", "switchboard.routes", "switchboard.inbox"} if name == "switchboard" else set()
    async with logged_in(still_house, name) as connection:
        for table, mode in itertools.product(sorted(set(tables) - own), STOPPING):
            with pytest.raises(REFUSED):
                await connection.execute(f"BEGIN; LOCK TABLE {table} IN {mode} MODE NOWAIT")
            await connection.execute("ROLLBACK")


HOLD = "INSERT INTO shared.notices (id, butler, source, kind, text) VALUES ($1, 'greeter', 'x', 'x', 'x')"


@pytest.mark.slow
async def test_a_butler_that_holds_what_is_told_it_stops_nobody(still_house: House) -> None:
    told = str((await still_house.notify(message=f"told {uuid4()}"))["notification_id"])
    asked, hour, owner = str(uuid4()), timedelta(hours=1), await still_house.sql.fetchval(OWNER_ID)
    async with still_house.context("greeter").db.work() as connection:
        await questions.ask(connection, NewQuestion(asked, "greeter", "Asked", "words"), Times(hour, hour))
    async with still_house.context("messenger").db.work() as connection:
        assert await questions.answer(connection, asked, Given(0), "telegram", owner)
    async with logged_in(still_house, "greeter") as held, still_house.context("messenger").db.work() as connection:
        holds = held.transaction()
        await holds.start()
        await held.execute(HOLD, asked)
        usual = await connection.fetchval("SHOW lock_timeout")
        async with asyncio.timeout(5):
            await question.tell_answers(connection, hour)
            await notices.add_outcome(connection, told, "sent", "was sent.", always=True)
        assert await connection.fetchval("SHOW lock_timeout") == usual
        await holds.rollback()
    assert await still_house.sql.fetchval("SELECT count(*) FROM shared.notices WHERE key = $1", asked) == 1


async def test_a_butler_that_floods_every_topic_stops_nobody(house: House) -> None:
    over = asyncio.Event()

    async def flood(connection: Rows) -> int:
        count = 0
        while not over.is_set():
            topic = TOPICS[count % len(TOPICS)]
            await connection.execute("SELECT pg_notify($1, gen_random_uuid()::text) FROM generate_series(1, 50)", topic)
            count += 50
            await asyncio.sleep(0)
        return count

    async with (
        logged_in(house, "greeter") as one,
        logged_in(house, "health") as two,
    ):
        floods = [asyncio.create_task(flood(connection)) for connection in (one, two)]
        try:
            for n in range(5):
                told = await house.notify(message=f"through the flood {n} {uuid4()}")
                assert told["status"] in {"ok", "queued"}, told
                await delivered(house, told["notification_id"])
            async with asyncio.timeout(LONGEST), house.context("messenger").db.work():
                pass
            await sign_in(house)
            async with asyncio.timeout(3 * LONGEST):
                entries = [entry for entry in fleet.load(None) if entry.name in BUTLERS]
                await migrate.migrate(house.settings, house.dsn, entries)
        finally:
            over.set()
        assert sum(await asyncio.gather(*floods)) > 1000


async def test_a_statement_holds_so_much_and_no_more_and_its_session_goes_on(still_house: House) -> None:
    much = "SELECT array_length(array_agg(n::text || repeat('x', 500)), 1) FROM generate_series(1, $1::integer) n"
    async with logged_in(still_house, "greeter") as connection:
        assert await connection.fetchval(much, 100_000) == 100_000
        with pytest.raises(asyncpg.OutOfMemoryError):
            await connection.fetchval(much, 1_800_000)
        assert await connection.fetchval("SELECT 1") == 1


async def delivered(house: House, notification_id: object) -> None:
    """Until the owner has it."""
    async with asyncio.timeout(LONGEST):
        while (status := await house.status(notification_id)) != "ok":
            assert status == "queued"
            await asyncio.sleep(0.05)


async def sign_in(house: House) -> None:
    """The console books an attempt within the time."""
    async with logged_in(house, "console") as connection, asyncio.timeout(LONGEST):
        async with connection.transaction():
            attempt = await sessions.reserve_attempt(connection)
        assert attempt is not None
        await sessions.forgive(connection, attempt)


async def test_attempts_to_sign_in_pass_one_by_one(still_house: House) -> None:
    async with logged_in(still_house, "console") as one, logged_in(still_house, "console") as two:
        await one.execute("SET idle_in_transaction_session_timeout = 0")
        pid = two.get_server_pid()
        first, second = one.transaction(), two.transaction()
        await first.start()
        await second.start()
        await sessions.reserve_attempt(one)
        waiting = asyncio.create_task(sessions.reserve_attempt(two))
        async with asyncio.timeout(LONGEST):
            while not await still_house.sql.fetchval(WAITS, pid):
                assert not waiting.done(), "it came in while another was inside"
                await asyncio.sleep(0.01)
        await first.rollback()
        assert await asyncio.wait_for(waiting, LONGEST) is not None
        await second.rollback()


async def test_the_server_is_never_told_a_password_and_keeps_the_same_of_it_for_ever(still_house: House) -> None:
    kept = "SELECT rolname, rolpassword FROM pg_authid WHERE rolname LIKE $1 ORDER BY 1"
    like = f"{dsn.database_of(still_house.dsn)}\\_%"
    before = await still_house.sql.fetch(kept, like)
    assert len(before) == 7
    for row in before:
        password = keystore.read(still_house.settings.home, row["rolname"].partition("_")[2]).password
        assert row["rolpassword"] == logins.verifier(row["rolname"], password)
        assert row["rolpassword"].startswith("SCRAM-SHA-256$4096:")
    await migrated(still_house)
    assert await still_house.sql.fetch(kept, like) == before


async def test_a_password_changed_from_within_is_named_and_set_again(bench: Bench) -> None:
    house = await bench.house()
    try:
        keys = keystore.read(house.home, "greeter")
        connection = await asyncpg.connect(dsn.dsn_as(house.dsn, "greeter", keys.password))
        await connection.execute(f"ALTER ROLE {dsn.role_of(house.dsn, 'greeter')} PASSWORD 'mine'")
        await connection.close()
        told = "roles: The database login of greeter rejects the password stored here; it may have been changed. "
        _, out, _ = await house.butlers("doctor")
        assert [line for line in out.splitlines() if "roles: " in line] == [
            f"wrong    {told}Run `butlers migrate` to set it again."
        ]
        assert (await house.butlers("migrate"))[0::2] == (0, "")
        assert "roles: " not in (await house.butlers("doctor"))[1]
        await (await asyncpg.connect(dsn.dsn_as(house.dsn, "greeter", keys.password))).close()
    finally:
        house.close()


async def test_no_login_writes_into_the_servers_log(still_house: House, bench: Bench) -> None:
    mine, control = f"mine {uuid4()}", f"control {uuid4()}"
    async with logged_in(still_house, "greeter") as connection:
        await connection.execute(f"DO $$ BEGIN RAISE LOG '{mine}'; END $$")
        await connection.execute(f"SET debug_print_parse = on; SELECT '{mine}' AS \"{mine}\"")
        with pytest.raises(REFUSED):
            await connection.execute("SET log_min_messages = log")
    await still_house.sql.execute(f"DO $$ BEGIN RAISE LOG '{control}'; END $$")
    log = (bench.folder / "postgres/postgres/postgres.log").read_text()
    assert (control in log, mine in log) == (True, False)


async def test_what_a_login_set_for_its_own_role_is_gone_after_the_next_migration(still_house: House) -> None:
    database = dsn.database_of(still_house.dsn)
    async with logged_in(still_house, "greeter") as connection:
        await connection.execute("ALTER ROLE CURRENT_USER SET default_transaction_read_only = on")
        await connection.execute(f'ALTER ROLE CURRENT_USER IN DATABASE "{database}" SET statement_timeout = 1')
    await migrated(still_house)
    async with logged_in(still_house, "greeter") as connection:
        assert await connection.fetchval("SHOW default_transaction_read_only") == "off"
        assert await connection.fetchval("SHOW statement_timeout") == "20s"


async def test_what_is_short_on_disk_and_endless_to_read_is_refused(still_house: House) -> None:
    async with logged_in(still_house, "greeter") as greeter:
        for text, many in ((TINY_ENVELOPE, 500), (TINY_LINE, 20)):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await greeter.execute(text, many)
            await greeter.execute(text, 1)


async def test_no_butler_takes_the_connections_of_the_whole_process(still_house: House) -> None:
    db, over, begun = still_house.context("health").db, asyncio.Event(), list[int]()

    async def hold(number: int) -> None:
        async with db.work():
            begun.append(number)
            await over.wait()

    holding = [asyncio.ensure_future(hold(n)) for n in range(logins.pool_of(keystore.UP))]
    try:
        async with asyncio.timeout(LONGEST):
            while len(begun) < logins.pool_of("health"):
                await asyncio.sleep(0.01)
            async with still_house.context("greeter").db.work():
                pass
        await asyncio.sleep(0.5)
        at_once = len(begun)
    finally:
        over.set()
        await asyncio.gather(*holding)
    assert (at_once, len(begun)) == (logins.pool_of("health"), len(holding))
