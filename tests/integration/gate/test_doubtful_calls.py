"""Gated calls of which nobody knows whether they ran: who is told, what the owner says, and what runs again."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from uuid import uuid4

import pytest
import pytest_asyncio

from shared.answers import CALL_LATE_AGAIN, CALL_LEFT
from tests.integration.commands import call, said
from tests.integration.garden import Garden, gardened
from tests.integration.house import House
from tests.integration.signed_in import fields, page, plain, signed_in
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def garden(house: House) -> AsyncIterator[Garden]:
    async for made in gardened(house):
        yield made


@pytest.fixture
def bed() -> str:
    """A bed that no other test waters."""
    return f"bed {uuid4()}"


async def _asked_again(garden: Garden, bed: str) -> bool:
    return any("may have run before" in str(card["payload"]) for card in garden.house.cards(bed))


SILENT = "UPDATE shared.tool_calls SET lease_until = clock_timestamp() - interval '1 s', holder = $2 WHERE id = $1"


@pytest.mark.parametrize(("tool", "ends", "runs"), [("prune", "uncertain", 1), ("measure", "executed", 2)])
async def test_what_a_silent_daemon_began_is_repeated_only_if_declared_so(
    garden: Garden, bed: str, tool: str, ends: str, runs: int
) -> None:
    garden.valves.hold.clear()
    asked = await garden.call(tool, bed=bed, hold=True)
    await garden.house.decide(asked["action_id"])
    await garden.ended(asked["action_id"], "executing")
    # As if it were a process that is gone: whatever this one still writes is not of the attempt's holder.
    await garden.house.sql.execute(SILENT, str(asked["action_id"]), "gone")
    if runs == 1:
        await garden.ended(asked["action_id"], "uncertain")
        told = await eventually(partial(_doubtful, garden, bed, 0))
        assert "stopped responding" in str(told["payload"])
        assert (await garden.stands(asked["action_id"]))["status"] == "uncertain"
        once_more = await garden.call(tool, bed=bed, hold=True)
        assert once_more["status"] == "pending_approval"
        await eventually(partial(_asked_again, garden, bed))
        assert "may have run before" in await said(garden.house, "approvals", "show", str(once_more["action_id"]))
    garden.valves.hold.set()
    await garden.ended(asked["action_id"], ends)
    assert garden.valves.of(bed) == runs


async def left_in_doubt(garden: Garden, bed: str) -> str:
    """A call whose daemon fell silent while it ran; the daemon that asked goes on."""
    garden.valves.hold.clear()
    asked = str((await garden.call("prune", bed=bed, hold=True))["action_id"])
    await garden.house.decide(asked)
    await until(lambda: garden.valves.of(bed) == 1)
    await garden.house.sql.execute(SILENT, asked, "gone")
    await garden.ended(asked, "uncertain")
    garden.valves.hold.set()
    return asked


async def _doubtful(garden: Garden, bed: str, number: int) -> Mapping[str, object] | None:
    found = [one for one in garden.house.cards(bed) if "may or may not have run" in str(one["payload"])]
    return found[number] if len(found) > number else None


async def test_the_owner_has_a_call_of_unknown_outcome_run_again_and_then_leaves_it(garden: Garden, bed: str) -> None:
    asked = await left_in_doubt(garden, bed)
    first = await eventually(partial(_doubtful, garden, bed, 0))
    garden.valves.hold.clear()
    assert (await garden.house.press(first, "ca"))["outcome"] == "resolved"
    await until(lambda: garden.valves.of(bed) == 2)
    await garden.house.sql.execute(SILENT, asked, "gone")
    await garden.ended(asked, "uncertain")
    garden.valves.hold.set()
    second = await eventually(partial(_doubtful, garden, bed, 1))
    assert (await garden.house.press(first, "cr"))["outcome"] == "stale", "it is about the first attempt"
    assert (await garden.house.press(second, "cl"))["outcome"] == "resolved"
    assert (await garden.house.press(second, "ca"))["outcome"] == "late"
    await garden.ended(asked, "failed")
    assert [(e["event_type"], e["actor"]) for e in await garden.events(asked)][-6:] == [
        ("executing", "greeter"), ("uncertain", "messenger"), ("approved", "owner"),
        ("executing", "greeter"), ("uncertain", "messenger"), ("failed", "owner"),
    ]  # fmt: skip
    await asyncio.sleep(0.5)
    assert garden.valves.of(bed) == 2


async def test_the_owner_says_on_the_page_or_the_command_line_that_it_ran(garden: Garden, bed: str) -> None:
    page_of, line = await left_in_doubt(garden, f"{bed} a"), await left_in_doubt(garden, f"{bed} b")
    async with signed_in(garden.house) as console:
        assert f'<a href="/approvals/{page_of}">Resolve</a>' in await page(console, "/")
        html = await page(console, f"/approvals/{page_of}")
        sent = {"csrf": fields(html)["csrf"], "word": "ran"}
        assert (await console.post(f"/approvals/{page_of}", **sent, attempt="2")).status == 409
        assert (await console.post(f"/approvals/{page_of}", **sent, attempt="1")).status == 303
        assert "You confirmed that it ran." in plain(await page(console, f"/approvals/{page_of}"))
    assert "You confirmed that it ran." in await said(garden.house, "approvals", "resolve", line, "ran")
    for asked in (page_of, line):
        assert (await garden.stands(asked))["status"] == "ok"
    late = await asyncio.to_thread(call, garden.house, "approvals", "resolve", line, "again")
    assert late.exception is not None
    assert garden.valves.of(f"{bed} a") == garden.valves.of(f"{bed} b") == 1


async def test_the_history_of_a_call_speaks_of_no_message(garden: Garden, bed: str) -> None:
    async with signed_in(garden.house) as console:
        for word, headline in (("ran", "You confirmed that it ran owner"), ("leave", "You left it unconfirmed owner")):
            asked = await left_in_doubt(garden, f"{bed} {word}")
            await said(garden.house, "approvals", "resolve", asked, word)
            history = plain(await page(console, f"/approvals/{asked}")).partition(" History ")[2]
            assert "Outcome not known " in history
            assert headline in history
            assert not [one for one in ("Sent", "Not delivered", "Delivery unconfirmed") if one in history]


async def test_it_does_not_run_again_beside_the_same_call_that_waits(garden: Garden, bed: str) -> None:
    asked = await left_in_doubt(garden, bed)
    assert (await garden.call("prune", bed=bed, hold=True))["status"] == "pending_approval"
    refused = await asyncio.to_thread(call, garden.house, "approvals", "resolve", asked, "again")
    assert refused.exception is not None
    assert "waits anew" in str(refused.exception)
    assert (await garden.row(asked))["status"] == "uncertain"


BRAKE = "INSERT INTO shared.brakes (butler) VALUES ('greeter')"
LIFT = "UPDATE shared.brakes SET lifted_at = clock_timestamp()"
A_DAY_AGO = "UPDATE shared.pending_actions SET decided_at = decided_at - interval '25 hours' WHERE id = $1"


async def test_what_may_have_run_and_is_not_run_again_in_time_is_not_said_to_be_undone(
    garden: Garden, bed: str
) -> None:
    house, asked = garden.house, await left_in_doubt(garden, bed)
    await house.sql.execute(BRAKE)
    await said(house, "approvals", "resolve", asked, "again")
    await house.sql.execute(A_DAY_AGO, asked)
    await garden.ended(asked, "expired")
    await house.sql.execute(LIFT)
    error = (await garden.stands(asked))["error"]
    assert isinstance(error, Mapping)
    assert (error["message"], error["retryable"]) == (CALL_LATE_AGAIN, False)
    await until(lambda: any("may have run before, and did not" in str(one["payload"]) for one in house.sent(bed)))
    assert (await garden.call("prune", bed=bed, hold=True))["status"] == "pending_approval"
    await eventually(partial(_asked_again, garden, bed))
    assert garden.valves.of(bed) == 1


async def test_what_the_owner_left_is_not_said_to_have_failed(garden: Garden, bed: str) -> None:
    asked = await left_in_doubt(garden, bed)
    await said(garden.house, "approvals", "resolve", asked, "leave")
    error = (await garden.stands(asked))["error"]
    assert isinstance(error, Mapping)
    assert error["message"] == CALL_LEFT


LOOKED = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"


@pytest.mark.slow
async def test_a_call_under_a_brake_is_looked_at_by_the_tick_alone(garden: Garden, bed: str) -> None:
    """The house here ticks ten times a second; a loop without rest makes thousands of looks."""
    house = garden.house
    await house.sql.execute(BRAKE)
    asked = await garden.call("flood", bed=bed)
    await house.decide(asked["action_id"])
    await asyncio.sleep(1.2)
    before = await house.sql.fetchval(LOOKED)
    await asyncio.sleep(4)
    looked = await house.sql.fetchval(LOOKED) - before
    await house.sql.execute(LIFT)
    await garden.ended(asked["action_id"], "executed")
    assert looked < 700
