"""The pages in a real browser: live without reloading, on a wide screen and on a phone."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.integration.sandbox_runner import OWNER, Running, running
from tests.rig.browser import complaints_of

pytestmark = pytest.mark.slow
KEYS = {"inline_keyboard": [[{"text": "Approve", "callback_data": "a"}, {"text": "Deny", "callback_data": "d"}]]}


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as box:
        yield box


async def test_an_owner_types_presses_and_sees_answers_without_reloading(box: Running, browser: Browser) -> None:
    page = await browser.new_page(viewport={"width": 1180, "height": 820})
    errors = complaints_of(page)
    await page.goto(box.url + "/")
    await page.evaluate("window.loadedOnce = true")

    await box.bot("sendMessage", chat_id=OWNER, text="May I? <img src=x onerror=alert(1)>", reply_markup=KEYS)
    await expect(page.locator("#thread")).to_contain_text("May I? <img src=x onerror=alert(1)>")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator(".toast")).to_have_text("Pressed; the bot has not answered yet")
    [callback_id] = box.sandbox.world.presses
    await box.bot("answerCallbackQuery", callback_query_id=callback_id, text="Approved.")
    await expect(page.locator(".toast")).to_have_text("Approved.")
    await box.bot("editMessageText", chat_id=OWNER, message_id=1, text="Approved by you")
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)

    await page.get_by_label("Message").fill("half a thou")
    await box.bot("sendMessage", chat_id=OWNER, text="another one")
    await expect(page.locator("#thread")).to_contain_text("another one")
    await expect(page.get_by_label("Message")).to_have_value("half a thou")
    await page.get_by_label("Message").press("Enter")
    await expect(page.locator(".mine").last).to_contain_text("half a thou")
    assert [update.kind for update in box.sandbox.world.updates] == ["callback_query", "message"]

    assert await page.evaluate("window.loadedOnce") is True
    assert errors == []


async def test_a_phone_shows_one_thing_at_a_time_and_nothing_sticks_out(box: Running, browser: Browser) -> None:
    await box.bot("sendMessage", chat_id=OWNER, text="word " * 200 + "x" * 300, reply_markup=KEYS)
    page = await browser.new_page(viewport={"width": 360, "height": 640})
    await page.goto(box.url + "/")
    await expect(page.locator(".phone")).to_be_hidden()
    await page.get_by_text("Owner").first.click()
    await expect(page).to_have_url(re.compile(rf"/chats/{OWNER}$"))
    await expect(page.locator(".side")).to_be_hidden()
    for path in (f"/chats/{OWNER}", "/mail", "/"):
        await page.goto(box.url + path)
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        assert await page.evaluate(
            "[...document.querySelectorAll('#thread *')].every(e => e.getBoundingClientRect().right <= innerWidth + 1)"
        ), path
    await page.goto(f"{box.url}/chats/{OWNER}")
    await expect(page.get_by_role("button", name="Deny")).to_be_in_viewport()
