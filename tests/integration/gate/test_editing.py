"""The owner's words in the place of a butler's: asked anew, shown everywhere, and what is approved, sent and told."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from messenger.cards.base import NEAR
from messenger.maintenance import rechecker
from shared.display.approval import lines
from shared.errors import InvalidInput
from shared.gate.decide import CHANGED
from shared.gate.owner_decision import Edit, Outcome, edit
from shared.rpc import Answer
from shared.storage import contacts
from tests.integration.commands import said
from tests.integration.console_runner import Running
from tests.integration.gate.test_asked import question
from tests.integration.gate.test_reopening import ask_again, expire
from tests.integration.house import House, button_data
from tests.integration.signed_in import fields, page, plain, signed_in
from tests.integration.workers import ACTION, enqueue, new_chat, work
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

STATE = "SELECT status, revision, content_sha, tool_args, expires_at FROM shared.pending_actions WHERE id = $1"
STORED = "SELECT envelope, owner_text, request_sha, key, answer FROM shared.notifications WHERE id = $1"
LINES = "SELECT event_type, actor, detail FROM shared.approval_events WHERE action_id = $1 ORDER BY seq"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(house: House) -> AsyncIterator[Running]:
    """The house's console with its owner signed in."""
    async with signed_in(house) as running:
        yield running


async def parked(house: House, message: str, **more: object) -> Answer:
    contact = await house.contact("Zoe", telegram=new_chat())
    answer = await house.notify(**{"message": message, "contact_id": contact, **more})
    assert str(answer["status"]).startswith("pending"), answer
    return answer


async def change(house: House, action_id: object, text: str, revision: int | None = None) -> Outcome:
    """The owner's text, as a surface brings it."""
    async with house.context("messenger").db.work() as connection:
        owner = await contacts.owner(connection)
        assert owner is not None
        given = Edit(str(action_id), text, owner["id"], "test", timedelta(hours=72), revision)
        return await edit(connection, given)


async def card_of(house: House, words: str) -> Mapping[str, object]:
    return (await until(lambda: house.cards(words)))[-1]


async def test_the_new_card_asks_with_the_new_text_and_only_that_is_sent(house: House, message: str) -> None:
    answer = await parked(house, message)
    first, before = await card_of(house, message), await house.row(STATE, answer["action_id"])
    asked = await house.row(STORED, answer["notification_id"])
    await house.sql.execute(
        "UPDATE shared.pending_actions SET expires_at = clock_timestamp() + interval '1 hour' WHERE id = $1",
        answer["action_id"],
    )
    text = f"Better {uuid4()}"
    assert (await change(house, answer["action_id"], text)).code == "edited"
    second = await card_of(house, text)
    after = await house.row(STATE, answer["action_id"])
    assert (after["status"], after["revision"], after["tool_args"]["message"]) == ("pending", 2, text)
    assert after["content_sha"] != before["content_sha"]
    assert after["expires_at"] >= before["expires_at"]
    # Asking again is still the same call, and nothing of its answer has changed.
    again = await house.notify(message=message, contact_id=after["tool_args"]["contact_id"])
    assert again == {**answer, "duplicate": True}
    assert (await house.press(first))["outcome"] == "stale"
    assert (await house.press(second))["outcome"] == "approved"
    await house.settled(answer["notification_id"], "ok")
    assert (len(house.sent(text)), house.sent(message)) == (1, [])
    stored = await house.row(STORED, answer["notification_id"])
    kept = ("envelope", "request_sha", "key")
    assert [stored[name] for name in kept] == [asked[name] for name in kept]
    assert stored["answer"]["note"] == f"The owner edited the text: {text}"
    assert stored["answer"]["delivery"]["delivery_id"]
    lines = [(line["event_type"], line["actor"]) for line in await house.sql.fetch(LINES, answer["action_id"])]
    assert lines[1:3] == [("edited", "owner"), ("approved", "owner")]


async def test_from_the_yes_on_the_butler_is_told_and_before_it_nothing(house: House, message: str) -> None:
    answer = await parked(house, message)
    await change(house, answer["action_id"], f"Later {message}")
    assert (await house.row(STORED, answer["notification_id"]))["answer"] == answer
    assert (await house.decide(answer["action_id"])).code == "approved"
    assert "note" in (await house.row(STORED, answer["notification_id"]))["answer"]
    refused = await parked(house, f"{message} refused")
    await change(house, refused["action_id"], f"No {message}")
    await house.decide(refused["action_id"], approve=False)
    told = (await house.row(STORED, refused["notification_id"]))["answer"]
    assert (told["status"], "note" in told) == ("error", False)


