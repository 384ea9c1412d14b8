"""Deciding on the console's pages: what is read is what is decided, once, and by nobody but the owner."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio

from shared.storage import contacts
from tests.integration.console_runner import Running
from tests.integration.house import House
from tests.integration.signed_in import fields, page, plain, signed_in
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "</div><script>alert(1)</script> <img src=x onerror=alert(1)> \u202egnp.exe"
ASKED = "SELECT notification_id FROM shared.pending_actions WHERE id = $1"
STATE = "SELECT status, revision, decided_by, decision_reason FROM shared.pending_actions WHERE id = $1"
EVENTS = "SELECT event_type FROM shared.approval_events WHERE action_id = $1 ORDER BY seq"
FLOOD = """
INSERT INTO shared.pending_actions (origin_butler, tool_args, requested_at)
SELECT 'flooder', '{}', clock_timestamp() - interval '1 day' FROM generate_series(1, 60)
"""
SNAPSHOT = """
SELECT (SELECT jsonb_agg(a ORDER BY id) FROM shared.pending_actions a) AS actions,
    (SELECT jsonb_agg(i ORDER BY id) FROM shared.contact_info i) AS entries,
    (SELECT epoch FROM shared.authority) AS epoch
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(house: House) -> AsyncIterator[Running]:
    """The house's console with its owner signed in."""
    async with signed_in(house) as running:
        yield running


async def parked(house: House, message: str, **more: object) -> tuple[str, str]:
    """The ids of an action and of its notification."""
    if "contact_id" not in more:
        more["contact_id"] = await house.contact("Zoe", telegram=new_chat())
    answer = await house.notify(message=message, **more)
    assert str(answer["status"]).startswith("pending"), answer
    row = await house.row(ASKED, str(answer["action_id"]))
    return str(answer["action_id"]), str(row["notification_id"])


async def test_a_flood_of_one_butler_hides_no_question_of_another(house: House, console: Running, message: str) -> None:
    await house.sql.execute(FLOOD)
    try:
        action, _ = await parked(house, message)
        assert action not in await page(console, "/approvals")
        first, number = await page(console, "/approvals"), 1
        assert "flooder (60)" in plain(first)
        while action not in (html := await page(console, f"/approvals?page={number}")):
            number += 1
            assert f"page={number}" in html
        assert number >= 2
        assert action in await page(console, "/approvals?butler=greeter")
        assert action not in await page(console, "/approvals?butler=flooder&page=2")
        for odd in ("page=0", "page=-1", "page=99999999999999999999", "page=x", "butler=%00", "page=999999"):
            await page(console, f"/approvals?{odd}")
    finally:
        await house.sql.execute("DELETE FROM shared.pending_actions WHERE origin_butler = 'flooder'")


async def test_what_is_read_is_approved_and_sent(house: House, console: Running, message: str) -> None:
    chat = new_chat()
    contact = await house.contact("Rosa & Co", telegram=chat)
    action, told = await parked(house, message, contact_id=contact)
    assert message in await page(console, "/approvals")
    html = await page(console, f"/approvals/{action}")
    seen = plain(html)
    for words in ("Approve this message from greeter?", "Rosa & Co", chat, "telegram", message, "expires in 2 days"):
        assert words in seen
    assert f"{len(message)} characters" in seen
    answer = await console.post(f"/approvals/{action}", word="approve", **fields(html))
    assert (answer.status, answer.headers["Location"]) == (303, f"/approvals/{action}")
    await house.settled(told, "ok")
    (sent,) = house.sent(message)
    assert str(sent["to"]) == chat
    after = plain(await page(console, f"/approvals/{action}"))
    assert "Outcome Sent" in after
    assert "You approved" in after
    assert "by console" in after
    owner = await contacts.owner(house.sql)
    assert owner is not None
    assert (await house.row(STATE, action))["decided_by"] == owner["id"]
    delivery = await house.delivery(told)
    lives = [plain(await page(console, f"/deliveries/{one}")) for one in (told, delivery["id"])]
    assert lives[0] == lives[1]
    for words in ("sent", "Requested", "You approved", "Checked again, sending", str(sent["provider_id"])):
        assert words in lives[0]
    assert message in plain(await page(console, "/approvals"))


