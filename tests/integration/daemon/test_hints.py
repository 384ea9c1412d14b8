"""Wake hints: who listens to what, and what becomes of a flood."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import asyncpg
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from butlers.daemon.assembly import HEARD, TOPICS, Assembly, listening_dsn
from shared.auth import keystore
from shared.db.dsn import dsn_as
from shared.db.wake import MOST_A_SECOND, listen
from shared.telemetry.metrics import metrics_text
from tests.integration.house import House
from tests.rig.cluster import BUTLERS
from tests.rig.waiting import LONGEST, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
FLOOD = "SELECT pg_notify('cards', n::text) FROM generate_series(1, 100000) n"


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
