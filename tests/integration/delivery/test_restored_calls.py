"""Calls of gated tools in a backup that was put back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from messenger.cards.calls import outcome
from messenger.delivery.witness import Witness
from messenger.maintenance.reaper import reap_calls
from shared.db import witness
from shared.gate.tool_call import RUN_WITHIN, Declared, Resolve, admit_call, begin_call, finish_call, resolve_call
from shared.storage import contacts, tool_calls
from shared.storage.tool_calls import NewCall
from tests.integration.delivery.test_restored_work import before_a_start
from tests.integration.delivery.test_restoring import BEHIND, STANDING, found_restored, lifted, watching
from tests.integration.doubts import all_cards, cards_written, closed, shown
from tests.integration.house import House, opened
from tests.rig.cluster import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPROVE = """
UPDATE shared.pending_actions SET status = 'approved', decided_at = clock_timestamp(),
    decided_by = (SELECT id FROM shared.contacts WHERE 'owner' = ANY (roles)) WHERE id = $1
"""
HOLD_CALL = "SELECT FROM shared.pending_actions WHERE id = $1 FOR NO KEY UPDATE"
AHEAD = """
INSERT INTO shared.brakes (reason, made_at, handled_at, lifted_at)
SELECT 'restored', at, at, clock_timestamp() FROM (SELECT clock_timestamp() + interval '400 days' AS at) ahead
"""
A_DAY_LATER = """
UPDATE shared.pending_actions SET decided_at = decided_at - interval '25 hours',
    requested_at = requested_at - interval '25 hours' WHERE id = $1
"""
EDITED = "editMessageText"
LEFT_RUNNING = "UPDATE shared.pending_actions SET status = 'executing' WHERE id = $1"
STATUS = "SELECT status FROM shared.pending_actions WHERE id = $1"


@pytest_asyncio.fixture(loop_scope="module")
async def house(cluster: Cluster) -> AsyncIterator[House]:
    """A house of the test's own in which nothing moves by itself."""
    async with opened(cluster, loops=False) as made:
        yield made


async def asked(house: House, message: str, n: int) -> UUID:
    """A call that waits for the owner."""
    call = NewCall(str(uuid4()), "greeter", f"tool {n} {message}", "{}", "Call it.", "low", repeatable=False)
    async with house.context("greeter").db.work() as connection:
        await admit_call(connection, call, Declared("rules", "low"), timedelta(hours=72))
    return UUID(call.id)


async def called(house: House, message: str, n: int) -> UUID:
    """A call that was let through."""
    call = await asked(house, message, n)
    await house.sql.execute(APPROVE, call)
    return call


async def may_begin(house: House, call_id: UUID) -> bool:
    async with house.context("greeter").db.work() as connection:
        declared = Declared("rules", "low")
        return await begin_call(connection, str(call_id), declared, "me", timedelta(minutes=1)) is not None


async def test_what_was_let_through_in_it_does_not_run_before_the_messenger_has_looked(
    house: House, message: str
) -> None:
    """Butlers and Messenger begin at the same moment."""
    await Witness(witness.places(house.settings.home, "messenger", None)).look(house.context("messenger"))
    one, other = await called(house, message, 1), await called(house, message, 2)
    assert await may_begin(house, one)
    await house.sql.execute(BEHIND)
    await before_a_start(house)
    assert not await may_begin(house, other)
    await watching(house).open(house.context("messenger"))
    assert [await house.sql.fetchval(STATUS, call) for call in (one, other)] == ["uncertain"] * 2
    assert await house.sql.fetchval(STANDING) == 1, "the owner is told once"
    titles = [outcome.words(row)[0] for call in (one, other) if (row := await tool_calls.one(house.sql, str(call)))]
    assert [("it waited in the backup" in title, "stopped responding" in title) for title in titles] == [
        (False, True),
        (True, False),
    ]
    await lifted(house)


async def sweep(house: House) -> int:
    async with house.context("messenger").db.work() as connection:
        return await reap_calls(connection, house.settings.timings.lease, RUN_WITHIN)


async def test_a_call_that_its_butler_holds_is_doubted_later_and_holds_up_nothing(house: House, message: str) -> None:
    held, free = await called(house, message, 1), await called(house, message, 2)
    async with house.context("greeter").db.work() as holding:
        await holding.execute(HOLD_CALL, held)
        async with asyncio.timeout(3):
            await found_restored(house)
        assert await house.sql.fetchval(STATUS, free) == "uncertain"
    assert await sweep(house) == 1
    assert await house.sql.fetchval(STATUS, held) == "uncertain"


async def test_what_the_owner_lets_through_afterwards_is_not_doubted(house: House, message: str) -> None:
    await found_restored(house)
    call = await called(house, message, 1)
    assert await sweep(house) == 0
    assert await house.sql.fetchval(STATUS, call) == "approved"