async def test_a_no_with_its_reason_reaches_the_butler(house: House, console: Running, message: str) -> None:
    action, told = await parked(house, message)
    form = fields(await page(console, f"/approvals/{action}"))
    answer = await console.post(f"/approvals/{action}", word="deny", reason="  not <b>now</b> ", **form)
    assert answer.status == 303
    row = await house.row("SELECT answer FROM shared.notifications WHERE id = $1", told)
    assert "Reason: not <b>now</b>" in row["answer"]["error"]["message"]
    html = await page(console, f"/approvals/{action}")
    assert "Reason: not &lt;b&gt;now&lt;/b&gt;" in html
    assert house.sent(message) == []


WITHDRAWN = """
INSERT INTO shared.pending_actions (origin_butler, tool_args, agent_summary, notification_id, expires_at, status,
    requested_at)
SELECT origin_butler, tool_args, agent_summary, notification_id, clock_timestamp() + interval '10 years', 'cancelled',
    clock_timestamp() - interval '1 hour' FROM shared.pending_actions, generate_series(1, 40) WHERE id = $1
"""


async def test_what_a_butler_takes_back_by_the_dozen_hides_nothing_that_was_decided(
    house: House, console: Running, message: str
) -> None:
    action, _ = await parked(house, message)
    await house.sql.execute(WITHDRAWN, action)
    await house.decide(action, approve=False)
    try:
        assert "Denied" in plain(await page(console, "/approvals"))
    finally:
        await house.sql.execute("DELETE FROM shared.pending_actions WHERE status = 'cancelled' AND expires_at > now()")


async def test_one_decision_however_many_press_and_the_others_are_told(
    house: House, console: Running, message: str
) -> None:
    action, told = await parked(house, message)
    form = fields(await page(console, f"/approvals/{action}"))
    presses = [console.post(f"/approvals/{action}", word=word, **form) for word in ("approve", "approve", "deny") * 2]
    answers = await asyncio.gather(*presses)
    assert sorted(answer.status for answer in answers) == [303, 409, 409, 409, 409, 409]
    late = next(answer for answer in answers if answer.status == 409)
    assert re.search(r'role="alert">Already (approved|denied)', await late.text())
    events = [row["event_type"] for row in await house.sql.fetch(EVENTS, action)]
    assert len([event for event in events if event in {"approved", "denied"}]) == 1
    await house.settled(told, "ok", "error")
    assert len(house.sent(message)) <= 1


async def test_a_yes_to_an_earlier_revision_decides_nothing_and_the_page_is_shown_anew(
    house: House, console: Running, message: str
) -> None:
    contact = await house.contact("Moving", telegram=new_chat())
    action, told = await parked(house, message, contact_id=contact)
    form = fields(await page(console, f"/approvals/{action}"))
    there = new_chat()
    await contacts.add_address(house.sql, contact, "telegram", there, primary=True)
    first = await console.post(f"/approvals/{action}", word="approve", **form)
    html = await first.text()
    assert first.status == 409
    assert "It has changed since you opened it, so nothing was decided." in html
    assert there in html
    again = await console.post(f"/approvals/{action}", word="approve", **form)  # the old form once more
    assert again.status == 409
    for word in ("approve", "deny"):
        stale = await console.post(f"/approvals/{action}", word=word, csrf=form["csrf"], revision="1")
        assert stale.status == 409
    state = await house.row(STATE, action)
    assert (state["status"], state["revision"]) == ("pending", 2)
    assert house.sent(message) == []
    assert (await console.post(f"/approvals/{action}", word="approve", **fields(html))).status == 303
    await house.settled(told, "ok")  # what goes on would change rows while another test compares them


