"""What a backup that was put back would do a second time ends before anything starts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from butlers import fleet
from butlers.cli.terminal import as_owner, owner_id
from butlers.setup import migrate
from messenger.delivery import expire
from messenger.delivery.witness import Witness
from messenger.storage import mailboxes
from shared.answers import EARLIER
from shared.config.settings import Secret
from shared.db import witness
from shared.storage import notices, restored, session_list, sessions
from shared.storage.notices import Notice, Pace
from shared.storage.restored import MAY_BE_DONE
from tests.integration.delivery.test_restoring import found_restored
from tests.integration.doubts import answer, say
from tests.integration.house import House, opened
from tests.integration.workers import PAST, friend, in_queue
from tests.rig.cluster import BUTLERS, Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")
SESSION = "SELECT status, untold FROM shared.sessions WHERE id = $1"
BEGIN = """
UPDATE shared.sessions SET status = 'running', began_at = now(), holder = 'gone', lease_until = now(), attempt = 1,
    limits = '{}' WHERE id = $1
"""
HOLD_SESSION = "SELECT FROM shared.sessions WHERE id = $1 FOR NO KEY UPDATE"
FOUND = "SELECT count(*) FROM shared.brakes WHERE reason = 'restored'"
# Those of which older mails count too, as far as clocks may differ.
MAILBOXES = "SELECT count(*) FROM messenger.mailboxes WHERE mails_from <= clock_timestamp()"


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
    await Witness(places).open(house.context("messenger"))
    assert await before_a_start(house) == [], "the Messenger has seen to it"


async def asked(house: House) -> str:
    """A session that waits for its butler."""
    session = str(uuid4())
    async with house.context("switchboard").db.work() as connection:
        await sessions.enqueue_message(connection, session, "greeter", "Water the roses.", {}, session_list.OWN)
    return session


async def status(house: House, session: str) -> str:
    return str((await house.row(SESSION, session))["status"])


async def said_by_the_owner(house: House) -> str | None:
    async with as_owner(replace(house.settings, database_url=Secret(house.dsn))) as connection:
        return await restored.by_word(connection, await owner_id(connection))


async def test_the_owners_word_ends_it_too_and_once_alone(house: House) -> None:
    """Home and rows came back together, no witness knows of it, and `butlers migrate` comes before that word."""
    before = await asked(house)
    async with house.context("messenger").db.work() as connection:
        await mailboxes.take_lease(connection, "a mailbox", "me", timedelta(minutes=1))
    await Witness(witness.places(house.settings.home, "messenger", None)).look(house.context("messenger"))
    assert await before_a_start(house) == []
    told = await said_by_the_owner(house)
    assert told is not None
    assert "session ended" in told
    assert (await status(house, before), await house.sql.fetchval(MAILBOXES)) == ("lost", 0)
    since = await asked(house)
    assert await said_by_the_owner(house) is None
    assert await before_a_start(house) == []
    assert await status(house, since) == "waiting"


async def test_a_session_that_its_butler_holds_keeps_the_owners_word_from_nothing(house: House) -> None:
    held, free = await asked(house), await asked(house)
    async with house.context("greeter").db.work() as holding:
        await holding.execute(HOLD_SESSION, held)
        async with asyncio.timeout(3):
            assert await said_by_the_owner(house) is not None
    assert (await status(house, held), await status(house, free)) == ("waiting", "lost")


async def test_rows_somebody_has_sent_from_under_a_home_without_a_witness_are_a_backup_and_found_once(
    house: House,
) -> None:
    places = witness.places(house.settings.home, "messenger", None)
    await Witness(places).look(house.context("messenger"))
    waiting = await asked(house)
    places[0].unlink()
    [said] = await before_a_start(house)
    assert said.startswith("A backup was restored: 1 session ended")
    assert await status(house, waiting) == "lost"
    assert await before_a_start(house) == []
    await Witness(places).open(house.context("messenger"))
    assert await house.sql.fetchval(FOUND) == 1


async def test_a_witness_that_cannot_be_read_before_the_start_is_said(house: House) -> None:
    [place] = witness.places(house.settings.home, "messenger", None)
    place.unlink(missing_ok=True)
    place.mkdir()
    [said] = await before_a_start(house)
    assert said.startswith(f"The witness {place} cannot be read")


async def test_what_was_to_wake_an_agent_in_it_begins_no_session(house: House) -> None:
    """The agent may have been told since; what happens later wakes it."""

    async def begins() -> bool:
        async with house.context("greeter").db.work() as connection:
            return await notices.begins_one(connection, "greeter", Pace(gather=timedelta(0)))

    async def add(text: str) -> None:
        async with house.context("messenger").db.work() as connection:
            await notices.add(connection, "greeter", Notice("messenger", "decided", text, wakes=True))

    await add("The owner said no.")
    assert await begins()
    assert await said_by_the_owner(house) is not None
    assert not await begins()
    await add("The owner said yes.")
    assert await begins()


async def test_what_a_backup_brought_back_and_is_sent_again_too_late_may_have_arrived(
    house: House, message: str
) -> None:
    """Nobody knows what left of it in the lost span, so no second try is offered."""
    told = await in_queue(house, message, contact_id=await friend(house))
    await found_restored(house)
    assert await say(house, told, "again") == "done"
    await house.sql.execute(PAST, told)
    async with house.context("messenger").db.work() as connection:
        assert await expire.end_late(connection) == 1
    error = (await answer(house, told))["error"]
    assert error == {"class": "forbidden", "message": f"{expire.TOO_LATE} {EARLIER}", "retryable": False}
    assert await say(house, told, "retry") == "late"
