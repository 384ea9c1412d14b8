"""Every page in a real browser while the house moves: kept current, and never so that a press means something else."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.integration.console_runner import PASSWORD, Running
from tests.integration.peopled import Ids, peopled
from tests.rig.browser import complaints_of

CHANGES = {
    "/approvals": "UPDATE shared.pending_actions SET status = 'denied', decision_reason = 'Seen elsewhere'",
    "/contacts": "INSERT INTO shared.contacts (name) VALUES ('Seen elsewhere')",
    "/rules": "INSERT INTO shared.approval_rules (arg_constraints, description, origin_butler)"
    """ VALUES ('{"recipient": "4242"}', '', 'seen_elsewhere')""",
    "/deliveries": "UPDATE messenger.deliveries SET address = 'Seen elsewhere'",
}
REVISE = """
WITH told AS (UPDATE shared.notifications SET envelope = jsonb_set(envelope, '{delivery,message}', '"Other words"'))
UPDATE shared.pending_actions SET revision = revision + 1
"""


@pytest_asyncio.fixture
async def page(browser: Browser, console: Running) -> AsyncIterator[Page]:
    """The page of an owner who has signed in; it must not complain."""
    context = await browser.new_context()
    opened = await context.new_page()
    complaints = complaints_of(opened)
    await opened.goto(console.url)
    await opened.get_by_label("Password").fill(PASSWORD)
    await opened.get_by_role("button", name="Sign in").click()
    await expect(opened.locator("#live")).to_have_text("Live")
    yield opened
    assert complaints == []
    await context.close()


async def live(page: Page, console: Running, path: str) -> None:
    await page.goto(f"{console.url}{path}")
    await expect(page.locator("#live")).to_have_text("Live")
    await page.evaluate("window.sameDocument = true")


async def test_every_page_shows_what_changed_elsewhere_without_a_reload(page: Page, console: Running) -> None:
    ids: Ids = await peopled(console)
    for path, change in CHANGES.items():
        await live(page, console, path)
        await console.sql.execute(change)
        await expect(page.locator("main")).to_contain_text("seen elsewhere", ignore_case=True)
        assert await page.evaluate("window.sameDocument") is True
    await live(page, console, f"/contacts/{ids.contact}")
    await console.sql.execute("UPDATE shared.contacts SET name = 'Seen elsewhere'")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Seen elsewhere")
    await expect(page).to_have_title("Seen elsewhere · Butlers")


async def test_a_brake_is_pulled_shown_and_lifted_on_any_page(page: Page, console: Running) -> None:
    await peopled(console)
    other = await page.context.new_page()
    await live(other, console, "/deliveries")
    await live(page, console, "/contacts")
    await page.get_by_role("button", name="Pause sending").click()
    for shown in (page, other):
        await expect(shown.locator(".brakes li")).to_contain_text("Messages to others wait.")
        await expect(shown.get_by_role("button", name="Pause sending")).to_have_count(0)
    assert await other.evaluate("window.sameDocument") is True
    await expect(page).to_have_url(f"{console.url}/contacts")
    await page.wait_for_timeout(800)  # a press right after buttons have moved counts for nothing
    await page.get_by_role("button", name="Lift").click()
    await expect(page.get_by_role("button", name="Pause sending")).to_have_count(1)
    await expect(other.locator(".brakes")).to_have_count(0)


async def test_the_second_press_of_a_double_click_lifts_no_other_brake(page: Page, console: Running) -> None:
    """By then the page is another, and the next button stands there; what counts presses counts on across pages."""
    await console.sql.execute("INSERT INTO shared.brakes (butler) VALUES ('greeter'), ('health')")
    await live(page, console, "/contacts")
    await page.get_by_role("button", name="Lift").first.click()
    await expect(page.get_by_role("button", name="Lift")).to_have_count(1)
    await page.get_by_role("button", name="Lift").dispatch_event("click", {"detail": 2})
    await page.wait_for_timeout(300)
    assert await console.sql.fetchval("SELECT count(*) FROM shared.brakes WHERE lifted_at IS NULL") == 1


async def test_an_open_question_never_turns_into_another_one(page: Page, console: Running) -> None:
    action = await console.park(message="First words", whom="recipient:4242")
    await live(page, console, f"/approvals/{action}")
    await console.sql.execute(REVISE)
    await expect(page.locator("#stale")).to_be_visible()
    await expect(page.locator(".letter .text")).to_have_text("First words")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("alert")).to_contain_text("nothing was decided")
    await expect(page.locator(".letter .text")).to_have_text("Other words")


async def test_words_that_are_being_typed_stay_and_the_page_says_that_it_is_old(page: Page, console: Running) -> None:
    action = await console.park(message="Lunch?", whom="recipient:4242")
    await live(page, console, f"/approvals/{action}")
    await page.get_by_label("Reason for denying").fill("Not before")
    await console.sql.execute("UPDATE shared.pending_actions SET status = 'denied'")
    await expect(page.locator("#stale")).to_contain_text("This page has changed.")
    await expect(page.get_by_label("Reason for denying")).to_have_value("Not before")
    await page.get_by_role("link", name="Show it as it is now").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Denied")


async def test_a_press_counts_for_nothing_while_buttons_move(page: Page, console: Running) -> None:
    action = await console.park(message="Lunch?", whom="recipient:4242")
    await live(page, console, f"/approvals/{action}")
    # The click comes in the very moment in which the brake's banner has pushed the buttons down.
    await page.evaluate("""() => document.addEventListener("htmx:after:swap", () =>
        setTimeout(() => document.querySelector("button[value=approve]").click()))""")
    await console.sql.execute("INSERT INTO shared.brakes (butler) VALUES ('greeter')")
    await expect(page.locator(".brakes li")).to_have_count(1)
    await page.wait_for_timeout(300)
    assert await console.sql.fetchval("SELECT status FROM shared.pending_actions") == "pending"
    await page.wait_for_timeout(700)
    await page.get_by_role("button", name="Deny").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Denied")
