"""An answer to somebody else goes into a thread only if their message really reached this butler (seed 001: reply)."""

import pytest

from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.fleet import Fleet
from tests.rig.outside import Card, Entry
from tests.rig.waiting import eventually

# Which butler an inbound message is for, its row says.
ROUTED = "UPDATE switchboard.inbox SET routed_to = $2 WHERE thread = $1 AND route_until IS NULL RETURNING id"
FOR = "SELECT request_context FROM switchboard.inbox WHERE thread = $1 AND routed_to = $2"
UNPROVED = "The conversation could not be verified, so it would be sent as a new message."
ADD_RULE = "INSERT INTO shared.approval_rules (tool_name, arg_constraints) VALUES ('notify', $1)"


def context(thread: str) -> dict[str, object]:
    """What comes with a stranger's message in a private chat."""
    return {
        "request_id": fresh.words("request"),
        "source_channel": "telegram_bot",
        "source_endpoint_identity": "1",
        "source_sender_identity": thread.partition(":")[0],
        "source_thread_identity": thread,
    }


async def written(fleet: Fleet, stranger: int, butler: str | None) -> str:
    """The thread of what a stranger wrote, once it is in the inbox and routed to that butler."""
    thread = f"{stranger}:{await fleet.outside.say(stranger, 'who are you?')}"
    await eventually(lambda: fleet.sql(ROUTED, thread, butler))
    return thread


async def replied(fleet: Fleet, said: str, thread: str) -> Answer:
    return await fleet.notify(channel="telegram", message=said, intent="reply", request_context=context(thread))


async def approved(fleet: Fleet, answer: Answer, said: str, chat: int) -> tuple[Card, Entry]:
    """The card the owner said yes to, and what then came to that chat."""
    assert answer["status"] == "pending_approval", answer
    card = await fleet.outside.card(str(answer["action_id"]))
    assert not [e for e in await fleet.outside.journal() if e.to == str(chat)]
    await fleet.outside.press(card, "Approve")
    return card, await fleet.outside.arrived(said, chat)


@pytest.mark.every_mode
async def test_a_proved_reply_to_a_stranger_needs_a_yes_and_arrives_in_the_thread(fleet: Fleet) -> None:
    said, stranger = fresh.words("proved"), fresh.chat()
    thread = await written(fleet, stranger, "health")
    answer = await replied(fleet, said, thread)
    assert "note" not in answer
    card, entry = await approved(fleet, answer, said, stranger)
    assert "Health wants to reply to " in card.text
    assert entry.payload["reply_parameters"] == {"message_id": int(thread.partition(":")[2])}


@pytest.mark.every_mode
async def test_who_wrote_to_the_bot_is_answered_and_reacted_to_by_rule(fleet: Fleet) -> None:
    said, stranger = fresh.words("welcome"), fresh.chat()
    for intent in ("reply", "react"):
        await fleet.sql(ADD_RULE, {"recipient": str(stranger), "intent": intent})
    number = await fleet.outside.say(stranger, "may I ask something?")
    [row] = await eventually(lambda: fleet.sql(FOR, f"{stranger}:{number}", "health"))
    given = {"channel": "telegram", "request_context": dict(row["request_context"])}
    assert (await fleet.notify(**given, message=said, intent="reply"))["status"] == "ok"
    entry = await fleet.outside.arrived(said, stranger)
    assert entry.payload["reply_parameters"] == {"message_id": number}
    assert (await fleet.notify(**given, intent="react", emoji="\U0001f44d"))["status"] == "ok"


@pytest.mark.every_mode
@pytest.mark.parametrize("routed", ["greeter", None])
async def test_a_reply_that_nothing_proves_is_a_new_message_and_the_card_says_so(
    fleet: Fleet, routed: str | None
) -> None:
    said, stranger = fresh.words("unproved"), fresh.chat()
    thread = await written(fleet, stranger, routed)
    answer = await replied(fleet, said, thread)
    assert "could not be verified" in str(answer["note"])
    card, entry = await approved(fleet, answer, said, stranger)
    assert "Health wants to message " in card.text
    assert UNPROVED in card.text
    assert "reply_parameters" not in entry.payload


async def test_an_invented_thread_goes_out_as_a_new_message(fleet: Fleet) -> None:
    said, stranger = fresh.words("invented"), fresh.chat()
    card, entry = await approved(fleet, await replied(fleet, said, f"{stranger}:4711"), said, stranger)
    assert UNPROVED in card.text
    assert entry.text == said
    assert "reply_parameters" not in entry.payload


async def test_no_rule_lets_out_a_reaction_to_what_nothing_proves(fleet: Fleet) -> None:
    stranger = fresh.chat()
    await fleet.sql(ADD_RULE, {"recipient": str(stranger)})
    thread = await written(fleet, stranger, "greeter")
    react = {"channel": "telegram", "intent": "react", "emoji": "\U0001f44d"}
    answer = await fleet.notify(**react, request_context=context(thread))
    assert answer["status"] == "pending_approval"
    card = await fleet.outside.card(str(answer["action_id"]))
    assert "The message it reacts to could not be verified." in card.text
    await fleet.sql(ROUTED, thread, "health")
    proved = await fleet.notify(**{**react, "emoji": "\u2764"}, request_context=context(thread))
    assert proved["status"] == "ok", proved


async def test_a_mail_that_came_is_answered_in_its_thread_and_no_other_is(fleet: Fleet) -> None:
    to = fresh.address()
    asked = f"<question.of.{to}>"
    at = {"source_channel": "email", "source_endpoint_identity": "butlers@sandbox.test"}
    by_mail = {**context("1:1"), **at, "source_sender_identity": to}
    answers = {}
    for thread in (asked, "<invented@people.test>"):
        said = fresh.words("mail")
        given = {**by_mail, "request_id": said, "source_thread_identity": thread}
        if thread == asked:
            await fleet.sql(
                "INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, thread, sender, text,"
                " routed_to, request_context) VALUES ('email', 'butlers@sandbox.test', $1, $1, $2, 'hello', 'health',"
                " '{}')",
                asked,
                to.upper(),
            )
        answer = await fleet.notify(
            channel="email", message=said, subject="Dinner", intent="reply", request_context=given
        )
        assert answer["status"] == "pending_approval", answer
        await fleet.outside.press(await fleet.outside.card(str(answer["action_id"])), "Approve")
        answers[thread] = (await fleet.outside.arrived(said, to)).mail
    assert [mail["Subject"] for mail in answers.values()] == ["Dinner", "Dinner"]
    assert [mail["In-Reply-To"] for mail in answers.values()] == [asked, None]
    assert [mail["References"] for mail in answers.values()] == [asked, None]
