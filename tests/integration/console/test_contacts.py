"""The pages of contacts: people are added, renamed and removed, their addresses too, and each leaves its line."""

import pytest

from tests.integration.console_runner import Running
from tests.integration.peopled import peopled
from tests.integration.signed_in import page, plain
from tests.rig.rows import every_row

STALE = "UPDATE console.sessions SET proved_at = proved_at - interval '11 minutes'"
ENTRIES = """
SELECT c.name, i.type, i.value, i.is_primary FROM shared.contacts c
JOIN shared.contact_info i ON i.contact_id = c.id WHERE c.id = $1::text::uuid ORDER BY i.type, i.value
"""
LINES = """
SELECT event_type, detail ->> 'surface' AS surface FROM shared.approval_events
WHERE actor = 'owner' AND detail ->> 'person' = $1 ORDER BY seq
"""
RULE = """
INSERT INTO shared.approval_rules (arg_constraints, description)
VALUES (jsonb_build_object('contact_id', $1::text), '')
"""
RULE_BY_ADDRESS = """
INSERT INTO shared.approval_rules (arg_constraints, description, effect)
VALUES (jsonb_build_object('recipient', $1::text), '', $2) RETURNING id::text
"""
REVOKED = "UPDATE shared.approval_rules SET active = false WHERE id = $1::text::uuid"
NAMED_BY = {
    "a rule that allows": RULE,
    "a rule that blocks": RULE.replace("description)", "description, effect)").replace("'')", "'', 'deny')"),
    "a brake": "INSERT INTO shared.brakes (contact_id) VALUES ($1::text::uuid)",
    "a rule for what comes in": """
        INSERT INTO switchboard.routing_rules (butler, contact_id, may_ask) VALUES ('greeter', $1::text::uuid, true)
    """,
}


async def added(console: Running, **typed: str) -> str:
    answer = await console.post("/contacts", csrf=await console.csrf(), **typed)
    assert answer.status == 303, plain(await answer.text())
    return answer.headers["Location"].removeprefix("/contacts/")


async def entries(console: Running, contact: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in await console.sql.fetch(ENTRIES, contact)]


async def test_a_contact_is_added_renamed_and_removed_with_its_addresses(console: Running) -> None:
    await console.sign_in()
    csrf = await console.csrf()
    anna = await added(console, name=" Anna ", telegram="4242", email="anna@example.org")
    here = f"/contacts/{anna}"
    for form in (
        {"do": "rename", "name": "Anna Weiss"},
        {"do": "add", "type": "email", "value": "weiss@example.org", "primary": "yes"},
        {"do": "remove_address", "type": "telegram", "value": "4242"},
    ):
        answer = await console.post(here, csrf=csrf, **form)
        assert (answer.status, answer.headers.get("Location")) == (303, here), form
    assert await entries(console, anna) == [
        ("Anna Weiss", "email", "anna@example.org", False),
        ("Anna Weiss", "email", "weiss@example.org", True),
    ]
    assert "Anna Weiss email weiss@example.org · email anna@example.org" in plain(await page(console, "/contacts"))
    gone = await console.post(here, csrf=csrf, do="remove")
    assert (gone.status, gone.headers["Location"]) == (303, "/contacts")
    await page(console, here, 404)
    lines = [tuple(line) for line in await console.sql.fetch(LINES, anna)]
    assert {surface for _, surface in lines} == {"console"}
    assert [what for what, _ in lines][:3] == ["contact_made", "address_added", "address_added"]
    assert [what for what, _ in lines][-1] == "contact_removed"


async def test_what_does_not_fit_changes_nothing_says_why_and_keeps_what_was_typed(console: Running) -> None:
    ids = await peopled(console, "Owner")
    await console.sign_in()
    csrf = await console.csrf()
    anna = await added(console, name="Anna", email="anna@example.org")
    before = await every_row(console.sql)
    taken = f"anna@example.org is already an address of Anna ({anna[:8]})."
    for path, form, why in (
        ("/contacts", {"name": "Berta", "telegram": "77", "email": "ANNA@example.org"}, "already an address of Anna"),
        ("/contacts", {"name": "77", "email": "b@example.org"}, "A name has a letter"),
        ("/contacts", {"name": "Berta\u202e"}, "The name is not valid."),
        ("/contacts", {"name": "Berta", "email": "no address"}, "address"),
        (f"/contacts/{ids.contact}", {"do": "add", "type": "email", "value": "anna@example.org"}, taken),
        (f"/contacts/{ids.contact}", {"do": "add", "type": "telegram", "value": "-100777"}, "cannot be the owner's"),
        (f"/contacts/{ids.contact}", {"do": "remove"}, "You are the owner and cannot be removed."),
        (f"/contacts/{anna}", {"do": "rename", "name": "anna@example.org"}, "A name has a letter"),
    ):
        answer = await console.post(path, csrf=csrf, **form)
        html = await answer.text()
        assert (answer.status, why in plain(html)) == (409, True), (form, plain(html))
        assert f'value="{form.get("name", "Owner")}"' in html or "\u202e" in form["name"], form
    assert (await console.post(f"/contacts/{anna}", csrf=csrf, do="burn")).status == 400
    assert await every_row(console.sql) == before
    await console.sql.execute(RULE, anna)
    named = await console.post(f"/contacts/{anna}", csrf=csrf, do="remove")
    assert (named.status, "Revoke the rule" in await named.text()) == (409, True)


@pytest.mark.parametrize("named_by", NAMED_BY.values(), ids=NAMED_BY)
async def test_an_old_session_changes_nobody_of_whom_the_owner_has_decided(console: Running, named_by: str) -> None:
    await console.sign_in()
    csrf = await console.csrf()
    anna = await added(console, name="Anna", email="anna@example.org")
    await console.sql.execute(named_by, anna)
    await console.sql.execute(STALE)
    for form in (
        {"do": "rename", "name": "Berta"},
        {"do": "remove_address", "type": "email", "value": "anna@example.org"},
        {"do": "remove"},
    ):
        answer = await console.post(f"/contacts/{anna}", csrf=csrf, **form)
        assert answer.headers["Location"].startswith("/confirm?"), form
    assert await entries(console, anna) == [("Anna", "email", "anna@example.org", True)]


@pytest.mark.parametrize(("effect", "words"), [("allow", "may"), ("deny", "may never")])
async def test_an_address_says_which_rules_name_it_before_it_is_removed(
    console: Running, effect: str, words: str
) -> None:
    await console.sign_in()
    csrf = await console.csrf()
    anna = await added(console, name="Anna", telegram="4242", email="anna@example.org")
    rule = await console.sql.fetchval(RULE_BY_ADDRESS, "anna@example.org", effect)
    html = await page(console, f"/contacts/{anna}")
    told = "A rule names this address, and stays if you remove it: Every butler"
    assert f"{told} {words} write to anna@example.org" in plain(html)
    assert (plain(html).count(told), f'href="/rules/{rule}"' in html) == (1, True)
    await console.sql.execute(STALE)
    for form in ({"do": "remove_address", "type": "email", "value": "anna@example.org"}, {"do": "remove"}):
        answer = await console.post(f"/contacts/{anna}", csrf=csrf, **form)
        assert answer.headers["Location"].startswith("/confirm?"), form
    await console.sql.execute(REVOKED, rule)
    assert told not in plain(await page(console, f"/contacts/{anna}"))
