"""Standing rules on the console's pages: the same rules as on the command line, and nobody makes one by a cookie."""

import asyncio
import re
from collections.abc import AsyncIterator
from html import unescape
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio

from shared.storage import contacts
from tests.integration.commands import said
from tests.integration.console_runner import PASSWORD, Running
from tests.integration.house import House
from tests.integration.signed_in import page, plain, signed_in
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = "SELECT * FROM shared.approval_rules ORDER BY created_at DESC"
STALE = "UPDATE console.sessions SET proved_at = proved_at - interval '601 seconds'"
OF_ANOTHER = "UPDATE shared.approval_rules SET realm = 'another' WHERE id::text = $1"
FRESH = "UPDATE console.sessions SET proved_at = clock_timestamp()"
HOSTILE = "<b>x</b>\u202e"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(house: House) -> AsyncIterator[Running]:
    async with signed_in(house) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def console(house: House, served: Running) -> Running:
    """The console, its owner signed in a moment ago."""
    await house.sql.execute(FRESH)
    return served


async def count(house: House) -> int:
    return int(await house.sql.fetchval("SELECT count(*) FROM shared.approval_rules"))


async def make(console: Running, **fields: str) -> aiohttp.ClientResponse:
    return await console.post("/rules", csrf=await console.csrf(), **{"do": "add", **fields})


def made(answer: aiohttp.ClientResponse) -> str:
    """The id of the rule that an answer leads to."""
    assert (answer.status, answer.headers["Location"][:7]) == (303, "/rules/"), answer.headers
    return answer.headers["Location"].removeprefix("/rules/")


async def test_a_butler_whose_key_is_gone_becomes_not_every_butler(house: House, console: Running) -> None:
    before, typed = await count(house), {"recipient": new_chat(), "butler": "gone"}
    html = await page(console, f"/rules?{urlencode(typed)}")
    assert '<option value="gone" selected>gone</option>' in html
    refused = await make(console, **typed)
    assert (refused.status, await count(house)) == (409, before)
    assert '<option value="gone" selected>gone</option>' in await refused.text()


async def test_a_double_click_makes_one_rule(house: House, console: Running, message: str) -> None:
    """Of two equal ones each would have the whole bound."""
    contact, csrf, before = await house.contact("Anna", telegram=new_chat()), await console.csrf(), await count(house)
    form = {"csrf": csrf, "do": "add", "effect": "allow", "contact_id": contact, "channel": "telegram", "max_uses": "1"}
    answers = await asyncio.gather(*(console.post("/rules", **form) for _ in range(3)))
    assert sorted(answer.status for answer in answers) == [303, 409, 409]
    assert await count(house) == before + 1
    assert (await house.notify(contact_id=contact, message=f"{message} 1"))["status"] == "ok"
    assert (await house.notify(contact_id=contact, message=f"{message} 2"))["status"] == "pending_approval"


def filled(html: str) -> dict[str, str]:
    """What the form for a rule holds."""
    form = html.split('action="/rules"')[1].split("</form>", maxsplit=1)[0]
    values = {name: unescape(value) for name, value in re.findall(r'name="(\w+)" [^>]*?value="([^"]*)"', form)}
    for name, options in re.findall(r'<select id="\w+" name="(\w+)">(.*?)</select>', form, re.DOTALL):
        values[name] = "".join(re.findall(r'value="([^"]*)" selected', options))
    return values


async def test_a_rule_made_here_lets_out_what_it_says_until_it_is_revoked(
    house: House, console: Running, message: str
) -> None:
    contact = await house.contact("Anna & Co", telegram=new_chat())
    limits = {"max_per_day": "5", "max_uses": "1", "expires": "30d"}
    answer = await make(
        console, effect="allow", contact_id=contact, channel="telegram", intent="send", butler="greeter", **limits
    )
    rule = made(answer)
    row = await house.row("SELECT * FROM shared.approval_rules WHERE id = $1", rule)
    pinned = {"contact_id": contact, "channel": "telegram", "intent": "send"}
    assert (row["effect"], row["arg_constraints"], row["origin_butler"]) == ("allow", pinned, "greeter")
    assert (row["max_uses"], row["max_per_day"], row["realm"]) == (1, 5, "sandbox")
    assert row["expires_at"] is not None
    owner = await contacts.owner(house.sql)
    assert owner is not None
    assert row["made_by"] == owner["id"]
    event = await house.row("SELECT * FROM shared.approval_events WHERE rule_id = $1", rule)
    assert (event["event_type"], event["actor"], event["detail"]["surface"]) == ("rule_made", "owner", "console")
    assert (await house.notify(contact_id=contact, message=f"{message} 1"))["status"] == "ok"
    assert (await house.notify(contact_id=contact, message=f"{message} 2"))["status"] == "pending_approval"
    shown = plain(await page(console, "/rules"))
    assert "Greeter may send to Anna & Co by telegram" in shown
    assert "used up used 1 time, at most 1 in total and 5 a day" in shown
    tried = plain(await page(console, f"/rules/{rule}?test=past"))
    assert "Matches 2 of the last 1,000 messages: 1 sent without asking, 1 still need approval, 0 blocked." in tried
    assert f"{message} 1" in tried
    ended = await console.post(f"/rules/{rule}", csrf=await console.csrf(), do="revoke")
    assert (ended.status, ended.headers["Location"]) == (303, f"/rules/{rule}")
    html = await page(console, f"/rules/{rule}")
    assert "revoked" in plain(html)
    assert ">Revoke<" not in html
    again = await console.post(f"/rules/{rule}", csrf=await console.csrf(), do="revoke")
    assert (again.status, "It is already revoked." in await again.text()) == (409, True)


