"""What a backup that was put back would do a second time ends before anything starts."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from butlers import fleet
from butlers.setup import migrate
from messenger.delivery.witness import Witness
from messenger.storage import mailboxes
from shared.db import witness
from shared.storage import notices, session_list, sessions
from shared.storage.notices import Notice
from shared.storage.restored import MAY_BE_DONE
from tests.integration.house import House, opened
from tests.rig.cluster import BUTLERS, Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")
SESSION = "SELECT status, untold FROM shared.sessions WHERE id = $1"
BEGIN = """
UPDATE shared.sessions SET status = 'running', began_at = now(), holder = 'gone', lease_until = now(), attempt = 1,
    limits = '{}' WHERE id = $1
"""
MAILBOXES = "SELECT count(*) FROM messenger.mailboxes"


@pytest_asyncio.fixture(loop_scope="module")
async def house(cluster: Cluster) -> AsyncIterator[House]:
    """A house of the test's own in which nothing moves by itself."""
    async with opened(cluster, loops=False) as made:
        yield made


async def before_a_start(house: House) -> list[str]:
    """What is done before anything starts, and said."""
    entries = [fleet.Entry(name, "The same as before.", "") for name in BUTLERS]
    return await migrate.migrate(house.settings, house.dsn, entries)


@pytest.mark.parametrize("by", ["a marker", "a seal"])
async def test_what_waits_or_ran_ends_before_anything_starts_and_the_owner_is_told(house: House, by: str) -> None:
    """The owner's words may have been carried out since, and mails of the lost span are in the mailbox still."""
    waiting, running = str(uuid4()), str(uuid4())
    places = witness.places(house.settings.home, "messenger", None)
    async with house.context("switchboard").db.work() as connection:
        for session in (waiting, running):
            await sessions.enqueue_message(connection, session, "greeter", "Water the roses.", {}, session_list.OWN)
    await house.sql.execute(BEGIN, running)
    async with house.context("messenger").db.work() as connection:
        await mailboxes.take_lease(connection, "a mailbox", "me", timedelta(minutes=1))
        await notices.add(connection, "greeter", Notice("owner", "decision", "No.", trust="owner", wakes=True))
    await Witness(places).look(house.context("messenger"))
    assert await before_a_start(house) == []
    assert (await house.row(SESSION, waiting))["status"] == "waiting"
    assert await house.sql.fetchval(MAILBOXES) == 1
    known = witness.furthest(places)
    assert known is not None
    further = replace(known, seal=known.seal + 1, seal_hash="of later") if by == "a seal" else witness.ahead(known, 1)
    witness.write(places, further)
    [said] = await before_a_start(house)
    assert said.startswith("A backup was restored: 2 sessions ended")
    for session in (waiting, running):
        row = await house.row(SESSION, session)
        assert (row["status"], row["untold"]) == ("lost", f"{MAY_BE_DONE} It was asked: “Water the roses.”")
    assert await house.sql.fetchval(MAILBOXES) == 0
    assert await house.sql.fetch("SELECT FROM shared.notices WHERE wakes") == []
    await Witness(places).open(house.context("messenger"))
    assert await before_a_start(house) == [], "the Messenger has seen to it"
