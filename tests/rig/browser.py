"""A real browser, as patient as the tests are, that tells what a page complains of."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from tests.rig.waiting import LONGEST

QUIET: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
expect.set_options(timeout=LONGEST * 1000)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser that nobody else has."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        yield started
        await started.close()


def complaints_of(page: Page) -> list[str]:
    """What the page complains of from here on: a refusal by the content security policy is a line in its console."""
    heard: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        # The browser itself reports each answer of 4xx; those are the point of a test, not a fault of a page.
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            heard.append(message.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: heard.append(str(error)))
    return heard