async def test_only_a_form_of_this_session_and_page_decides(house: House, console: Running, message: str) -> None:
    action, _ = await parked(house, message)
    contact = await house.contact("Guarded", telegram=new_chat())
    form = fields(await page(console, f"/approvals/{action}"))
    attacks: list[tuple[str, Mapping[str, str]]] = [
        (f"/approvals/{action}", {**form, "word": "approve", "csrf": "x"}),
        (f"/approvals/{action}", {"word": "approve", "revision": "1"}),
        (f"/contacts/{contact}", {"do": "add", "type": "email", "value": "evil@example.org"}),
    ]
    for path, sent in attacks:
        assert (await console.post(path, **sent)).status == 403
    whole = {**form, "word": "approve"}
    for origin in ("https://evil.test", None):
        assert (await console.post(f"/approvals/{action}", origin=origin, **whole)).status == 403
    for wrong in ({"revision": "-1"}, {"revision": ""}, {"word": "maybe"}, {"revision": "9" * 30}):
        assert (await console.post(f"/approvals/{action}", **{**whole, **wrong})).status == 400
    async with aiohttp.ClientSession() as stranger:
        headers = {"Origin": console.url}
        for path in (
            f"/approvals/{action}",
            f"/contacts/{contact}",
            "/approvals",
            "/contacts",
            f"/deliveries/{action}",
        ):
            got = await stranger.get(f"{console.url}{path}", allow_redirects=False)
            assert (got.status, message in await got.text()) == (303, False)
        posted = await stranger.post(
            f"{console.url}/approvals/{action}", data=whole, headers=headers, allow_redirects=False
        )
        assert posted.headers["Location"] == "/sign-in"
    assert (await house.row(STATE, action))["status"] == "pending"
    assert await house.sql.fetchval("SELECT count(*) FROM shared.contact_info WHERE value = 'evil@example.org'") == 0


async def test_looking_changes_nothing_and_unknown_ids_are_no_page(
    house: House, console: Running, message: str
) -> None:
    missing = await house.contact("Looked at", email=f"{uuid4().hex}@example.org")
    action, told = await parked(house, message, contact_id=missing)
    before = await house.row(SNAPSHOT)
    paths = (
        f"/approvals/{action}",
        f"/approvals/{action}?word=approve&revision=1",
        f"/contacts/{missing}?do=add&type=telegram&value=77",
        f"/deliveries/{told}",
    )
    for path in ("/approvals", "/contacts", *paths):
        assert (await console.get(path)).status == 200
        assert (await console.http.head(f"{console.url}{path}")).status == 200
    after = await house.row(SNAPSHOT)
    assert (after["actions"], after["entries"], after["epoch"]) == (
        before["actions"],
        before["entries"],
        before["epoch"],
    )
    for path in ("approvals", "contacts", "deliveries"):
        for wrong in (str(uuid4()), "x", "1' OR '1'='1"):
            await page(console, f"/{path}/{wrong}", 404)


async def test_hostile_words_stay_words_on_every_page(house: House, console: Running) -> None:
    mark = uuid4().hex
    contact = await house.contact(f"<i>{mark}</i>", telegram=new_chat())
    lost = await house.contact(f"<b>{mark}</b>", telegram=new_chat())
    action, told = await parked(house, f"{HOSTILE} {mark}", contact_id=contact)
    await parked(house, f"{HOSTILE} {mark}", channel="email", subject=f"{HOSTILE} {mark}", contact_id=lost)
    for path in (f"/approvals/{action}", "/approvals", f"/contacts/{lost}", "/contacts", f"/deliveries/{told}", "/"):
        html = await page(console, path)
        assert mark in html
        for never in ("<img src=x", "<script>", f"<b>{mark}", f"<i>{mark}", "\u202e"):
            assert never not in html, path
        if path != "/contacts":
            assert "&lt;U+202E&gt;gnp.exe" in html, path


