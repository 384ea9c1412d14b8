"""The page of the audit: every change is in it, in the words of the command line; it is read, filtered and paged."""

from typing import Final

import pytest

from tests.integration.console_runner import Running
from tests.integration.signed_in import page, plain

MANY: Final = """
INSERT INTO shared.approval_events (event_type, actor, reason) SELECT 'told', $1, 'line ' || n
FROM generate_series(1, 120) n
"""
ABOUT: Final = (
    "INSERT INTO shared.approval_events (event_type, actor, rule_id) VALUES ('rule_expired', 'messenger', $1)"
)
RULE: Final = "12345678-0000-4000-8000-000000000001"


async def test_what_the_owner_changes_is_in_it(console: Running) -> None:
    await console.sign_in()
    csrf = await console.csrf()
    await console.post("/contacts", csrf=csrf, name="Anna", telegram="4242")
    await console.post(
        "/rules", csrf=csrf, do="add", recipient="4242", channel="telegram", effect="allow", expires="30d"
    )
    await console.post("/brake", csrf=csrf, do="pause")
    shown = plain(await page(console, "/audit"))
    for event in ("signed_in", "contact_made", "address_added", "rule_made", "brake_on"):
        assert event in shown, event
    assert "Contact Anna was added." in shown
    assert "Anna now has the telegram address 4242. (console)" in shown
    await console.post("/sign-out", csrf=csrf)
    await console.sign_in()
    assert "signed_out" in plain(await page(console, "/audit"))


async def test_it_is_filtered_by_actor_and_subject_and_paged(console: Running) -> None:
    await console.sign_in()
    await console.sql.execute(MANY, "health")
    await console.sql.execute(ABOUT, RULE)
    first = plain(await page(console, "/audit?by=health"))
    assert ('"line 120"' in first, '"line 71"' in first, '"line 70"' in first) == (True, True, False), "its own words"
    assert "rule_expired" not in first
    last = await console.sql.fetchval("SELECT min(seq) + 20 FROM shared.approval_events WHERE actor = 'health'")
    older = plain(await page(console, f"/audit?by=health&before={last}"))
    assert ('"line 20"' in older, '"line 1"' in older, '"line 21"' in older) == (
        True,
        True,
        False,
    )
    about = plain(await page(console, f"/audit?about={RULE[:8].upper()}"))
    assert ("rule_expired" in about, "told" in about) == (True, False)


@pytest.mark.parametrize("query", ["before=x", "before=99999999999999999999", "by=%00", "about=%25", "by=" + "x" * 500])
async def test_an_odd_question_is_answered_by_a_page(console: Running, query: str) -> None:
    await console.sign_in()
    await page(console, f"/audit?{query}")


async def test_it_is_the_owners_and_changes_nothing(console: Running) -> None:
    assert (await console.get("/audit")).status == 303
    await console.sign_in()
    assert (await console.post("/audit", csrf=await console.csrf())).status == 405
