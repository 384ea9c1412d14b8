"""What the provider does wrong: proved not sent is tried again and arrives once, the unknown is never repeated."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST

UNKNOWN = "Delivery unconfirmed: it may have arrived. Do not send it again."
# A marker waits for whoever is changing what it rests on.
AS_IF_BRAKING = "LOCK TABLE shared.authority IN ROW EXCLUSIVE MODE"
# The stages at which the provider has seen the text, so that a fault can be for one text only.
WITH_TEXT = ("sendMessage", "text", "dot")
# By name: channel, stage, fault and its value.
RETRIED = {
    "rate limited": ("telegram", "sendMessage", "429", 1),
    "dropped before the body": ("telegram", "sendMessage", "drop_before_body", 0),
    "mail server busy": ("email", "mail", "4xx", 451),
    "recipient refused for now": ("email", "rcpt", "4xx", 450),
    "text refused for now": ("email", "data", "4xx", 451),
    "mail refused for now at the dot": ("email", "dot", "4xx", 452),
}
REFUSED = {
    "bad request": ("telegram", "sendMessage", "400", 0),
    "blocked by the user": ("telegram", "sendMessage", "403", 0),
    "recipient refused": ("email", "rcpt", "5xx", 550),
    "mail refused": ("email", "dot", "5xx", 550),
}
# The last number: how often the provider has it nevertheless.
UNCERTAIN = {
    "server error": ("telegram", "sendMessage", "500", 0, 0),
    "bad gateway": ("telegram", "sendMessage", "502", 0, 0),
    "accepted, then an error": ("telegram", "sendMessage", "500_accepted", 0, 1),
    "accepted, then reset": ("telegram", "sendMessage", "accept_reset", 0, 1),
    "an answer nobody can read": ("telegram", "sendMessage", "garbage", 0, None),
    "mail accepted, then reset": ("email", "dot", "accept_reset", 0, 1),
    "mail lost at the dot": ("email", "dot", "drop", 0, 0),
}


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def healthy_afterwards(fleet: Fleet) -> AsyncIterator[None]:
    yield
    await fleet.outside.clear_faults()


async def friend(fleet: Fleet) -> tuple[str, dict[str, str]]:
    """Somebody whom every butler may write to: the contact's id, and the address by each channel."""
    chat, to = fresh.chat(), fresh.address()
    contact = await fleet.contact("Hanna", telegram=chat, email=to)
    await fleet.sql(
        "INSERT INTO shared.approval_rules (tool_name, effect, arg_constraints) VALUES ('notify', 'allow', $1)",
        {"contact_id": contact},
    )
    return contact, {"telegram": str(chat), "email": to}


async def told(fleet: Fleet, said: str, channel: str, stage: str, fault: str, value: float, **whom: object) -> Answer:
    """The answer when this goes wrong once for exactly these words, and how a repeat is answered must agree."""
    more: dict[str, object] = {"match": said} if stage in WITH_TEXT else {}
    if value:
        more["value"] = value
    await fleet.outside.fault(channel, stage, fault, times=1, **more)
    if fault == "drop_before_body":
        return await cut_before_the_marker(fleet, channel, said)
    return await fleet.notify(channel=channel, message=said, **whom)


async def armed(fleet: Fleet) -> bool:
    """Whether a fault is still to come."""
    async with fleet.http.get(f"{fleet.outside.url}/api/faults") as answer:
        return bool((await answer.json())["faults"])


async def cut_before_the_marker(fleet: Fleet, channel: str, said: str) -> Answer:
    """The answer when the provider has cut the connection before the marker counts, however slow the provider is."""
    async with fleet.db.transaction():
        await fleet.sql(AS_IF_BRAKING)
        answer = asyncio.create_task(fleet.notify(channel=channel, message=said))
        async with asyncio.timeout(LONGEST):
            while await armed(fleet):
                await asyncio.sleep(0.02)
    return await answer


def address(channel: str) -> str:
    return str(OWNER) if channel == "telegram" else OWNER_EMAIL