async def test_a_rule_that_forbids_stops_at_once(house: House, console: Running, message: str) -> None:
    chat = new_chat()
    rule = made(await make(console, effect="deny", recipient=chat))
    answer = await house.notify(recipient=chat, message=message)
    assert (answer["status"], answer["error"]["class"]) == ("error", "forbidden")  # type: ignore[index]
    assert f"Every butler may never write to {chat}" in plain(await page(console, f"/rules/{rule}"))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "A rule needs either a contact or a recipient."),
        ({"contact_id": "owner", "recipient": "4242"}, "A rule needs either a contact or a recipient."),
        ({"contact_id": "x"}, "The form has an invalid id."),
        ({"contact_id": str(uuid4())}, "There is no such contact."),
        ({"recipient": "*"}, "The recipient"),
        ({"recipient": "a@x.org, b@x.org"}, "The recipient contains"),
        ({"recipient": "4242", "channel": "email"}, "cannot be reached through email"),
        ({"recipient": "4242", "channel": "fax"}, "Unknown channel `fax`."),
        ({"recipient": "4242", "intent": "shout"}, "Unknown intent `shout`."),
        ({"recipient": "4242", "butler": "mallory"}, "Unknown butler `mallory`."),
        ({"recipient": "4242", "max_uses": "0"}, "is not a number of uses"),
        ({"recipient": "4242", "max_uses": "-1"}, "is not a number of uses"),
        ({"recipient": "4242", "max_per_day": "9" * 40}, "is not a number of uses"),
        ({"recipient": "4242", "max_uses": "\u0663"}, "is not a number of uses"),
        ({"recipient": "4242", "expires": "soon"}, "is not a duration"),
        ({"recipient": "4242", "expires": "30"}, "has no unit. Write a number and s, m, h, d or w, such as 30d."),
        ({"recipient": "4242", "effect": "deny", "max_uses": "1"}, "A rule that blocks cannot have limits."),
        ({"recipient": "4242", "from": "1' OR '1'='1"}, "The form has an invalid id."),
    ],
)
async def test_what_says_no_rule_is_refused_in_words_and_the_form_keeps_what_was_typed(
    house: House, console: Running, fields: dict[str, str], complaint: str
) -> None:
    owner = await contacts.owner(house.sql)
    assert owner is not None
    sent = {name: owner["id"] if value == "owner" else value for name, value in fields.items()}
    before = await count(house)
    answer = await make(console, **sent)
    html = await answer.text()
    assert (answer.status, complaint in unescape(html)) == (409, True), html
    kept = filled(html)
    assert {name: kept[name] for name in ("recipient", "max_uses", "expires") if name in sent} == {
        name: value for name, value in sent.items() if name in {"recipient", "max_uses", "expires"}
    }
    assert await count(house) == before


async def test_a_rule_tells_when_it_ends_before_it_is_made_and_after(house: House, console: Running) -> None:
    wanted = await house.sql.fetchval("SELECT to_char(clock_timestamp() + interval '30d', 'YYYY-MM-DD')")
    tried = await make(console, do="test", recipient="4242", expires="30d")
    assert f"Valid until {wanted}" in plain(await tried.text())
    rule = made(await make(console, recipient="4242", expires="30d"))
    assert f"until {wanted}" in plain(await page(console, f"/rules/{rule}"))
    forever = await make(console, do="test", recipient="4242")
    assert "Valid until you revoke it." in plain(await forever.text())


