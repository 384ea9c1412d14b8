"""Take the pictures of docs/desk.md and docs/asking.md: `python -m tests.desk`."""

import asyncio
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final
from uuid import uuid4

from playwright.async_api import Page, expect

from butlers.console.storage.sessions import make_sign_in_link
from butlers.desk.console import Question
from butlers.desk.dbus import Dbus
from butlers.desk.popup import Popup, Popups, Theme
from butlers.desk.run import WRITE, note_of
from tests.desk.bus import session_bus
from tests.desk.screen import Screen, screen
from tests.rig import bench, cluster
from tests.rig.bench import OWNER
from tests.rig.browser import chromium
from tests.rig.fleet import Fleet

DOCS = Path(__file__).resolve().parents[2] / "docs"
SAID = (("Which milk shall I order?", "Oat"), ("Shall I move the dentist to Friday?", "Yes, in the morning"))


ASKED: Final = {
    "title": "Milk",
    "question": "The shop has two kinds left. Which shall I order?",
    "options": ["Oat", "Soy"],
    "allow_text": True,
    "urgency": "normal",
}
DUNST: Final = """
[global]
    width = (0, 420)
    origin = top-left
    offset = 0x0
    font = DejaVu Sans 11
    show_indicators = yes
"""


async def notification(seen: Screen) -> None:
    """Show a question by a real notification server, and keep what is seen."""
    question = Question("q", "health", str(ASKED["title"]), str(ASKED["question"]), ["Oat", "Soy"], True, "normal")  # noqa: FBT003  # as it comes
    with session_bus() as address, tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "dunstrc"
        config.write_text(DUNST, encoding="utf-8")
        env = {**seen.env, "DBUS_SESSION_BUS_ADDRESS": address}
        server = await asyncio.create_subprocess_exec("dunst", "-conf", str(config), env=env)
        desktop = Dbus(address)
        try:
            await asyncio.sleep(1)
            showing = asyncio.create_task(desktop.show(note_of(question, ["Oat", "Soy", WRITE], "http://home.example")))
            await asyncio.sleep(1)
            [at, *_] = seen.run("xdotool", "search", "--onlyvisible", "--class", "Dunst").split()
            await asyncio.to_thread(seen.picture, at, DOCS / "notification.png")
            await desktop.withdraw(question.id)
            await showing
        finally:
            await desktop.close()
            server.kill()
            await server.wait()


async def card_and_page(fleet: Fleet) -> None:
    """Have a butler ask, and keep how its card looks on the owner's phone and its page in the console."""
    asked = await fleet.call("health", "ask_user", ASKED)
    question = str(asked["question_id"])
    await fleet.outside.card(question)
    async with chromium() as browser:
        context = await browser.new_context(viewport={"width": 420, "height": 620})
        phone = await context.new_page()
        await phone.goto(f"{fleet.outside.url}/chats/{OWNER}")
        await _kept(phone, "question-card.png")
        page = await context.new_page()
        await page.set_viewport_size({"width": 420, "height": 900})
        await page.goto(await make_sign_in_link(fleet.db, fleet.url("console"), uuid4().hex))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page).to_have_url(f"{fleet.url('console')}/")
        await page.goto(f"{fleet.url('console')}/questions/{question}")
        await _kept(page, "question-page.png")


async def _kept(page: Page, name: str) -> None:
    await page.screenshot(path=DOCS / name)
    subprocess.run(["convert", DOCS / name, "-strip", "-colors", "64", DOCS / name], check=True)  # noqa: ASYNC221  # short


async def take(here: bench.Bench) -> None:
    """Show what there is to see, and keep it."""
    with screen() as seen:
        os.environ["DISPLAY"] = seen.display
        await notification(seen)
        themes: tuple[Theme, ...] = ("light", "dark")
        for theme in themes:
            popup = Popup("The dentist has 9:00 or 11:30 on Friday.\nWhich do you prefer?", theme=theme, history=SAID)
            showing = asyncio.create_task(Popups().show(popup))
            at = await asyncio.to_thread(seen.window, popup.title)
            await asyncio.to_thread(seen.type, "11:30, please")
            await asyncio.sleep(0.3)
            await asyncio.to_thread(seen.picture, at, DOCS / f"popup-{theme}.png")
            await asyncio.to_thread(seen.key, "Escape")
            await showing
    fleet = await Fleet.start(await here.house())
    try:
        await card_and_page(fleet)
    finally:
        await fleet.abandon()


def main() -> None:
    """Take them all."""
    with cluster.running() as made, bench.running(made) as here:
        asyncio.run(take(here))


if __name__ == "__main__":
    main()
