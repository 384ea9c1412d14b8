"""What is told to the owner arrives at once, once, whole and in order (seed 001: send, default recipient, response)."""

import asyncio

import pytest

from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.fleet import Era, Fleet
from tests.rig.outside import Entry
from tests.rig.waiting import eventually

ERAS: tuple[Era, ...] = ("auto", "legacy")


def delivered(answer: Answer) -> dict[str, object]:
    """The delivery of an answer that says ok."""
    assert answer["status"] == "ok", answer
    found = answer["delivery"]
    assert isinstance(found, dict)
    return found


@pytest.mark.every_mode
@pytest.mark.parametrize("era", ERAS)
async def test_by_telegram_with_exactly_these_words(fleet: Fleet, era: Era) -> None:
    said = fresh.words("Tea at five, *bold* & <b>plain</b> \u2014 d\u00e9j\u00e0 \U0001f9e1\nsecond line")
    answer = await fleet.call("health", "notify", {"channel": "telegram", "message": said}, era)
    entry = await fleet.outside.arrived(said, OWNER)
    assert entry.text == said
    butler = str(entry.payload["text"]).partition(":\n")[0]
    assert entry.payload["text"] == f"{butler}:\n{said}"
    assert set(entry.payload) == {"method", "chat_id", "link_preview_options", "text", "entities"}
    assert entry.payload["entities"] == [{"length": len(butler) + 1, "offset": 0, "type": "bold"}]
    assert answer == {
        "schema_version": "notify_response.v1",
        "status": "ok",
        "notification_id": answer["notification_id"],
        "delivery": {"channel": "telegram", "delivery_id": entry.provider_id, "sandbox": True},
    }


@pytest.mark.parametrize("era", ERAS)
async def test_by_email_with_exactly_these_words(fleet: Fleet, era: Era) -> None:
    said = fresh.words("Report\n\n.dot at a line's start\nd\u00e9j\u00e0 vu \U0001f9e1\ttab " + "long " * 60)
    asked = {"channel": "email", "message": said, "subject": "Ein Bericht \u2014 d\u00e9j\u00e0"}
    answer = await fleet.call("greeter", "notify", asked, era)
    entry = await fleet.outside.arrived(said, OWNER_EMAIL)
    mail = entry.mail
    assert entry.text == said
    assert str(mail["Subject"]).partition(": ")[2] == "Ein Bericht \u2014 d\u00e9j\u00e0"
    assert mail["To"] == OWNER_EMAIL
    assert mail["From"] == "butlers@sandbox.test"
    assert mail["Date"] is not None
    assert mail["Message-ID"] == entry.provider_id
    assert delivered(answer) == {"channel": "email", "delivery_id": entry.provider_id, "sandbox": True}


async def test_the_envelope_names_the_butler_and_keeps_what_was_asked(fleet: Fleet) -> None:
    said = fresh.words("Hello")
    answer = await fleet.notify("health", channel="telegram", message=said, intent="send")
    envelope = await fleet.value("SELECT envelope FROM shared.notifications WHERE id = $1", answer["notification_id"])
    assert envelope == {
        "schema_version": "notify.v1",
        "origin_butler": "health",
        "delivery": {"intent": "send", "channel": "telegram", "message": said},
    }
    # Where it takes seconds to reach the Messenger, the sweep brings it there as well.
    noted = "SELECT * FROM switchboard.routes WHERE notification_id = $1"
    routes = await eventually(lambda: fleet.sql(noted, answer["notification_id"]))
    ways = {(route["origin_butler"], route["target_butler"], route["tool"]) for route in routes}
    assert ways == {("health", "messenger", "route.execute")}
    assert (
        await fleet.value(
            "SELECT max(seq) FROM shared.pending_actions p JOIN shared.approval_events e"
            " ON e.action_id = p.id WHERE p.notification_id = $1",
            answer["notification_id"],
        )
        is None
    )


async def test_the_owners_own_address_as_recipient_needs_no_yes(fleet: Fleet) -> None:
    said = fresh.words("to my address")
    answer = await fleet.notify(channel="email", message=said, recipient=OWNER_EMAIL.upper())
    delivered(answer)
    await fleet.outside.arrived(said, OWNER_EMAIL)


def without_space(text: str) -> str:
    return "".join(text.split())


async def test_a_long_text_goes_in_parts_in_order_and_nothing_is_lost(fleet: Fleet) -> None:
    said = fresh.words("long")
    message = "\n".join(f"{n} {said} d\u00e9j\u00e0 \U0001f9e1 vu" for n in range(400))[:9000]
    after = len(await fleet.outside.journal())
    answer = await fleet.notify(channel="telegram", message=message)
    parts = [e for e in await fleet.outside.journal(after) if said in e.text]
    assert len(parts) >= 3
    assert {e.to for e in parts} == {str(OWNER)}
    assert without_space("".join(e.text for e in parts)) == without_space(message)
    assert [int(e.provider_id) for e in parts] == sorted(int(e.provider_id) for e in parts)
    expected = {"channel": "telegram", "delivery_id": parts[0].provider_id, "parts": len(parts), "sandbox": True}
    assert delivered(answer) == expected


async def test_the_same_again_is_answered_and_not_sent_again(fleet: Fleet) -> None:
    said = fresh.words("again")
    first = await fleet.notify(channel="telegram", message=said)
    again = await fleet.notify(channel="telegram", message=said)
    assert again == {**first, "duplicate": True}
    await fleet.outside.arrived(said, OWNER)


