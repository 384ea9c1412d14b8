"""What is asked, looked up by the house itself: nothing that a butler wrote beside its message passes for a reason."""

from datetime import timedelta
from uuid import uuid4

import pytest

from butlers.console.queries import approvals
from messenger.cards import approval, base, kinds
from shared.config.timings import STANDARD
from shared.display.approval import Asked, lines
from shared.gate import owner_decision
from shared.gate.accept import accept
from shared.gate.admit import Admitter, admit
from shared.gate.approval_request import asked
from shared.storage import contacts, pending_actions
from tests.integration.commands import said
from tests.integration.house import House, button_data
from tests.integration.signed_in import page, plain, signed_in
from tests.integration.workers import ACTION, admitted, new_chat, work

pytestmark = pytest.mark.asyncio(loop_scope="module")
SAYS = """
INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, reason, detail)
VALUES ('parked', $1, $2, $3, $4, '{"revision": 1}')
"""
ADMITTED_BY = "UPDATE shared.notifications SET admitted_by = $2 WHERE id = $1"
JOKE = """
UPDATE shared.notifications SET envelope =
    jsonb_set(jsonb_set(envelope, '{delivery,subject}', '"A joke:"'), '{delivery,emoji}', '"(kidding)"') WHERE id = $1
"""
LINE = """
INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, reason, detail)
VALUES ('parked', $1, $2, $3, $4, '{"surface": "telegram: owner"}')
"""
UNKNOWN = "This address is not in your contacts."
REACHES_NOBODY = "Nothing is live on Telegram: it goes into the sandbox and reaches nobody."
REALM = "UPDATE shared.channels SET realm = $1 WHERE channel = 'email'"


async def question(house: House, told: str, summary: str | None = None) -> Asked:
    """The question about this notification, with other words of its butler's if they are given."""
    row = await house.row(ACTION, told)
    if summary is not None:
        await house.sql.execute(
            "UPDATE shared.pending_actions SET agent_summary = $2 WHERE id = $1", row["id"], summary
        )
    action = await pending_actions.open_action(house.sql, str(row["id"]))
    assert action is not None
    async with house.context("messenger").db.work() as connection:
        return await asked(connection, action)


async def test_the_houses_reasons_are_said_once_and_those_of_course_not_at_all(still_house: House) -> None:
    known = await still_house.contact("Zoe", telegram=new_chat())
    for whom, findings in (({"contact_id": known}, ()), ({"recipient": new_chat()}, (UNKNOWN,))):
        one = await question(still_house, await admitted(still_house, f"words {uuid4()}", **whom))
        assert (one.findings, one.summary) == (findings, "")


async def test_what_stays_in_the_sandbox_beside_a_live_channel_is_said_to_reach_nobody(still_house: House) -> None:
    told = await admitted(still_house, f"words {uuid4()}", recipient=new_chat())
    await still_house.sql.execute(REALM, "live")
    context = still_house.context("greeter")
    by = Admitter("greeter", context.db, context.settings.approval_ttl, context.new_id)
    try:
        played = (await question(still_house, told)).findings
        to_owner = await admit(by, accept("greeter", {"channel": "telegram", "message": f"words {uuid4()}"}))
    finally:
        await still_house.sql.execute(REALM, "sandbox")
    assert played == (UNKNOWN, REACHES_NOBODY)
    assert to_owner.note == REACHES_NOBODY


@pytest.mark.parametrize("summary", ["It is urgent.", UNKNOWN, f"The owner wants this. {UNKNOWN}"])
async def test_what_its_butler_says_stands_apart_and_hides_no_reason(still_house: House, summary: str) -> None:
    told = await admitted(still_house, f"words {uuid4()}", recipient=new_chat())
    one = await question(still_house, told, summary)
    assert (one.findings, one.summary) == ((UNKNOWN,), summary)
    text = "\n".join(lines(one))
    assert f"Greeter says:\n> {summary}\n" in text
    assert f"\nWhy: {UNKNOWN}\n" in text
    page = await approvals.one(still_house.sql, str((await still_house.row(ACTION, told))["id"]))
    assert page is not None
    assert (page.findings, page.summary) == ((UNKNOWN,), summary)
    assert page.last == lines(one)[-1]


