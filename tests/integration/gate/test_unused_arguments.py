"""An argument that is not used goes nowhere: no envelope names it, no yes is bound to it, nobody is shown it."""

import json
from uuid import uuid4

import pytest

from tests.integration.commands import said
from tests.integration.house import House
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")
STORED = "SELECT envelope, content_sha FROM shared.notifications WHERE id = $1"
ASKED = "SELECT tool_args, content_sha, revision FROM shared.pending_actions WHERE id = $1::text::uuid"
# Arguments beside a contact on Telegram, none of which is used.
UNUSED = {"recipient": "decoy@example.org", "subject": "Decoy subject", "emoji": "\U0001f44d"}


def thread_of(chat: str) -> dict[str, object]:
    """The context of a message from this chat."""
    return {
        "request_id": f"unused-{uuid4()}",
        "source_channel": "telegram",
        "source_endpoint_identity": "bot",
        "source_sender_identity": chat,
        "source_thread_identity": f"{chat}:7",
    }


async def test_what_is_not_used_is_in_no_envelope_and_named_in_the_answer(house: House) -> None:
    anna, message = await house.contact("Anna"), f"unused {uuid4()}"
    answer = await house.notify(message=message, contact_id=anna, **UNUSED)
    assert answer["note"] == (
        "contact_id was used; recipient was ignored. "
        "Intent 'send' on telegram takes no subject and no emoji; it was ignored."
    )
    stored = await house.row(STORED, answer["notification_id"])
    assert stored["envelope"]["delivery"] == {"intent": "send", "channel": "telegram", "message": message}


async def test_what_stands_beside_a_thread_is_in_no_envelope_either(house: House) -> None:
    chat, message = new_chat(), f"beside a thread {uuid4()}"
    beside = {"contact_id": await house.contact("Decoy"), "recipient": "decoy@example.org"}
    answer = await house.notify(intent="reply", message=message, request_context=thread_of(chat), **beside)
    assert str(answer["note"]).startswith("A reply goes to its conversation; contact_id and recipient were ignored.")
    stored = await house.row(STORED, answer["notification_id"])
    assert stored["envelope"]["delivery"] == {"intent": "reply", "channel": "telegram", "message": message}
    kept = (await house.row(ASKED, answer["action_id"]))["tool_args"]
    assert "contact_id" not in kept
    assert kept["as_called"] == beside


async def test_the_yes_is_bound_to_the_same_content_with_and_without_it(house: House) -> None:
    anna, message = await house.contact("Anna"), f"bound {uuid4()}"
    shas = {
        (await house.row(ASKED, answer["action_id"]))["content_sha"]
        for given in ({}, UNUSED)
        for answer in [
            await house.notify(
                message=message, contact_id=anna, request_context={"idempotency_key": str(uuid4())}, **given
            )
        ]
    }
    assert len(shas) == 1


async def test_the_call_is_kept_as_it_came_apart_from_what_would_go_out(house: House) -> None:
    anna, message = await house.contact("Anna"), f"kept {uuid4()}"
    answer = await house.notify(message=message, contact_id=anna, **UNUSED)
    action_id = str(answer["action_id"])
    out = {"intent": "send", "channel": "telegram", "message": message, "contact_id": anna}
    assert (await house.row(ASKED, action_id))["tool_args"] == {**out, "as_called": UNUSED}
    for argv in (("approvals", "show", action_id), ("approvals", "show", action_id, "--json"), ("approvals", "list")):
        assert "ecoy" not in await said(house, *argv), argv
    assert json.loads(await said(house, "approvals", "show", action_id, "--json"))["tool_args"] == out
    await said(house, "approvals", "edit", action_id, "--message", f"{message}!")
    edited = await house.row(ASKED, action_id)
    assert (edited["revision"], edited["tool_args"]["as_called"]) == (2, UNUSED)
