"""Take the pictures of docs/desk.md: `python -m tests.desk`."""

import asyncio
import os
from pathlib import Path

from butlers.desk.popup import Popup, Popups, Theme
from tests.desk.screen import screen

DOCS = Path(__file__).resolve().parents[2] / "docs"
SAID = (("Which milk shall I order?", "Oat"), ("Shall I move the dentist to Friday?", "Yes, in the morning"))


async def take() -> None:
    """Show the popup in both themes, and keep what is seen."""
    with screen() as seen:
        os.environ["DISPLAY"] = seen.display
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


if __name__ == "__main__":
    asyncio.run(take())
