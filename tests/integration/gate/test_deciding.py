"""The owner's word: one decision however many press, only the owner's, and only on what was shown."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from uuid import uuid4

import pytest

from shared.db.pool import Record
from shared.rpc import Answer
from shared.storage import contacts, pending_actions
from tests.integration.house import House, button_data
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import ACTION, new_chat
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACTION_BY_ID = "SELECT * FROM shared.pending_actions WHERE id = $1"
STRANGER = 9000000001
GROUP = -100555


async def parked(house: House, message: str) -> tuple[Answer, str]:
    """An answer that waits for the owner, and the contact it is for."""
    contact = await house.contact("Zoe", telegram=new_chat())
    answer = await house.notify(message=message, contact_id=contact)
    assert answer["status"] == "pending_approval", answer
    return answer, contact


async def card_of(house: House, message: str, count: int = 1) -> Mapping[str, object]:
    """The newest card about these words, once there are so many."""
    return (await until(lambda: found if len(found := house.cards(message)) >= count else None))[-1]


async def edits_of(house: House, message: str, said: str) -> list[Mapping[str, object]]:
    """The edits that say this of the cards about these words, once there is one; other tests' cards may be late."""
    return await until(lambda: [e for e in house.sent(message, "editMessageText") if said in str(e["payload"])])


async def action_of(house: House, answer: Answer) -> Record:
    return await house.row(ACTION, str(answer["notification_id"]))


async def events(house: House, answer: Answer) -> list[str]:
    text = "SELECT event_type FROM shared.approval_events WHERE notification_id = $1 ORDER BY seq"
    return [row["event_type"] for row in await house.sql.fetch(text, answer["notification_id"])]


async def test_approve_sends_it_once_and_the_butler_gets_the_receipt(house: House, message: str) -> None:
    answer, _ = await parked(house, message)
    handled = await house.press(await card_of(house, message))
    assert handled["outcome"] == "approved"
    await house.settled(answer["notification_id"], "ok")
    assert len(house.sent(message)) == 1
    action = await action_of(house, answer)
    owner = await contacts.owner(house.sql)
    assert owner is not None
    assert (action["status"], action["decided_by"]) == ("executed", owner["id"])
    assert len(action["wire_shas"]) == 1
    assert await events(house, answer) == ["parked", "approved", "marked", "executing", "executed"]
    again = await house.notify(message=message, contact_id=action["tool_args"]["contact_id"])
    assert (again["status"], again["duplicate"]) == ("ok", True)


async def test_deny_sends_nothing_and_the_butler_is_told_why(house: House, message: str) -> None:
    answer, contact = await parked(house, message)
    assert (await house.decide(answer["action_id"], approve=False, reason="Not now.")).code == "denied"
    again = await house.notify(message=message, contact_id=contact)
    error = again["error"]
    assert isinstance(error, dict)
    assert (again["status"], error["class"], error["retryable"]) == ("error", "forbidden", False)
    assert "Denied by the owner. Reason: Not now." in error["message"]
    assert await events(house, answer) == ["parked", "denied"]
    assert house.sent(message) == []


async def test_the_card_shows_what_became_of_it(house: House, message: str) -> None:
    await parked(house, message)
    card = await card_of(house, message)
    handled = await house.press(card, "no")
    assert handled["outcome"] == "denied"
    edits = await edits_of(house, message, "Denied.")
    assert edits[-1]["provider_id"] == card["provider_id"]
    assert house.sent("Denied.", "answerCallbackQuery")


@pytest.mark.parametrize(("approve", "said"), [(True, "Approved"), (False, "Denied.")])
async def test_the_card_shows_a_word_that_was_given_elsewhere(
    house: House, message: str, *, approve: bool, said: str
) -> None:
    answer, _ = await parked(house, message)
    card = await card_of(house, message)
    await house.decide(answer["action_id"], approve=approve)
    edits = await edits_of(house, message, said)
    assert edits[0]["provider_id"] == card["provider_id"]
    assert "reply_markup" not in str(edits[0]["payload"])
    await asyncio.sleep(0.3)
    # A yes is shown once, and its end once, if that is another moment.
    assert len(house.sent(message, "editMessageText")) in ((1, 2) if approve else (1,))