async def test_a_test_shows_what_it_would_have_done_and_makes_nothing(
    house: House, console: Running, message: str
) -> None:
    contact, before = await house.contact("Bea", telegram=new_chat()), await count(house)
    await house.notify(contact_id=contact, message=message)
    await house.sql.execute(STALE)  # nothing is changed, so nothing has to be proved
    answer = await console.post("/rules", csrf=await console.csrf(), do="test", contact_id=contact, expires="7d")
    html = await answer.text()
    assert (answer.status, await count(house)) == (200, before)
    assert "Matches 1 of the last 1,000 messages: 1 sent without asking, 0 still need approval, 0 blocked." in plain(
        html
    )
    assert message in html
    assert (filled(html)["contact_id"], filled(html)["expires"]) == (contact, "7d")


async def test_a_question_leads_to_a_filled_form_and_to_no_rule(house: House, console: Running, message: str) -> None:
    contact = await house.contact("Cleo", telegram=new_chat())
    asked = await house.notify(contact_id=contact, message=f"{message} {HOSTILE}")
    before = await count(house)
    html = await page(console, f"/approvals/{asked['action_id']}")
    (link,) = (unescape(one) for one in re.findall(r'href="(/rules\?[^"]+)"', html))
    assert message not in link
    form = await page(console, link)
    wanted = {"contact_id": contact, "channel": "telegram", "intent": "send", "butler": "greeter", "expires": "30d"}
    assert filled(form).items() >= wanted.items()
    assert await count(house) == before
    rule = made(
        await make(console, **{name: value for name, value in filled(form).items() if name not in {"csrf", "do"}})
    )
    row = await house.row("SELECT created_from FROM shared.approval_rules WHERE id = $1", rule)
    assert row["created_from"] == asked["action_id"]
    assert f'href="/approvals/{asked["action_id"]}"' in await page(console, f"/rules/{rule}")
    assert await house.status(asked["notification_id"]) == "pending_approval"  # a new rule releases nothing


async def test_an_old_proof_leads_to_the_confirmation_and_back_to_the_filled_form(
    house: House, console: Running
) -> None:
    contact, before = await house.contact("Dora", telegram=new_chat()), await count(house)
    await house.sql.execute(STALE)
    typed = {"effect": "deny", "contact_id": contact, "butler": "health", "expires": "3d"}
    answer = await make(console, **typed)
    assert (answer.status, answer.headers["Location"].partition("?")[0]) == (303, "/confirm")
    assert await count(house) == before
    html = await page(console, answer.headers["Location"])
    assert "Confirm it is you" in html
    wanted = dict(parse_qsl(urlsplit(answer.headers["Location"]).query))["next"]
    old = {cookie.key: cookie.value for cookie in console.http.cookie_jar}
    assert (await console.post("/sign-in", code="wrong", next=wanted)).status == 403
    assert (await make(console, **typed)).headers["Location"].startswith("/confirm")
    async with console.context.db.work() as connection:
        await connection.execute(
            "INSERT INTO console.sign_in_links VALUES (encode(sha256($1), 'hex'), now(), now() + interval '9 minutes')",
            b"fresh",
        )
    link = f" {console.url}/sign-in?code=fresh "
    proved = await console.post("/sign-in", code=link, next=wanted)
    assert (proved.status, proved.headers["Location"]) == (303, wanted)
    form = await page(console, proved.headers["Location"])
    assert filled(form).items() >= typed.items()
    assert await count(house) == before  # to confirm repeats nothing
    async with aiohttp.ClientSession(cookies=old) as copied:  # the cookie of before is worth nothing afterwards
        assert (await copied.get(f"{console.url}/rules", allow_redirects=False)).status == 303
    made(await make(console, **typed))
    assert await count(house) == before + 1