async def test_a_brake_written_by_a_clock_ahead_doubts_nothing_asked_after_it_was_lifted(
    house: House, message: str
) -> None:
    before = await called(house, message, 1)
    await house.sql.execute(AHEAD)
    after = await called(house, message, 2)
    assert await sweep(house) == 1
    assert [await house.sql.fetchval(STATUS, call) for call in (before, after)] == ["uncertain", "approved"]


async def cards_of(house: House, words: str) -> str:
    """Whatever the owner is sent about it, once everything is."""
    await cards_written(house)
    await all_cards(house)
    return "\n".join(str(line["payload"]) for line in house.box.sandbox.lines if words in str(line["payload"]))


async def test_what_was_to_run_again_and_did_not_is_told(house: House, message: str) -> None:
    call = await called(house, message, 1)
    async with house.context("greeter").db.work() as connection:
        assert await begin_call(connection, str(call), Declared("rules", "low"), "me", timedelta(0))
    assert await sweep(house) == 1
    assert "may or may not have run" in await cards_of(house, message)
    owner = await contacts.owner(house.sql)
    assert owner is not None
    async with house.context("messenger").db.work() as connection:
        await resolve_call(connection, Resolve(str(call), 1, "again", str(owner["id"]), "console"))
    await closed(house)
    await house.sql.execute(A_DAY_LATER, call)
    assert await sweep(house) == 1
    assert "may have run before, and did not run again in time" in await cards_of(house, message)
    await closed(house)
    *_, before, last = (str(line["payload"]) for line in house.box.sandbox.lines if EDITED in str(line["payload"]))
    assert ("about to run" in before, "Expired" in last) == (True, True)


async def test_the_card_that_asked_for_a_call_in_doubt_shows_what_is_known_by_now(house: House, message: str) -> None:
    call = await asked(house, message, 1)
    assert "Approve" in await cards_of(house, message)
    [card] = [line for line in house.box.sandbox.lines if message in str(line["payload"])]
    await house.sql.execute(APPROVE, call)
    async with house.context("greeter").db.work() as connection:
        assert await begin_call(connection, str(call), Declared("rules", "low"), "me", timedelta(0))
    assert await sweep(house) == 1
    await closed(house)
    assert shown(house, card).endswith("Outcome not known.")
    owner = await contacts.owner(house.sql)
    assert owner is not None
    async with house.context("messenger").db.work() as connection:
        await resolve_call(connection, Resolve(str(call), 1, "ran", str(owner["id"]), "console"))
    await closed(house)
    assert shown(house, card).endswith("Ran.")


@pytest.mark.parametrize(("fails", "told"), [(True, "failed."), (False, "stopped responding")], ids=["fails", "lost"])
async def test_the_end_of_what_runs_again_after_it_is_told(
    house: House, message: str, told: str, *, fails: bool
) -> None:
    call = str(await called(house, message, 1))
    await found_restored(house)
    await lifted(house)
    assert told not in await cards_of(house, message)
    owner = await contacts.owner(house.sql)
    assert owner is not None
    async with house.context("messenger").db.work() as connection:
        await resolve_call(connection, Resolve(call, 0, "again", str(owner["id"]), "console"))
    async with house.context("greeter").db.work() as connection:
        begun = await begin_call(connection, call, Declared("rules", "low"), "me", timedelta(seconds=60 * fails))
        assert begun is not None
    if fails:
        async with house.context("greeter").db.work() as connection:
            await finish_call(connection, "greeter", begun, "me", ("failed", "{}"))
    await sweep(house)
    assert told in await cards_of(house, message)


@pytest.mark.parametrize("left", [False, True], ids=["the tool", "the owner"])
async def test_what_fails_before_its_doubt_was_shown_is_told_unless_the_owner_left_it(
    house: House, message: str, *, left: bool
) -> None:
    """The computer slept: nothing can be sent yet, and the tool that goes on has lost its own connection."""
    call = str(await called(house, message, 1))
    async with house.context("greeter").db.work() as connection:
        begun = await begin_call(connection, call, Declared("rules", "low"), "me", timedelta(0))
    assert begun is not None
    assert await sweep(house) == 1
    await cards_written(house)
    owner = await contacts.owner(house.sql)
    assert owner is not None
    async with house.context("messenger" if left else "greeter").db.work() as connection:
        if left:
            await resolve_call(connection, Resolve(call, 1, "leave", str(owner["id"]), "console"))
        else:
            await finish_call(connection, "greeter", begun, "me", ("failed", '{"error": "cut off"}'))
    await all_cards(house)
    assert ("It said" in await cards_of(house, message)) is not left
    assert bool(await cards_of(house, message)) is not left, "the owner is told nothing that the owner has said"


async def test_a_call_left_running_without_a_lease_is_told_and_frees_the_place_of_its_equals(
    house: House, message: str
) -> None:
    """A process that is under somebody's control leaves it so, by its butler's own login."""
    left = await called(house, message, 1)
    async with house.context("greeter").db.work() as connection:
        await connection.execute(LEFT_RUNNING, left)
    assert await sweep(house) == 1
    assert "may or may not have run" in await cards_of(house, message)
    assert await house.sql.fetchval(STATUS, await called(house, message, 1)) == "approved"