async def test_a_card_that_was_replaced_says_so(house: House, message: str) -> None:
    answer, contact = await parked(house, message)
    card = await card_of(house, message)
    entry = "UPDATE shared.contact_info SET value = $2 WHERE contact_id = $1 AND type = 'telegram'"
    await house.sql.execute(entry, contact, str(7_100_000_000 + int(str(card["provider_id"]))))
    assert (await house.decide(answer["action_id"])).code == "changed"
    edits = await edits_of(house, message, "Changed. A new approval request replaces this one.")
    assert edits[0]["provider_id"] == card["provider_id"]


async def test_however_many_decide_at_once_one_word_counts(house: House, message: str) -> None:
    answer, _ = await parked(house, message)
    words = await asyncio.gather(*(house.decide(answer["action_id"], approve=n % 2 == 0) for n in range(20)))
    codes: Counter[str] = Counter(word.code for word in words)
    assert codes["late"] == 19
    decided = "approved" if codes["approved"] else "denied"
    assert codes[decided] == 1
    wanted = "ok" if decided == "approved" else "error"
    await house.settled(answer["notification_id"], wanted)
    assert len(house.sent(message)) == (1 if decided == "approved" else 0)
    assert [e for e in await events(house, answer) if e in {"approved", "denied"}] == [decided]


async def test_pressing_ten_times_sends_it_once(house: House, message: str) -> None:
    answer, _ = await parked(house, message)
    card = await card_of(house, message)
    outcomes = [(await house.press(card))["outcome"] for _ in range(10)]
    assert Counter(outcomes) == {"approved": 1, "late": 9}
    await house.settled(answer["notification_id"], "ok")
    assert len(house.sent(message)) == 1


async def test_a_button_of_an_earlier_revision_decides_nothing(house: House, message: str) -> None:
    answer, contact = await parked(house, message)
    first = await card_of(house, message)
    await house.sql.execute("UPDATE shared.contact_info SET value = $2 WHERE contact_id = $1", contact, new_chat())
    assert (await house.press(first))["outcome"] == "changed"
    second = await card_of(house, message, 2)
    assert (await house.press(first))["outcome"] == "stale"
    assert ((await action_of(house, answer))["status"], house.sent(message)) == ("pending", [])
    assert button_data(first) != button_data(second)
    assert (await house.press(second))["outcome"] == "approved"
    await house.settled(answer["notification_id"], "ok")


async def test_a_word_about_an_earlier_revision_decides_nothing(house: House, message: str) -> None:
    answer, _ = await parked(house, message)
    action = await action_of(house, answer)
    owner = await contacts.owner(house.sql)
    assert owner is not None
    await house.sql.execute("UPDATE shared.pending_actions SET revision = 2 WHERE id = $1", action["id"])
    async with house.context("messenger").db.work() as connection:
        for revision, decided in ((1, None), (3, None), (2, answer["notification_id"])):
            verdict = pending_actions.Verdict(action["id"], revision, "denied", owner["id"], "test")
            assert await pending_actions.decide(connection, verdict) == decided


async def test_a_strangers_press_decides_nothing(house: House, message: str) -> None:
    answer, _ = await parked(house, message)
    data = button_data(await card_of(house, message))[0]
    handled = await press_elsewhere(house, STRANGER, STRANGER, data)
    assert handled["outcome"] == "stranger"
    assert (await action_of(house, answer))["status"] == "pending"


async def test_a_press_in_a_group_decides_nothing_not_even_the_owners(house: House, message: str) -> None:
    answer, _ = await parked(house, message)
    data = button_data(await card_of(house, message))[0]
    for who in (OWNER, STRANGER):
        handled = await press_elsewhere(house, who, GROUP, data)
        assert handled["outcome"] == "stranger"
    assert ((await action_of(house, answer))["status"], house.sent(message)) == ("pending", [])


async def test_a_stranger_in_the_owners_chat_decides_nothing(house: House, message: str) -> None:
    answer, _ = await parked(house, message)
    assert (await house.press(await card_of(house, message), who=STRANGER))["outcome"] == "stranger"
    assert (await action_of(house, answer))["status"] == "pending"