async def test_taking_ones_words_back_leaves_what_was_asked(house: House, message: str) -> None:
    answer = await parked(house, message)
    await change(house, answer["action_id"], f"Other {message}")
    assert (await change(house, answer["action_id"], message)).code == "edited"
    assert (await house.row(STORED, answer["notification_id"]))["owner_text"] is None
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.settled(answer["notification_id"], "ok")
    assert "note" not in (await house.row(STORED, answer["notification_id"]))["answer"]
    assert len(house.sent(message)) == 1


async def test_words_for_somebody_without_an_address_wait_with_it(house: House, message: str) -> None:
    contact = await house.contact("Nobody there", email=f"{uuid4().hex}@example.org")
    answer = await house.notify(message=message, contact_id=contact)
    text = f"Then this {uuid4()}"
    assert (await change(house, answer["action_id"], text)).code == "edited"
    assert (await house.row(STORED, answer["action_id"]))["answer"]["status"] == "pending_missing_identifier"
    await contacts.add_address(house.sql, contact, "telegram", new_chat())
    await house.settled(answer["action_id"], "pending_approval")
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.settled(answer["action_id"], "ok")
    assert (len(house.sent(text)), house.sent(message)) == (1, [])


async def test_no_rule_lets_out_what_the_owner_changed_and_has_yet_to_approve(still_house: House, message: str) -> None:
    contact = await still_house.contact("Anna", email=f"{uuid4().hex}@example.org")
    await still_house.rule({"contact_id": contact})
    answer = await still_house.notify(message=message, contact_id=contact)
    assert (await change(still_house, answer["action_id"], f"Better {message}")).code == "edited"
    await contacts.add_address(still_house.sql, contact, "telegram", new_chat())
    assert await rechecker.identified(still_house.context("messenger")) == 1
    assert await still_house.status(answer["action_id"]) == "pending_approval"
    assert (await question(still_house, str(answer["action_id"]))).findings == (CHANGED,)
    assert (await still_house.decide(answer["action_id"])).code == "approved"
    await enqueue(still_house, str(answer["action_id"]))
    await work(still_house.worker())
    assert await still_house.status(answer["action_id"]) == "ok"


async def test_no_rule_lets_it_out_either_when_it_expired_and_is_asked_again(house: House, message: str) -> None:
    contact = await house.contact("Anna", telegram=new_chat())
    answer = await house.notify(message=message, contact_id=contact)
    await change(house, answer["action_id"], f"Better {message}")
    await expire(house, answer)
    await house.rule({"contact_id": contact})
    assert (await ask_again(house, answer))["status"] == "pending_approval"
    assert house.sent_to_others(f"Better {message}") == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Missing required 'message' parameter."),
        (" \n", "Missing required 'message' parameter."),
        ("x" * 10_001, "has 10001 characters; at most 10000 are allowed. Shorten it."),
        ("a\x00b", "contains a NUL character"),
        ("same", "The text has not changed. Approve it"),
    ],
)
async def test_a_text_that_cannot_be_sent_is_refused_in_words(house: House, text: str, complaint: str) -> None:
    answer = await parked(house, "same", request_context={"idempotency_key": str(uuid4())})
    with pytest.raises(InvalidInput) as refused:
        await change(house, answer["action_id"], text)
    assert complaint in str(refused.value)
    state = await house.row(STATE, answer["action_id"])
    assert (state["status"], state["revision"]) == ("pending", 1)


async def test_only_what_waits_can_be_edited_and_no_reaction(house: House, message: str) -> None:
    denied = await parked(house, message)
    await house.decide(denied["action_id"], approve=False)
    late = await change(house, denied["action_id"], "other")
    assert late.code == "late"
    assert late.text.startswith("Already denied (")
    assert late.text.endswith("). Nothing was changed.")
    over = await parked(house, f"{message} over")
    await house.sql.execute(
        "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE id = $1", over["action_id"]
    )
    assert (await change(house, over["action_id"], "other")).text.startswith("Already expired")
    assert (await change(house, str(uuid4()), "other")).code == "impossible"
    moved = await parked(house, f"{message} moved")
    assert (await change(house, moved["action_id"], "other", revision=7)).code == "changed"
    chat = new_chat()
    context = {
        "request_id": str(uuid4()),
        "source_channel": "telegram",
        "source_endpoint_identity": "1",
        "source_sender_identity": chat,
        "source_thread_identity": f"{chat}:5",
    }
    emoji = "\U0001f44d"
    reaction = await house.notify(message="", intent="react", emoji=emoji, request_context=context)
    with pytest.raises(InvalidInput, match=r"A reaction has no text to edit\. Approve or deny it\."):
        await change(house, reaction["action_id"], "other")


async def test_a_butler_cannot_put_words_into_the_owners_mouth(house: House) -> None:
    for role in ("greeter", "switchboard"):
        async with house.context(role).db.work() as connection:
            for text in (
                "SELECT has_column_privilege('shared.notifications', 'owner_text', 'INSERT')",
                "SELECT has_column_privilege('shared.notifications', 'owner_text', 'UPDATE')",
            ):
                assert await connection.fetchval(text) is False, (role, text)


