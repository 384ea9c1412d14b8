"""Wake hints: who listens to what, and what becomes of a flood."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import asyncpg
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from butlers.daemon.assembly import HEARD, TOPICS, Assembly, listening_dsn
from shared.auth import keystore
from shared.db.dsn import dsn_as
from shared.db.pool import Connection, Database, tell, transaction
from shared.db.wake import MOST_A_SECOND, listen
from shared.telemetry.metrics import metrics_text
from tests.integration.house import House
from tests.rig.cluster import BUTLERS
from tests.rig.waiting import LONGEST, eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
FLOOD = "SELECT pg_notify('cards', n::text) FROM generate_series(1, 100000) n"
IN_COMMIT = "SELECT wait_event FROM pg_stat_activity WHERE pid = $1"


@pytest_asyncio.fixture(loop_scope="module")
async def health(still_house: House) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    keys = keystore.read(still_house.settings.home, "health")
    connection = await asyncpg.connect(dsn_as(still_house.dsn, "health", keys.password))
    yield connection
    await connection.close()


async def test_a_butlers_process_listens_to_nothing_and_nobody_to_what_was_settled(still_house: House) -> None:
    plan, db = still_house.assembly.plan, still_house.assembly.context("greeter").db
    for name in BUTLERS:
        assert Assembly(replace(plan, names=[name], together=False), db).heard() == {}
    for name, topics in HEARD.items():
        assert set(Assembly(replace(plan, names=[name], together=False), db).heard()) == set(topics) < set(TOPICS)
    assert "settled" not in still_house.assembly.heard()


async def test_what_floods_is_not_listened_to_for_a_while_and_its_login_is_named(
    still_house: House, health: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    heard, stopping = list[str](), asyncio.Event()
    dsn = partial(listening_dsn, still_house.assembly.plan)
    login = await health.fetchval("SELECT current_user")
    with capture_logs() as logs:
        listening = asyncio.create_task(listen(dsn, {"cards": heard.append}, stopping, 1.5))
        try:
            await until(lambda: "" in heard)
            heard.clear()
            await health.execute("SELECT pg_notify('cards', 'one')")
            await until(lambda: heard == ["one"])
            await health.execute(FLOOD)
            await until(lambda: any("flooded" in line["event"] for line in logs))
            told = len(heard)
            assert told <= 2 * MOST_A_SECOND + 2, "what comes after the bound wakes nobody"
            await health.execute("SELECT pg_notify('cards', 'meanwhile')")
            await asyncio.sleep(0.2)
            assert len(heard) == told
            await until(lambda: len(heard) > told)
            assert heard[told:] == [""], "what was missed is looked for, and nothing of the flood is left"
            await health.execute("SELECT pg_notify('cards', 'after')")
            await until(lambda: heard[-1] == "after")
        finally:
            stopping.set()
            await asyncio.wait_for(listening, LONGEST)
    [line] = [line for line in logs if "flooded" in line["event"]]
    assert line["by"] == login
    assert f'butlers_hint_floods_total{{login="{login}"}} 1.0' in str(metrics_text())


@asynccontextmanager
async def a_commit_that_notifies_and_does_not_end(house: House) -> AsyncIterator[None]:
    """Hold a session within its commit: it waits for a standby that there is not, and all who notify wait for it."""
    notifier = await asyncpg.connect(house.dsn, server_settings={"synchronous_commit": "on"})
    await house.sql.execute("ALTER SYSTEM SET synchronous_standby_names = 'none'")
    await house.sql.execute("SELECT pg_reload_conf()")
    ended = asyncio.Event()
    commits = asyncio.create_task(_notify_until(ended, notifier))
    try:

        async def is_held() -> bool:
            return bool(await house.sql.fetchval(IN_COMMIT, notifier.get_server_pid()) == "SyncRep")

        await eventually(is_held)
        yield
    finally:
        ended.set()
        await house.sql.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await house.sql.execute("SELECT pg_reload_conf()")
        await commits
        await notifier.close()


async def _notify_until(ended: asyncio.Event, notifier: Connection) -> None:
    """Commit again and again: the first ones may be over before the server has heard that it is to wait."""
    while not ended.is_set():
        await notifier.execute("CREATE TEMPORARY TABLE one (); DROP TABLE one; SELECT pg_notify('any', '')")


@asynccontextmanager
async def of_a_daemon(dsn: str) -> AsyncIterator[Connection]:
    database = await Database.open(dsn)
    try:
        async with database.work() as connection:
            yield connection
    finally:
        await database.close()


@asynccontextmanager
async def of_a_command(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        async with transaction(connection):
            yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("unit", [of_a_daemon, of_a_command])
async def test_nobodys_commit_waits_for_another_who_notifies(
    still_house: House, unit: Callable[[str], AbstractAsyncContextManager[Connection]]
) -> None:
    name = unit.__name__
    await still_house.sql.execute(f"ALTER DATABASE {still_house.dsn.rsplit('/', 1)[1]} SET synchronous_commit = local")
    held = a_commit_that_notifies_and_does_not_end(still_house)
    async with held, asyncio.timeout(10), unit(still_house.dsn) as connection:
        await tell(connection, "cards")
        await connection.execute(f"CREATE TABLE {name} ()")
    assert await still_house.sql.fetchval("SELECT to_regclass($1)", name) is not None


async def test_hints_go_out_once_each_after_the_commit_and_never_if_it_is_undone(still_house: House) -> None:
    heard = list[str]()
    await still_house.sql.add_listener("cards", lambda *said: heard.append(str(said[3])))
    database = await Database.open(still_house.dsn)
    try:
        with suppress(ZeroDivisionError):
            async with database.work() as connection:
                await tell(connection, "cards", "undone")
                raise ZeroDivisionError
        async with database.work() as connection:
            for key in ("one", "two", "one"):
                await tell(connection, "cards", key)
            await still_house.sql.fetchval("SELECT 1")
            assert heard == []
        await tell(still_house.sql, "cards", "outside")
        await until(lambda: "outside" in heard)
    finally:
        await database.close()
    assert heard == ["one", "two", "outside"]