async def press_elsewhere(house: House, who: int, chat: int, data: str) -> Record:
    """Press a button with this data on a message the bot sent into another chat."""
    status, shape = await house.box.bot("sendMessage", "1:sandbox", chat_id=chat, text="a forged card")
    assert status == 200
    result = shape["result"]
    assert isinstance(result, dict)
    told = await house.box.api("press", as_=who, chat=chat, message_id=result["message_id"], data=data)
    return await house.handled(told["update_id"])


FORGED: Mapping[str, Callable[[str], str]] = {
    "verb": lambda data: data.replace(":ok:", ":no:"),
    "tag": lambda data: data[:-1] + ("A" if data[-1] != "A" else "B"),
    "id": lambda data: "a1:" + "A" * 22 + data[25:],
    "noise": lambda _: "hello",
}


@pytest.mark.parametrize("forge", FORGED)
async def test_a_forged_button_decides_nothing(house: House, message: str, forge: str) -> None:
    answer, _ = await parked(house, message)
    card = await card_of(house, message)
    told = await house.box.api(
        "press",
        as_=OWNER,
        chat=OWNER,
        message_id=int(str(card["provider_id"])),
        data=FORGED[forge](button_data(card)[0]),
    )
    assert (await house.handled(told["update_id"]))["outcome"] in {"stale", "not_ours"}
    assert (await action_of(house, answer))["status"] == "pending"


async def test_what_nobody_answers_in_time_expires_and_cannot_be_approved(house: House, message: str) -> None:
    answer, _ = await parked(house, message)
    card = await card_of(house, message)
    await house.sql.execute(
        "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE id = $1", answer["action_id"]
    )
    assert (await house.decide(answer["action_id"])).code == "late"
    await house.settled(answer["notification_id"], "error")
    assert (await house.press(card))["outcome"] in {"late", "stale"}
    told = await house.row("SELECT answer FROM shared.notifications WHERE id = $1", answer["notification_id"])
    assert "Expired without an answer" in told["answer"]["error"]["message"]
    assert house.sent(message) == []


async def test_nothing_can_be_approved_that_has_no_address(house: House, message: str) -> None:
    contact = await house.contact("Mia", email=f"{uuid4().hex}@example.org")
    answer = await house.notify(message=message, contact_id=contact)
    card = await card_of(house, message)
    assert len(button_data(card)) == 1
    assert (await house.decide(answer["action_id"])).code == "impossible"
    assert (await house.row(ACTION_BY_ID, answer["action_id"]))["status"] == "pending"


async def test_once_the_missing_identifier_is_there_it_is_asked_anew_and_goes_out(house: House, message: str) -> None:
    contact = await house.contact("Nora", email=f"{uuid4().hex}@example.org")
    answer = await house.notify(message=message, contact_id=contact)
    assert answer["status"] == "pending_missing_identifier"
    await card_of(house, message)
    chat = new_chat()
    await contacts.add_address(house.sql, contact, "telegram", chat)
    assert (await house.press(await card_of(house, message, 2)))["outcome"] == "approved"
    told = (await house.row(ACTION_BY_ID, answer["action_id"]))["notification_id"]
    assert await house.settled(told, "ok", "error") == "ok"
    assert [line["to"] for line in house.sent(message)] == [chat]


async def test_a_press_in_the_sandbox_is_nobody_s_word_while_a_channel_is_live(house: House, message: str) -> None:
    """Anybody of this computer presses there; its butler would act on it as on the owner's."""
    live = "UPDATE shared.channels SET realm = $1 WHERE channel = 'email'"
    told = "SELECT count(*) FROM shared.notices WHERE source = 'owner' AND key = $1"
    for realm, words in (("butlers@mail.test", 0), ("sandbox", 1)):
        answer, _ = await parked(house, f"{message} {words}")
        card = await card_of(house, f"{message} {words}")
        await house.sql.execute(live, realm)
        try:
            assert (await house.press(card))["outcome"] == "approved"
        finally:
            await house.sql.execute(live, "sandbox")
        assert await house.sql.fetchval(told, str(answer["action_id"])) == words