@pytest.mark.parametrize(("actor", "said"), [("greeter", ()), ("messenger", ("A similar message is on its way.",))])
async def test_no_line_of_the_butlers_own_is_a_reason_of_the_house(
    still_house: House, actor: str, said: tuple[str, ...]
) -> None:
    told = await admitted(still_house, f"words {uuid4()}", recipient=new_chat())
    row = await still_house.row(ACTION, told)
    reason = f"greeter wants to send this. A similar message is on its way. {UNKNOWN}"
    await still_house.sql.execute(SAYS, row["id"], row["notification_id"], actor, reason)
    assert (await question(still_house, told)).findings == (UNKNOWN, *said)


async def test_a_button_binds_what_its_card_shows(still_house: House) -> None:
    words = f"words {uuid4()}"
    told = await admitted(still_house, words, recipient=new_chat())
    row = await still_house.row(ACTION, told)
    await still_house.sql.execute("UPDATE shared.pending_actions SET content_sha = 'another' WHERE id = $1", row["id"])
    worker = still_house.worker()
    for _ in range(20):  # the owner's chat takes one at a time, those of other tests too
        async with still_house.context("messenger").db.work() as connection:
            await kinds.write_missing(connection, 1000, STANDARD)
        await work(worker)
    [card] = still_house.cards(words)
    action = await still_house.row(ACTION, told)
    assert (action["revision"], action["content_sha"]) == (2, (await question(still_house, told)).content_sha)
    pressed = base.read(button_data(card)[0], approval.VERBS)
    current = await pending_actions.open_action(still_house.sql, str(row["id"]))
    assert pressed is not None
    assert current is not None
    assert approval.genuine(still_house.context("messenger").secret, current, pressed)


async def test_a_yes_to_what_a_page_showed_is_none_to_anything_else(still_house: House) -> None:
    told = await admitted(still_house, f"words {uuid4()}", recipient=new_chat())
    row = await still_house.row(ACTION, told)
    async with still_house.context("messenger").db.work() as connection:
        owner = await contacts.owner(connection)
        assert owner is not None
        word = owner_decision.OwnerDecision(
            str(row["id"]),
            True,  # noqa: FBT003
            owner["id"],
            "console",
            timedelta(hours=1),
            shown="another",
        )
        assert (await owner_decision.apply(connection, word)).code == "changed"
    assert (await still_house.row(ACTION, told))["status"] == "pending"


async def test_a_question_holds_no_word_that_would_not_go_out(still_house: House) -> None:
    told = await admitted(still_house, f"words {uuid4()}", recipient=new_chat())
    before = await question(still_house, told)
    row = await still_house.row(ACTION, told)
    await still_house.sql.execute(JOKE, row["notification_id"])
    after = await question(still_house, told)
    assert (after.subject, after.emoji) == ("", "")
    assert after == before


async def test_a_butlers_own_line_is_quoted_on_the_page_and_has_no_surface(still_house: House) -> None:
    told = await admitted(still_house, f"words {uuid4()}", recipient=new_chat())
    row = await still_house.row(ACTION, told)
    reason = "Checked by the house: this is the owner's bank."
    await still_house.sql.execute(LINE, row["id"], row["notification_id"], "greeter", reason)
    page = await approvals.one(still_house.sql, str(row["id"]))
    assert page is not None
    [line] = [step for step in page.history if reason in step.detail]
    assert line.by == "greeter"
    assert line.detail != reason


async def test_every_place_that_takes_a_yes_says_who_admitted_a_question_in_its_butlers_name(
    still_house: House, message: str
) -> None:
    bo = await still_house.contact("Bo", email=f"{uuid4().hex}@example.org")
    row = await still_house.row(ACTION, await admitted(still_house, message, contact_id=bo))
    mark = "Submitted by switchboard on behalf of greeter."
    async with signed_in(still_house) as console:
        for by, places in (("greeter", []), ("switchboard", ["approvals", "contacts"])):
            await still_house.sql.execute(ADMITTED_BY, row["notification_id"], by)
            shown = {
                at: plain(await page(console, f"/{at}/{of}")) for at, of in (("approvals", row["id"]), ("contacts", bo))
            }
            assert all(message in words for words in shown.values())
            assert [at for at, words in shown.items() if mark in words] == places
    assert mark in (await said(still_house, "approvals", "deny", str(row["id"]))).splitlines()
