"""Standing rules in a real browser: made with a confirmation, without JavaScript, and by no page of somebody else."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from butlers.console.storage.sessions import make_sign_in_link
from tests.integration.console_runner import PASSWORD, Running, running
from tests.integration.peopled import peopled
from tests.rig.browser import complaints_of
from tests.rig.cluster import Cluster

PHONE = {"width": 360, "height": 740}
ELSEWHERE = "http://127.0.0.1:9/"
STALE = "UPDATE console.sessions SET proved_at = proved_at - interval '11 minutes'"
RULES = "SELECT count(*) FROM shared.approval_rules"


async def signed_in(browser: Browser, console: Running, *, phone: bool = False) -> Page:
    context = await browser.new_context(java_script_enabled=not phone, viewport=PHONE if phone else None)  # type: ignore[arg-type]
    page = await context.new_page()
    await page.goto(f"{console.url}/sign-in")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{console.url}/")
    return page


@pytest.mark.parametrize("phone", [False, True], ids=["with JavaScript", "on a phone without JavaScript"])
async def test_a_rule_is_made_after_a_confirmation_that_loses_nothing(
    browser: Browser,
    console: Running,
    phone: bool,  # noqa: FBT001  # a case of the table
) -> None:
    page = await signed_in(browser, console, phone=phone)
    await console.sql.execute(STALE)
    await page.get_by_role("link", name="Rules").click()
    await page.get_by_label("An address").fill("anna@example.org")
    await page.get_by_label("Channel").select_option("email")
    await page.get_by_label("Limit per day").fill("3")
    form = await page.locator("form.decide").bounding_box()
    assert form is not None
    assert not phone or form["x"] + form["width"] <= PHONE["width"]
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_role("status").last).to_contain_text("Matches 0 of the last 1,000 messages")
    await page.get_by_role("button", name="Create rule").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Confirm it is you")
    await page.get_by_label("Password").fill("wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("Wrong password.")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Rules")
    assert await console.sql.fetchval(RULES) == 0
    await expect(page.get_by_label("An address")).to_have_value("anna@example.org")
    await expect(page.get_by_label("Limit per day")).to_have_value("3")
    await page.get_by_role("button", name="Create rule").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Rule")
    await expect(page.locator("main")).to_contain_text("Every butler may write to anna@example.org by email")
    await page.get_by_role("button", name="Revoke").click()
    await expect(page.locator("main")).to_contain_text("revoked")
    await page.context.close()


async def test_where_no_password_is_set_a_fresh_link_confirms(
    cluster: Cluster, browser: Browser, tmp_path: Path
) -> None:
    async with running(cluster, tmp_path, BUTLERS_CONSOLE_PASSWORD="") as console:
        async with console.context.db.work() as connection:
            first, second = [await make_sign_in_link(connection, console.url, code) for code in ("first", "second")]
        page = await browser.new_page()
        await page.goto(first)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page).to_have_url(f"{console.url}/")
        await console.sql.execute(STALE)
        await page.goto(f"{console.url}/rules?recipient=4242")
        await page.get_by_role("button", name="Create rule").click()
        await expect(page.get_by_label("Password")).to_have_count(0)
        await page.get_by_label("A new link").fill(second)
        await page.get_by_role("button", name="Confirm with the link").click()
        await expect(page.get_by_label("An address")).to_have_value("4242")
        await page.get_by_role("button", name="Create rule").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Rule")


async def test_a_page_of_somebody_else_decides_nothing_and_frames_nothing(browser: Browser, console: Running) -> None:
    ids, page = await peopled(console), await signed_in(browser, console)
    csrf, rules = await console_csrf(page), await console.sql.fetchval(RULES)
    forms = ids.forms().items()
    body = "".join(
        f'<form method="post" action="{console.url}{path}"><input name="csrf" value="{csrf}">'
        + "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
        + f"<button>{path}</button></form>"
        for path, fields in forms
    )
    frames = f'<iframe src="{console.url}/rules"></iframe><img src="{console.url}/static/mark.svg">'
    await page.route(ELSEWHERE, lambda route: route.fulfill(content_type="text/html", body=body + frames))
    for path, _ in forms:
        await page.goto(ELSEWHERE)
        await page.get_by_role("button", name=path, exact=True).click()
        await expect(page.locator("main")).to_contain_text("This request did not come from the console.")
    await page.goto(ELSEWHERE)
    inner = page.frames[1]
    assert "Create rule" not in await inner.content()
    assert await page.evaluate("document.images[0].naturalWidth") == 0
    assert await console.sql.fetchval(RULES) == rules
    assert await console.sql.fetchval("SELECT status FROM shared.pending_actions") == "pending"
    await page.goto(console.url)
    await expect(page.get_by_role("heading", level=1)).to_contain_text("1 message needs your approval")


async def console_csrf(page: Page) -> str:
    return await page.locator("input[name=csrf]").first.input_value()


async def test_no_page_asks_for_what_its_policy_forbids(browser: Browser, console: Running) -> None:
    ids, page = await peopled(console), await signed_in(browser, console)
    complaints = complaints_of(page)
    for path in (*ids.pages(), "/nothing", "/sign-in?code=x"):
        await page.goto(f"{console.url}{path}")
        await expect(page.get_by_role("heading", level=1)).to_have_count(1)
        wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0, path
    await console.sql.execute(STALE)
    await page.goto(f"{console.url}/confirm?next=/rules")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Confirm it is you")
    assert complaints == []