async def attempts(fleet: Fleet, answer: Answer) -> int:
    """How often it was tried, from the rows."""
    found = await fleet.value(
        "SELECT count(*) FROM messenger.attempts a JOIN messenger.deliveries d ON d.id = a.delivery_id"
        " WHERE d.notification_id = $1",
        answer["notification_id"],
    )
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("how", RETRIED.values(), ids=RETRIED)
async def test_what_is_proved_not_sent_is_tried_again_and_arrives_once(
    fleet: Fleet, how: tuple[str, str, str, int]
) -> None:
    said = fresh.words("retried")
    answer = await told(fleet, said, *how)
    assert answer["status"] == "ok", answer
    entry = await fleet.outside.arrived(said, address(how[0]))
    assert answer["delivery"]["delivery_id"] == entry.provider_id  # type: ignore[index]  # an object
    assert await attempts(fleet, answer) == 2


@pytest.mark.parametrize("how", REFUSED.values(), ids=REFUSED)
async def test_what_the_provider_refuses_is_an_error_and_not_tried_again(
    fleet: Fleet, how: tuple[str, str, str, int]
) -> None:
    said = fresh.words("refused")
    answer = await told(fleet, said, *how)
    assert answer["status"] == "error", answer
    error = answer["error"]
    assert isinstance(error, dict)
    assert (error["class"], error["retryable"]) == ("provider_rejected", False)
    assert error["message"]
    assert await attempts(fleet, answer) == 1
    # The owner is told of it, by the next channel if need be.
    assert [found for found in await fleet.outside.having(said) if "Not delivered" not in found.text] == []


async def test_what_nobody_can_know_is_called_so_and_never_repeated(fleet: Fleet) -> None:
    # What goes to the owner is repeated once after ten seconds: that of others stays, however slow this is.
    words = {name: fresh.words("uncertain") for name in UNCERTAIN}
    friends = {name: await friend(fleet) for name in UNCERTAIN}
    error = {"class": "internal_error", "message": UNKNOWN, "retryable": False}
    for name, (channel, stage, fault, value, _) in UNCERTAIN.items():
        to_the_owner = await told(fleet, fresh.words("uncertain to the owner"), channel, stage, fault, value)
        to_another = await told(fleet, words[name], channel, stage, fault, value, contact_id=friends[name][0])
        for answer in (to_the_owner, to_another):
            assert (answer["status"], answer["error"]) == ("uncertain", error), (name, answer)
        # Five in a row would pause the channel.
        assert (await fleet.notify(channel=channel, message=fresh.words("between")))["status"] == "ok", name
    await asyncio.sleep(2.5)  # longer than a sweep
    for name, (channel, _, _, _, accepted) in UNCERTAIN.items():
        contact, at = friends[name]
        again = await fleet.notify(channel=channel, message=words[name], contact_id=contact)
        assert (again["status"], again["duplicate"]) == ("uncertain", True), name
        assert await attempts(fleet, again) == 1, name
        if accepted is not None:
            having = await fleet.outside.having(words[name])
            assert len([entry for entry in having if entry.to == at[channel]]) == accepted, name


async def test_one_chat_in_trouble_does_not_hold_up_another(fleet: Fleet) -> None:
    said, quick = fresh.words("slow"), fresh.words("quick")
    contact, at = await friend(fleet)
    asked = {"channel": "telegram", "message": said, "contact_id": contact}
    await fleet.outside.fault("telegram", "sendMessage", "slow", match=said, times=1, value=6)
    waiting = asyncio.create_task(fleet.notify(**asked))
    await fleet.outside.arrived(said, at["telegram"])  # and the answer to it is still to come
    assert (await fleet.notify(channel="telegram", message=quick))["status"] == "ok"
    assert not waiting.done()
    assert (await waiting)["status"] in {"ok", "queued"}
    assert (await fleet.notify(**asked))["status"] == "ok"


@pytest.mark.slow
@pytest.mark.modes("each")
async def test_an_answer_that_does_not_come_is_said_to_be_on_its_way_and_then_unknown(fleet: Fleet) -> None:
    said = fresh.words("hanging")
    await fleet.outside.fault("telegram", "sendMessage", "accept_hang", match=said, times=1)
    answer = await fleet.notify(channel="telegram", message=said)
    assert answer["status"] == "queued"
    assert answer["message"] == "Being sent; the outcome is not known yet. Do not send it again."
    await fleet.kill("sandbox")
    await fleet.restart("sandbox")
    async with asyncio.timeout(LONGEST):
        while (again := await fleet.notify(channel="telegram", message=said))["status"] == "queued":
            await asyncio.sleep(0.1)
    assert again["status"] == "uncertain"
    await asyncio.sleep(2.5)
    assert len(await fleet.outside.having(said)) == 1
