"""The console in a real browser: signing in, live pages, no JavaScript, a phone, and what a page may not do."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from butlers.console.storage.sessions import make_sign_in_link
from tests.integration.console_runner import PASSWORD, Running
from tests.rig.browser import complaints_of
from tests.rig.cluster import Cluster

HOSTILE = "</div><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> \u202etxet"


@pytest_asyncio.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page that must not complain."""
    opened = await browser.new_page()
    complaints = complaints_of(opened)
    yield opened
    assert complaints == []


async def sign_in(page: Page, console: Running) -> None:
    await page.goto(console.url)
    await expect(page).to_have_url(f"{console.url}/sign-in")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{console.url}/")


async def test_the_owner_signs_in_sees_a_message_arrive_and_signs_out(page: Page, console: Running) -> None:
    await page.goto(f"{console.url}/sign-in")
    await page.get_by_label("Password").fill("not this")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("Wrong password.")
    await sign_in(page, console)
    await expect(page.get_by_role("heading", level=1)).to_have_text("You're all caught up.")
    await expect(page.locator("#live")).to_have_text("Live")
    await page.evaluate("window.sameDocument = true")

    rosa = {"recipient": "rosa@example.test", "whom": "recipient:rosa@example.test"}
    await console.park(butler="calendar", message="Dinner on Friday?", channel="email", **rosa)
    await expect(page.get_by_role("heading", level=1)).to_have_text("1 message needs your approval")
    await expect(page.locator(".letter .text")).to_have_text("Dinner on Friday?")
    await expect(page.locator(".letter")).to_contain_text("rosa@example.test")
    await expect(page).to_have_title("(1) Butlers")
    await console.sql.execute("UPDATE shared.pending_actions SET status = 'denied'")
    await expect(page.get_by_role("heading", level=1)).to_have_text("You're all caught up.")
    assert await page.evaluate("window.sameDocument") is True

    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(f"{console.url}/sign-in")
    await page.go_back()
    await expect(page).to_have_url(f"{console.url}/sign-in")


async def test_hostile_words_stay_words_in_a_browser(page: Page, console: Running) -> None:
    await console.park(message=HOSTILE, summary=HOSTILE, subject=HOSTILE)
    await sign_in(page, console)
    await expect(page.locator(".letter .text")).to_have_text(HOSTILE.replace("\u202e", "<U+202E>"))
    await console.park(message=f"{HOSTILE} again")  # and when it is swapped in
    await expect(page.locator(".letter")).to_have_count(2)
    await expect(page).to_have_title("(2) Butlers")
    assert await page.locator("main img, main script").count() == 0


async def test_an_ended_session_leads_the_open_page_to_the_sign_in(page: Page, console: Running) -> None:
    await sign_in(page, console)
    await expect(page.locator("#live")).to_have_text("Live")
    await console.sql.execute("UPDATE console.sessions SET ended_at = clock_timestamp()")
    await expect(page).to_have_url(f"{console.url}/sign-in")


async def test_a_link_signs_in_by_its_button_only(page: Page, console: Running) -> None:
    async with console.context.db.work() as connection:
        link = await make_sign_in_link(connection, console.url, "a-code")
    await page.goto(link)
    await page.reload()
    assert await console.sql.fetchval("SELECT count(*) FROM console.sessions") == 0
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{console.url}/")
    await page.context.clear_cookies()
    await page.goto(link)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Not allowed")
    await expect(page.locator("main")).to_contain_text("This sign-in link has been used or has expired.")


async def test_a_page_of_another_port_cannot_post_for_the_owner(page: Page, console: Running, cluster: Cluster) -> None:
    await sign_in(page, console)
    csrf = await console_csrf(page)
    await page.route(
        "http://127.0.0.1:9/",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f'<form method="post" action="{console.url}/sign-out"><input name="csrf" value="{csrf}"><button>Go',
        ),
    )
    await page.goto("http://127.0.0.1:9/")
    await page.get_by_role("button", name="Go").click()
    await expect(page.locator("main")).to_contain_text("This request did not come from the console.")
    await page.goto(console.url)
    await expect(page.get_by_role("heading", level=1)).to_have_text("You're all caught up.")


async def console_csrf(page: Page) -> str:
    return await page.locator("input[name=csrf]").first.input_value()


async def phone(browser: Browser) -> BrowserContext:
    return await browser.new_context(
        viewport={"width": 360, "height": 740}, java_script_enabled=False, color_scheme="dark"
    )


async def test_it_works_on_a_phone_without_javascript(browser: Browser, console: Running) -> None:
    await console.park(butler="a" * 31, message="w" * 400, recipient=f"{'x' * 60}@{'y' * 60}.test")
    context = await phone(browser)
    page = await context.new_page()
    await sign_in(page, console)
    await expect(page.locator(".letter .text")).to_have_text("w" * 400)
    wide = await page.locator("html").bounding_box()
    content = await page.locator("main").bounding_box()
    assert wide is not None
    assert content is not None
    assert content["width"] <= 360
    box = await page.locator(".letter").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    refresh = page.locator('meta[http-equiv="refresh"]')
    await expect(refresh).to_have_attribute("content", "30")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(f"{console.url}/sign-in")
    await context.close()
