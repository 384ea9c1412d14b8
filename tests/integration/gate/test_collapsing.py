"""A request that was answered with another one that waited: what it is from then on, and what it never joins."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from shared import answers
from shared.rpc import Answer
from tests.integration.house import House
from tests.integration.purged import ANCIENT, OLD, age, purge
from tests.integration.workers import enqueue, new_chat, work

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALL = "SELECT count(*) FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"
TIED = "SELECT count(*) FROM shared.request_aliases WHERE notification_id = $1"
REALM = "UPDATE shared.notifications SET realm = 'another' WHERE id = $1"
WITHDRAW = "INSERT INTO shared.withdrawals (notification_id, origin_butler) VALUES ($1, 'greeter')"
LATE = "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE notification_id = $1"
ANYBODY = "INSERT INTO shared.withdrawals (notification_id, origin_butler) VALUES ($1, 'health')"

Ask = Callable[[str | None], Awaitable[Answer]]


async def asking(house: House, message: str, **contact: str) -> Ask:
    """Asks with these words to somebody new, in the course of the request of that name or of none."""
    to = await house.contact("Zoe", **contact or {"telegram": new_chat()})

    async def ask(request: str | None) -> Answer:
        context = {"request_context": {"request_id": f"{request} {message}"}} if request else {}
        return await house.notify(message=message, contact_id=to, **context)

    return ask


async def collapsed(house: House, ask: Ask) -> Answer:
    """The answer to `one`, of which `two` became a part."""
    first, second = await ask("one"), await ask("two")
    assert (second["action_id"], second["note"]) == (first["action_id"], answers.WAITS_ALREADY)
    return first


@pytest.mark.parametrize("ruled", [False, True])
async def test_delivered_again_it_gets_what_became_of_the_first(
    still_house: House, message: str, *, ruled: bool
) -> None:
    ask = await asking(still_house, message)
    first = await collapsed(still_house, ask)
    assert (await still_house.decide(first["action_id"])).code == "approved"
    await enqueue(still_house, str(first["notification_id"]))
    await work(still_house.worker())
    if ruled:
        row = await still_house.row(
            "SELECT contact_id FROM shared.notifications WHERE id = $1", first["notification_id"]
        )
        await still_house.rule({"contact_id": str(row["contact_id"])})
    again = await ask("two")
    assert (again["status"], again["notification_id"], again["duplicate"]) == ("ok", first["notification_id"], True)
    assert await still_house.sql.fetchval(ALL, message) == 1
    assert len(still_house.sent(message)) == 1


async def test_it_keeps_to_the_first_while_a_third_waits(still_house: House, message: str) -> None:
    ask = await asking(still_house, message)
    first = await collapsed(still_house, ask)
    await still_house.decide(first["action_id"], approve=False)
    third = await ask("three")
    assert third["status"] == "pending_approval"
    again = await ask("two")
    assert (again["status"], again["notification_id"]) == ("error", first["notification_id"])
    assert (await ask("four"))["action_id"] == third["action_id"]


async def test_delivered_again_while_the_first_waits_it_waits(still_house: House, message: str) -> None:
    ask = await asking(still_house, message)
    first = await collapsed(still_house, ask)
    again = await ask("two")
    assert (again["action_id"], again["duplicate"]) == (first["action_id"], True)
    assert await still_house.sql.fetchval(TIED, first["notification_id"]) == 1


async def test_it_goes_with_the_first(still_house: House, message: str) -> None:
    first = await collapsed(still_house, await asking(still_house, message))
    await still_house.decide(first["action_id"], approve=False)
    for days, left in ((OLD, 1), (ANCIENT, 0)):
        await age(still_house, first["notification_id"], days)
        await purge(still_house)
        assert await still_house.sql.fetchval(TIED, first["notification_id"]) == left


@pytest.mark.parametrize("contact", [{}, {"email": "zoe@example.org"}], ids=["question", "no identifier"])
@pytest.mark.parametrize("gone", [REALM, WITHDRAW, LATE], ids=["other realm", "withdrawn", "too late"])
async def test_nothing_becomes_part_of_what_will_not_go_out(
    still_house: House, message: str, gone: str, contact: dict[str, str]
) -> None:
    mail = {name: f"{uuid4().hex}{value}" for name, value in contact.items()}
    ask = await asking(still_house, message, **mail)
    first = await ask("one")
    # Short of an identifier the answer names the action alone, whose id is the notification's.
    await still_house.sql.execute(gone, first.get("notification_id", first["action_id"]))
    second = await ask("two")
    assert second["status"] == first["status"]
    assert second["action_id"] != first["action_id"]
    assert (await ask("three"))["action_id"] == second["action_id"]


async def test_what_another_butler_wants_withdrawn_waits_on(still_house: House, message: str) -> None:
    ask = await asking(still_house, message)
    first = await ask("one")
    await still_house.sql.execute(ANYBODY, first["notification_id"])
    assert (await ask("two"))["action_id"] == first["action_id"]


async def test_of_equal_calls_at_once_one_asks(still_house: House, message: str) -> None:
    ask = await asking(still_house, message)
    told = await asyncio.gather(*(ask(name) for name in (None, *"abcdefgh", None)))
    assert len({answer["action_id"] for answer in told}) == 1
    assert [answer.get("duplicate") for answer in told].count(None) == 1
    assert await still_house.sql.fetchval(ALL, message) == 1


async def test_a_request_of_a_name_is_no_repeat_of_one_without(still_house: House, message: str) -> None:
    ask = await asking(still_house, message)
    first = await ask("one")
    await still_house.decide(first["action_id"], approve=False)
    second = await ask(None)
    assert (second["status"], second.get("duplicate")) == ("pending_approval", None)
    await still_house.decide(second["action_id"], approve=False)
    third = await ask(None)
    assert (third["status"], third["notification_id"]) == ("error", second["notification_id"])
