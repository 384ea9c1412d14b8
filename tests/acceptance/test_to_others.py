"""Nobody but the owner is told anything without a rule or the owner's yes (seed 001: gating, missing identifier)."""

import asyncio
import uuid

import pytest

from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.fleet import Fleet
from tests.rig.outside import Card
from tests.rig.waiting import LONGEST

ADD_RULE = """
INSERT INTO shared.approval_rules (tool_name, effect, arg_constraints) VALUES ('notify', $1, $2) RETURNING id::text
"""
WAITS = "Waiting for the owner's approval. It will be sent automatically once approved; do not send it again."


def parked(answer: Answer) -> str:
    """The action's id of an answer that is exactly what waiting for a yes looks like."""
    assert answer == {
        "schema_version": "notify_response.v1",
        "status": "pending_approval",
        "notification_id": answer.get("notification_id"),
        "action_id": answer.get("action_id"),
        "message": WAITS,
    }
    return str(uuid.UUID(str(answer["action_id"])))


async def waiting(fleet: Fleet, said: str, **arguments: object) -> tuple[str, Card]:
    """Ask for a third party; the parked action and its card."""
    action = parked(await fleet.notify(message=said, **arguments))
    return action, await fleet.outside.card(action)


@pytest.mark.every_mode
async def test_it_is_parked_shown_and_delivered_once_after_the_yes(fleet: Fleet) -> None:
    said, chat = fresh.words("dentist at nine"), fresh.chat()
    asked = {"channel": "telegram", "contact_id": await fleet.contact("Anna", telegram=chat)}
    action, card = await waiting(fleet, said, **asked)
    assert said in card.text
    assert f"Anna ({chat})" in card.text
    assert "Health wants to message Anna" in card.text
    assert list(card.buttons) == ["Approve", "Deny"]
    assert all(len(data.encode()) <= 64 for data in card.buttons.values())
    assert await fleet.notify(message=said, **asked) == {
        "schema_version": "notify_response.v1",
        "status": "pending_approval",
        "notification_id": await fleet.value(
            "SELECT notification_id::text FROM shared.pending_actions WHERE id = $1", action
        ),
        "action_id": action,
        "message": WAITS,
        "duplicate": True,
    }
    await fleet.outside.press(card, "Approve")
    entry = await fleet.outside.arrived(said, chat)
    assert entry.text == said
    await asyncio.gather(*(fleet.outside.press(card, "Approve") for _ in range(3)))
    again = await until_settled(fleet, said, **asked)
    assert (again["status"], again["duplicate"]) == ("ok", True)
    assert again["delivery"] == {"channel": "telegram", "delivery_id": entry.provider_id, "sandbox": True}
    await fleet.outside.arrived(said, chat)
    status = await fleet.value("SELECT status FROM shared.pending_actions WHERE id = $1", action)
    assert status == "executed"


async def until_settled(fleet: Fleet, said: str, **asked: object) -> Answer:
    """The answer of a repeat once it is neither queued nor waiting."""
    async with asyncio.timeout(LONGEST):
        while (answer := await fleet.notify(message=said, **asked))["status"] in {"queued", "pending_approval"}:
            await asyncio.sleep(0.02)
    return answer


async def test_after_a_no_nothing_leaves_ever(fleet: Fleet) -> None:
    said, to = fresh.words("rent is due"), fresh.address()
    asked = {"channel": "email", "recipient": to}
    action, card = await waiting(fleet, said, **asked)
    await fleet.outside.press(card, "Deny")
    answer = await until_settled(fleet, said, **asked)
    assert answer["error"] == {"class": "forbidden", "message": "Denied by the owner.", "retryable": False}
    assert (answer["status"], answer["duplicate"]) == ("error", True)
    await fleet.outside.press(card, "Approve")
    await asyncio.sleep(0.5)
    assert await fleet.value("SELECT status FROM shared.pending_actions WHERE id = $1", action) == "denied"
    assert not [e for e in await fleet.outside.journal() if e.to == to]