async def test_a_stolen_cookie_alone_makes_no_rule_and_leads_no_message_elsewhere(
    house: House, console: Running
) -> None:
    owner = await contacts.owner(house.sql)
    assert owner is not None
    ruled = await house.contact("Ruled", telegram=new_chat())
    plain_one = await house.contact("Plain", telegram=new_chat())
    await house.rule({"contact_id": {"type": "one_of", "value": [ruled]}})
    deny = await house.rule({"recipient": new_chat()}, effect="deny")
    allow = await house.rule({"recipient": new_chat()})
    action = await house.notify(contact_id=plain_one, message=f"words {uuid4()}")
    await house.sql.execute(STALE)
    csrf, entries = await console.csrf(), "SELECT count(*) FROM shared.contact_info"
    before, known = await count(house), await house.sql.fetchval(entries)
    evil = {"do": "add", "type": "email", "value": f"{uuid4().hex}@example.org", "primary": "yes"}
    for path, fields in (
        ("/rules", {"do": "add", "recipient": "4242"}),
        (f"/rules/{deny}", {"do": "revoke"}),
        (f"/contacts/{owner['id']}", evil),
        (f"/contacts/{ruled}", evil),
        (f"/contacts/{ruled}", {**evil, "do": "send"}),
    ):
        answers = await asyncio.gather(*(console.post(path, csrf=csrf, **fields) for _ in range(5)))
        assert {answer.headers.get("Location", "")[:9] for answer in answers} == {"/confirm?"}, path
    assert (await count(house), await house.sql.fetchval(entries)) == (before, known)
    assert await house.sql.fetchval("SELECT active FROM shared.approval_rules WHERE id = $1", deny)
    answer = await console.post(f"/contacts/{owner['id']}", csrf=csrf, **evil)
    wanted = dict(parse_qsl(urlsplit(answer.headers["Location"]).query))["next"]
    assert f'value="{evil["value"]}"' in await page(console, wanted)
    # What only makes it stricter stays free of it, and so does who hears nothing unasked.
    assert (await console.post(f"/rules/{allow}", csrf=csrf)).headers["Location"] == f"/rules/{allow}"
    assert not await house.sql.fetchval("SELECT active FROM shared.approval_rules WHERE id = $1", allow)
    denied = await console.post(f"/approvals/{action['action_id']}", csrf=csrf, word="deny", revision="1")
    assert denied.headers["Location"] == f"/approvals/{action['action_id']}"
    assert (await console.post(f"/contacts/{plain_one}", csrf=csrf, **evil)).headers["Location"][:9] == "/contacts"


async def test_the_proof_is_ten_minutes_old_at_most_by_the_databases_clock(house: House, console: Running) -> None:
    chat = new_chat()
    for age, ends in (("570 seconds", "/rules/"), ("605 seconds", "/confirm"), (None, "/confirm")):
        await house.sql.execute("UPDATE console.sessions SET proved_at = clock_timestamp() - $1::text::interval", age)
        assert (await make(console, recipient=chat)).headers["Location"].startswith(ends), age
    assert (await console.get("/confirm?next=/rules")).status == 200
    await house.sql.execute(FRESH)
    for wanted, there in (("/rules", "/rules"), ("//evil.test", "/"), ("https://evil.test", "/")):
        assert (await console.get(f"/confirm?next={wanted}")).headers["Location"] == there


async def test_words_of_others_stay_words_on_the_pages_of_rules(house: House, console: Running) -> None:
    contact = await house.contact(f"<i>Eve</i>{HOSTILE}", telegram=new_chat())
    await house.notify(contact_id=contact, message=f"<script>alert(1)</script>{HOSTILE}")
    strange = {"contact_id": contact, "message": {"type": HOSTILE}, "recipient": {"type": "domain", "value": HOSTILE}}
    for constraints in ({"contact_id": contact}, strange):
        await house.rule(constraints, origin_butler=None, description=HOSTILE)
    rule = (await house.sql.fetch(RULES))[1]["id"]
    query = "&".join(
        f"{name}=%22%3E%3Cscript%3E{name}" for name in ("effect", "recipient", "butler", "from", "expires")
    )
    for path in ("/rules", f"/rules?{query}", f"/rules/{rule}?test=past", f"/confirm?next=/rules?{query}"):
        await house.sql.execute(STALE if path.startswith("/confirm") else FRESH)
        html = await page(console, path)
        for never in ("<script>", "<b>x", "<i>Eve", "\u202e"):
            assert never not in html, path
    assert "&lt;U+202E&gt;" in await page(console, f"/rules/{rule}?test=past")


async def test_unknown_rules_are_no_page_and_a_form_of_another_session_makes_none(
    house: House, console: Running
) -> None:
    before = await count(house)
    for wrong in (str(uuid4()), "x", "new"):
        await page(console, f"/rules/{wrong}", 404)
        assert (await console.post(f"/rules/{wrong}", csrf=await console.csrf())).status == 404
    for csrf in ("", "x" * 22):
        for path in ("/rules", f"/rules/{uuid4()}"):
            assert (await console.post(path, csrf=csrf, do="add", recipient="4242")).status == 403
    assert (await console.post("/rules", csrf=await console.csrf(), do="burn", recipient="4242")).status == 400
    assert await count(house) == before
    assert PASSWORD not in await page(console, "/rules")


async def test_a_rule_for_another_account_is_said_to_let_nothing_out(house: House, console: Running) -> None:
    rule = made(await make(console, effect="allow", recipient=new_chat()))
    await house.sql.execute(OF_ANOTHER, rule)
    assert "another account" in plain(await page(console, f"/rules/{rule}"))
    [line] = [one for one in (await said(house, "rules", "list")).splitlines() if one.startswith(rule[:8])]
    assert line.split()[1] == "elsewhere"