async def test_add_and_send_is_one_press_for_exactly_what_was_shown(
    house: House, console: Running, message: str
) -> None:
    contact = await house.contact("Ines", telegram=new_chat())
    both = [await parked(house, f"{message} {n}", channel="email", contact_id=contact) for n in (1, 2)]
    html = await page(console, f"/contacts/{contact}")
    assert f"{message} 1" in html
    assert f"{message} 2" in html
    assert "Add and send these 2" in html
    assert f'href="/contacts/{contact}"' in await page(console, f"/approvals/{both[0][0]}")
    form = fields(html)
    later, _ = await parked(house, f"{message} later", channel="email", contact_id=contact)
    sending = {**form, "type": "email", "do": "send", "value": f"{uuid4().hex}@example.org"}
    assert (await console.post(f"/contacts/{contact}", **{**sending, "value": "not an address"})).status == 409
    answer = await console.post(f"/contacts/{contact}", **sending)
    assert answer.status == 303
    for action, told in both:
        await house.settled(told, "ok")
        assert (await house.row(STATE, action))["status"] == "executed"
    lines = [line for n in (1, 2) for line in house.sent(f"{message} {n}", "mail")]
    assert [line["to"] for line in lines] == [sending["value"]] * 2
    assert (await house.row(STATE, later))["status"] == "pending"
    assert house.sent(f"{message} later", "mail") == []


async def test_add_and_send_does_all_or_nothing(house: House, console: Running, message: str) -> None:
    contact = await house.contact("Olga", telegram=new_chat())
    first, _ = await parked(house, f"{message} 1", channel="email", contact_id=contact)
    second, _ = await parked(house, f"{message} 2", channel="email", contact_id=contact)
    form = fields(await page(console, f"/contacts/{contact}")) | {"type": "email", "do": "send"}
    assert (await house.decide(second, approve=False)).code == "denied"
    answer = await console.post(f"/contacts/{contact}", value=f"{uuid4().hex}@example.org", **form)
    assert answer.status == 409
    assert "so this changed nothing" in await answer.text()
    assert (await house.row(STATE, first))["status"] == "pending"
    entries = "SELECT count(*) FROM shared.contact_info WHERE contact_id = $1 AND type = 'email'"
    assert await house.sql.fetchval(entries, contact) == 0
    forged = {**form, "shown": ""}
    assert (await console.post(f"/contacts/{contact}", value="a@example.org", **forged)).status == 409


async def test_identifiers_are_added_and_made_primary_and_refused_in_words(house: House, console: Running) -> None:
    old, new = new_chat(), new_chat()
    contact = await house.contact("Paul", telegram=old)
    csrf = await console.csrf()
    added = await console.post(f"/contacts/{contact}", csrf=csrf, do="add", type="telegram", value=f" {new} ")
    assert added.status == 303
    text = "SELECT value FROM shared.contact_info WHERE contact_id = $1 AND is_primary"
    assert await house.sql.fetchval(text, contact) == old
    chosen = {"csrf": csrf, "do": "add", "type": "telegram", "value": new, "primary": "yes"}
    assert (await console.post(f"/contacts/{contact}", **chosen)).status == 303
    assert await house.sql.fetchval(text, contact) == new
    for kind, value in (("email", "two@at@signs"), ("telegram", "x"), ("fax", "1"), ("email", '"><script>')):
        refused = await console.post(f"/contacts/{contact}", csrf=csrf, do="add", type=kind, value=value)
        assert (refused.status, "<script>" in await refused.text()) == (409, False)
    other = await house.contact("Other", telegram=new_chat())
    taken = await console.post(f"/contacts/{other}", csrf=csrf, do="add", type="telegram", value=new)
    assert (taken.status, f"{new} is already an address of " in await taken.text()) == (409, True)
    assert await house.sql.fetchval(text, contact) == new
