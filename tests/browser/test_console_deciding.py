"""Deciding in a real browser, on a whole fleet: what the owner reads is what the sandbox then receives."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from playwright.async_api import Page, expect

from butlers.console.storage.sessions import make_sign_in_link
from tests.rig.browser import chromium
from tests.rig.fleet import Fleet

PHONE = {"width": 360, "height": 740}


@asynccontextmanager
async def signed_in(fleet: Fleet, *, phone: bool = False) -> AsyncIterator[Page]:
    """A page of an owner who signed in by a link; on a phone there is no JavaScript."""
    url = fleet.url("console")
    async with chromium() as browser:
        context = await browser.new_context(java_script_enabled=not phone, viewport=PHONE if phone else None)  # type: ignore[arg-type]
        page = await context.new_page()
        await page.goto(await make_sign_in_link(fleet.db, url, uuid4().hex))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page).to_have_url(f"{url}/")
        yield page


async def test_reads_a_message_approves_it_and_sees_it_delivered(fleet: Fleet) -> None:
    words = f"Dinner at eight? {uuid4()}"
    rosa = await fleet.contact("Rosa Weiss", email=f"{uuid4().hex}@example.org")
    answer = await fleet.notify(channel="email", contact_id=rosa, subject="Friday", message=words)
    async with signed_in(fleet) as page:
        await page.locator(f"#action-{answer['action_id']}").get_by_role("link", name="Review").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Approve this message from health?")
        await expect(page.get_by_label("The whole text")).to_have_text(words)
        await expect(page.locator(".letter")).to_contain_text("Friday")
        await page.get_by_role("button", name="Approve and send").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Sent")
        address = await fleet.value("SELECT value FROM shared.contact_info WHERE contact_id::text = $1", rosa)
        entry = await fleet.outside.arrived(words, str(address))
        assert entry.mail["Subject"] == "Friday"
        await page.get_by_role("link", name="Message history").click()
        await expect(page.locator("main")).to_contain_text(entry.provider_id)


async def test_adds_a_missing_identifier_and_sends_two_by_one_press_without_javascript(fleet: Fleet) -> None:
    words, address = str(uuid4()), f"{uuid4().hex}@example.org"
    ines = await fleet.contact("Ines", telegram=int(uuid4().int % 10**12 + 10**12))
    texts = [f"The {which} {words}" for which in ("first", "second")]
    answers = [await fleet.notify(channel="email", contact_id=ines, message=text) for text in texts]
    assert [answer["status"] for answer in answers] == ["pending_missing_identifier"] * 2
    async with signed_in(fleet, phone=True) as page:
        await page.goto(f"{fleet.url('console')}/approvals/{answers[0]['action_id']}")
        await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
        await page.get_by_role("link", name="add the address").click()
        shown = page.get_by_label("The whole text")
        await expect(shown).to_have_text(texts)
        content = await page.locator("main").bounding_box()
        assert content is not None
        assert content["width"] <= PHONE["width"]
        await page.get_by_role("textbox", name="E-mail address").fill(address)
        await page.get_by_role("button", name="Add and send these 2").click()
        await expect(page.locator(".rows")).to_contain_text(address)
        for text in texts:
            await fleet.outside.arrived(text, address)
        await expect(shown).to_have_count(0)


async def test_enter_in_the_field_for_a_reason_says_no(fleet: Fleet) -> None:
    words = f"Rather not {uuid4()}"
    vera = await fleet.contact("Vera", email=f"{uuid4().hex}@example.org")
    answer = await fleet.notify(channel="email", contact_id=vera, message=words)
    async with signed_in(fleet) as page:
        await page.goto(f"{fleet.url('console')}/approvals/{answer['action_id']}")
        await page.get_by_label("Reason for denying").fill("too early")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Denied")
        await expect(page.locator("main")).to_contain_text("Reason: too early")
    assert [entry for entry in await fleet.outside.having(words) if entry.channel == "email"] == []