async def test_other_words_or_another_butler_or_channel_are_no_repeat(fleet: Fleet) -> None:
    said = fresh.words("other")
    answers = [
        await fleet.notify("health", channel="telegram", message=said),
        await fleet.notify("greeter", channel="telegram", message=said),
        await fleet.notify("health", channel="email", message=said),
        await fleet.notify("health", channel="telegram", message=f"{said}!"),
    ]
    assert len({str(delivered(answer)["delivery_id"]) for answer in answers}) == 4
    assert not any("duplicate" in answer for answer in answers)


@pytest.mark.every_mode
async def test_fifty_at_once_with_one_request_id_reach_the_provider_once(fleet: Fleet) -> None:
    said = fresh.words("fifty")
    asked = {"channel": "telegram", "message": said, "request_context": {"request_id": said}}
    answers = await asyncio.gather(*(fleet.notify("health", **asked) for _ in range(50)))
    assert {str(delivered(answer)) for answer in answers} == {str(answers[0]["delivery"])}
    assert sum("duplicate" not in answer for answer in answers) == 1
    entry = await fleet.outside.arrived(said, OWNER)
    assert answers[0]["delivery"]["delivery_id"] == entry.provider_id  # type: ignore[index]  # an object, see above


async def test_other_words_under_a_stated_key_are_a_conflict(fleet: Fleet) -> None:
    key = {"idempotency_key": fresh.words("key")}
    said = fresh.words("first")
    delivered(await fleet.notify(channel="telegram", message=said, request_context=key))
    answer = await fleet.notify(channel="telegram", message=f"not {said}", request_context=key)
    assert answer["status"] == "error"
    assert answer["error"]["class"] == "idempotency_conflict"  # type: ignore[index]  # the error object
    await fleet.outside.arrived(said, OWNER)


async def asked_by_the_owner(fleet: Fleet) -> tuple[int, dict[str, object]]:
    """A question of the owner's: its message id, and the context the inbox keeps for answering it."""
    question = fresh.words("question")
    number = await fleet.outside.say(OWNER, question)
    text = "SELECT request_context FROM switchboard.inbox WHERE text = $1"
    rows = await eventually(lambda: fleet.sql(text, question))
    return number, dict(rows[0]["request_context"])


@pytest.mark.every_mode
async def test_a_reply_points_at_the_message_answered(fleet: Fleet) -> None:
    number, context = await asked_by_the_owner(fleet)
    said = fresh.words("answer")
    answer = await fleet.notify(channel="telegram", message=said, intent="reply", request_context=context)
    entry = await fleet.outside.arrived(said, OWNER)
    assert delivered(answer)["delivery_id"] == entry.provider_id
    found = entry.payload["reply_parameters"]
    assert isinstance(found, dict)
    assert found["message_id"] == number
    kept = await fleet.value(
        "SELECT envelope -> 'request_context' FROM shared.notifications WHERE id = $1", answer["notification_id"]
    )
    assert kept == context


async def test_like_heart_like_are_three_reactions_and_a_repeat_is_none(fleet: Fleet) -> None:
    number, context = await asked_by_the_owner(fleet)

    async def react(emoji: str) -> Answer:
        return await fleet.notify(channel="telegram", intent="react", emoji=emoji, request_context=context)

    like, heart = "\U0001f44d", "\u2764"
    answers = [await react(emoji) for emoji in (like, like, heart, like, like)]
    assert ["duplicate" in answer for answer in answers] == [False, True, False, False, True]

    def reaction(entry: Entry) -> object:
        return [one["emoji"] for one in entry.payload["reaction"]]  # type: ignore[attr-defined]  # a list of objects

    entries = [e for e in await fleet.outside.journal() if e.method == "setMessageReaction"]
    assert [reaction(e) for e in entries if e.payload["message_id"] == number] == [[like], [heart], [like]]


async def test_a_mail_is_answered_in_its_thread(fleet: Fleet) -> None:
    said, asked = fresh.words("mail answer"), "<question.1@people.test>"
    context = {
        "request_id": said,
        "source_channel": "email",
        "source_endpoint_identity": "butlers@sandbox.test",
        "source_sender_identity": OWNER_EMAIL,
        "source_thread_identity": asked,
    }
    delivered(await fleet.notify(channel="email", message=said, intent="reply", request_context=context))
    mail = (await fleet.outside.arrived(said, OWNER_EMAIL)).mail
    assert (mail["In-Reply-To"], mail["References"]) == (asked, asked)
    assert str(mail["Subject"]).startswith("health: Re: ")


async def test_a_second_entry_does_not_replace_the_primary_one(fleet: Fleet) -> None:
    said, other = fresh.words("primary"), fresh.address()
    owner = await fleet.value("SELECT id::text FROM shared.contacts WHERE 'owner' = ANY (roles)")
    await fleet.sql("INSERT INTO shared.contact_info (contact_id, type, value) VALUES ($1, 'email', $2)", owner, other)
    delivered(await fleet.notify(channel="email", message=said))
    await fleet.outside.arrived(said, OWNER_EMAIL)
    named = fresh.words("named")
    delivered(await fleet.notify(channel="email", message=named, recipient=other))
    await fleet.outside.arrived(named, other)