async def test_the_command_line_measures_the_text_that_is_to_be_approved_now(still_house: House, message: str) -> None:
    answer = await parked(still_house, message)
    told = await said(still_house, "approvals", "edit", str(answer["action_id"]), "--message", "short")
    last = lines(await question(still_house, str(answer["notification_id"])))[-1]
    assert "5 characters" in last
    assert last in told.splitlines()


async def test_the_form_on_the_page_changes_it_and_every_page_shows_the_same(
    house: House, console: Running, message: str
) -> None:
    answer = await parked(house, message)
    path = f"/approvals/{answer['action_id']}"
    form, text = fields(await page(console, path)), f"Line one {uuid4()}\r\n<b>two</b>"
    done = await console.post(path, word="edit", message=text, **form)
    assert (done.status, done.headers["Location"]) == (303, path)
    shown = text.replace("\r\n", "\n").replace("<", "&lt;").replace(">", "&gt;")
    html = await page(console, path)
    assert f">{shown}</div>" in html
    assert f">\n{shown}</textarea>" in html
    assert f"You edited this text. The original from greeter: {message}" in plain(html)
    assert "You edited the text owner, by console" in plain(html)
    for other in ("/", "/approvals"):
        listed = await page(console, other)
        assert shown in listed
        assert message not in listed
    stale = await console.post(path, word="approve", **form)
    assert (stale.status, house.sent("Line one")) == (409, [])
    assert (await console.post(path, word="approve", **fields(html))).status == 303
    await house.settled(answer["notification_id"], "ok")
    [sent] = house.sent(text.partition("\r")[0])
    assert "<b>two</b>" in json.dumps(sent["payload"]).replace("&lt;", "<").replace("&gt;", ">")


async def test_the_form_counts_only_from_this_session_and_keeps_what_was_typed(
    house: House, console: Running, message: str
) -> None:
    answer = await parked(house, message)
    path = f"/approvals/{answer['action_id']}"
    form = fields(await page(console, path))
    assert (await console.post(path, word="edit", message="x", **{**form, "csrf": "x"})).status == 403
    assert (await console.post(path, word="edit", message="x", origin="https://evil.test", **form)).status == 403
    assert (await console.post(path, word="edit", message="x", **{**form, "revision": ""})).status == 400
    refused = await console.post(path, word="edit", message=f"Kept {'x' * 10_000}", **form)
    html = await refused.text()
    assert refused.status == 409
    assert "Shorten it." in html
    assert "Kept xxx" in html
    late = await console.post(path, word="edit", message="x", csrf=form["csrf"], revision="7")
    assert "It has changed since you opened it" in await late.text()
    assert (await house.row(ACTION, str(answer["notification_id"])))["revision"] == 1


async def test_what_cannot_be_seen_is_not_offered_for_editing(house: House, console: Running, message: str) -> None:
    answer = await parked(house, f"{message} \u202egnp.exe")
    html = await page(console, f"/approvals/{answer['action_id']}")
    assert f">\n{message} gnp.exe</textarea>" in html
    assert f"{message} &lt;U+202E&gt;gnp.exe</div>" in html


async def test_a_yes_and_an_edit_at_once_never_send_what_nobody_approved(house: House, message: str) -> None:
    for n in range(6):
        answer, text = await parked(house, f"{message} {n}"), f"Edited {uuid4()}"
        words = [house.decide(answer["action_id"]), change(house, answer["action_id"], text)]
        yes, edited = await asyncio.gather(*(words if n % 2 else reversed(words)))
        if n % 2 == 0:
            yes, edited = edited, yes
        # A yes that reads the card after the edit approves the new words: it saw them.
        assert (yes.code, edited.code) in {("approved", "late"), ("changed", "edited"), ("approved", "edited")}
        if yes.code == "changed":
            assert house.sent(f"{message} {n}") == []
            assert (await house.decide(answer["action_id"])).code == "approved"
        await house.settled(answer["notification_id"], "ok")
        sent = [len(house.sent(one)) for one in (f"{message} {n}", text)]
        assert sent == ([0, 1] if edited.code == "edited" else [1, 0])


async def test_the_card_of_what_has_no_address_of_this_form_leads_to_the_page(house: House, message: str) -> None:
    answer = await house.notify(message=message, recipient=f"{uuid4().hex}@example.org")
    card, text = await card_of(house, message), f"Edited {uuid4()}"
    assert f"Edit or deny it: http://127.0.0.1:14102/approvals/{answer['action_id']}\\n{NEAR}" in str(card["payload"])
    assert [data.split(":")[2] for data in button_data(card)] == ["no"]
    assert (await change(house, answer["action_id"], text)).code == "edited"
    assert (await house.press(await card_of(house, text), "no"))["outcome"] == "denied"