async def test_only_the_owner_in_the_own_chat_can_press(fleet: Fleet) -> None:
    said, chat, stranger = fresh.words("stranger"), fresh.chat(), fresh.chat()
    action, card = await waiting(fleet, said, channel="telegram", recipient=str(chat))
    number = await fleet.outside.say(stranger, "hello")
    await fleet.outside.press_data(number, card.buttons["Approve"], stranger)
    forged = card.buttons["Deny"].replace(":no:", ":ok:")
    await fleet.outside.press_data(card.message_id, forged, OWNER)
    spoilt = card.buttons["Approve"][:-1] + ("A" if card.buttons["Approve"][-1] != "A" else "B")
    await fleet.outside.press_data(card.message_id, spoilt, OWNER)
    await fleet.outside.press_data(card.message_id, "a1:nonsense", OWNER)
    await asyncio.sleep(0.7)
    assert await fleet.value("SELECT status FROM shared.pending_actions WHERE id = $1", action) == "pending"
    await fleet.outside.press(card, "Approve")
    await fleet.outside.arrived(said, chat)


async def test_the_card_of_a_long_text_shows_all_of_it_and_the_buttons_last(fleet: Fleet) -> None:
    said, chat = fresh.words("chapter"), fresh.chat()
    message = "\n".join(f"{n} {said} d\u00e9j\u00e0 \U0001f9e1" for n in range(400))[:9000]
    _, card = await waiting(fleet, message, channel="telegram", recipient=str(chat))
    numbers = [part.text.partition("\n")[0] for part in card.parts[:-1]]
    assert numbers == [f"\u25a3 ({n}/{len(numbers)})" for n in range(1, len(numbers) + 1)]
    assert len(numbers) >= 3
    lines = [line for part in card.parts[:-1] for line in part.text.split("\n")[1:]]
    assert "".join(message.split()) == "".join("".join(line.split()) for line in lines)
    for part in card.parts[:-1]:
        number, _, words = part.text.partition("\n")
        assert part.payload["entities"] == [
            {"length": len(words.encode("utf-16-le")) // 2, "offset": len(number) + 1, "type": "pre"},
        ]
    assert not any("reply_markup" in part.payload for part in card.parts[:-1])
    await fleet.outside.press(card, "Approve")
    settled = await until_settled(fleet, message, channel="telegram", recipient=str(chat))
    assert settled["status"] == "ok", settled
    parts = [e for e in await fleet.outside.journal() if e.to == str(chat)]
    assert "".join("".join(e.text.split()) for e in parts) == "".join(message.split())


async def test_what_would_deceive_the_owner_is_shown_as_what_it_is(fleet: Fleet) -> None:
    said = fresh.words("hidden")
    message = f"{said} \u202egnp.exe\u202c zero\u200bwidth"
    _, card = await waiting(fleet, message, channel="telegram", recipient=str(fresh.chat()))
    assert "\u202e" not in card.text
    assert "\u200b" not in card.text
    await fleet.outside.press(card, "Deny")


async def test_without_an_identifier_it_is_parked_and_the_owner_is_told(fleet: Fleet) -> None:
    said, name = fresh.words("missing"), fresh.words("Bo")
    contact = await fleet.contact(name, email=fresh.address())
    answer = await fleet.notify(channel="telegram", message=said, contact_id=contact)
    assert answer == {
        "status": "pending_missing_identifier",
        "action_id": answer.get("action_id"),
        "message": "Cannot deliver telegram notification -- no telegram identifier on file.",
    }
    [row] = await fleet.sql("SELECT * FROM shared.pending_actions WHERE id = $1", answer["action_id"])
    assert (row["tool_name"], row["status"]) == ("notify", "pending")
    assert "no telegram identifier on file" in row["agent_summary"]
    [told, *_] = await fleet.outside.until(lambda e: e.to == str(OWNER) and said in e.text)
    assert name in told.text
    assert "on Telegram (no address on file)" in told.text
    assert "Approve" not in str(told.payload)
    assert f"/contacts/{contact}" in told.text


async def test_a_contact_is_reached_by_its_primary_entry(fleet: Fleet) -> None:
    said, primary = fresh.words("primary"), fresh.address()
    contact = await fleet.contact("Cleo", email=primary)
    await fleet.sql(
        "INSERT INTO shared.contact_info (contact_id, type, value, created_at)"
        " VALUES ($1, 'email', $2, clock_timestamp() - interval '1 day')",
        uuid.UUID(contact),
        fresh.address(),
    )
    _, card = await waiting(fleet, said, channel="email", contact_id=contact)
    assert f"Cleo ({primary})" in card.text
    await fleet.outside.press(card, "Approve")
    await fleet.outside.arrived(said, primary)


async def test_without_a_primary_entry_the_oldest_counts(fleet: Fleet) -> None:
    said, oldest = fresh.words("oldest"), fresh.address()
    contact = await fleet.contact("Dora", email=oldest)
    await fleet.sql("UPDATE shared.contact_info SET is_primary = false WHERE contact_id = $1", uuid.UUID(contact))
    await fleet.sql(
        "INSERT INTO shared.contact_info (contact_id, type, value) VALUES ($1, 'email', $2)",
        uuid.UUID(contact),
        fresh.address(),
    )
    _, card = await waiting(fleet, said, channel="email", contact_id=contact)
    assert f"Dora ({oldest})" in card.text
    await fleet.outside.press(card, "Deny")


async def test_contact_id_wins_over_recipient_and_the_answer_says_so(fleet: Fleet) -> None:
    said, owner = (
        fresh.words("wins"),
        await fleet.value("SELECT id::text FROM shared.contacts WHERE 'owner' = ANY (roles)"),
    )
    answer = await fleet.notify(channel="email", message=said, contact_id=owner, recipient=fresh.address())
    assert answer["status"] == "ok"
    assert answer["note"] == "contact_id was used; recipient was ignored."
    await fleet.outside.arrived(said, OWNER_EMAIL)


async def test_an_unknown_address_needs_a_yes_also_of_the_other_channel(fleet: Fleet) -> None:
    said = fresh.words("unknown")
    _, card = await waiting(fleet, said, channel="telegram", recipient="unknown@example.com")
    assert list(card.buttons) == ["Deny"]
    await fleet.outside.press(card, "Deny")


@pytest.mark.every_mode
async def test_a_standing_rule_lets_it_out_at_once(fleet: Fleet) -> None:
    said, chat = fresh.words("by rule"), fresh.chat()
    contact = await fleet.contact("Emil", telegram=chat)
    await fleet.sql(ADD_RULE, "allow", {"contact_id": contact})
    answer = await fleet.notify(channel="telegram", message=said, contact_id=contact)
    assert answer["status"] == "ok"
    assert (await fleet.outside.arrived(said, chat)).text == said
    by_address = await fleet.notify(channel="telegram", message=f"{said}!", recipient=str(chat))
    assert by_address["status"] == "ok"


async def test_a_deny_rule_beats_the_allowing_one(fleet: Fleet) -> None:
    said, to = fresh.words("deny rule"), fresh.address()
    contact = await fleet.contact("Fritz", email=to)
    await fleet.sql(ADD_RULE, "allow", {"contact_id": contact})
    await fleet.sql(ADD_RULE, "deny", {"recipient": to})
    answer = await fleet.notify(channel="email", message=said, contact_id=contact)
    assert answer["status"] == "error"
    assert answer["error"]["class"] == "forbidden"  # type: ignore[index]  # the error object
    assert answer["error"]["retryable"] is False  # type: ignore[index]
    assert not [e for e in await fleet.outside.journal() if e.to == to]


async def test_the_same_words_in_other_form_go_to_a_third_party_once(fleet: Fleet) -> None:
    said, to = fresh.words("once"), fresh.address()
    contact = await fleet.contact("Greta", email=to)
    await fleet.sql(ADD_RULE, "allow", {"contact_id": contact})
    context = {"request_id": said}
    first = await fleet.notify(channel="email", message=said, contact_id=contact, request_context=context)
    second = await fleet.notify(channel="email", message=said, recipient=to, request_context=context)
    assert (first["status"], second["status"], second["duplicate"]) == ("ok", "ok", True)
    assert "idempotency_key" in str(second["note"])
    await fleet.outside.arrived(said, to)
