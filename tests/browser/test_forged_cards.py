"""Forged lines in a real browser, as narrow as a phone: no row of another's words stands outside a quotation."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final, cast
from uuid import uuid4

import pytest

from butlers.butler import Context
from messenger.cards import approval
from shared.channels.base import Message
from shared.display import owner
from shared.display.approval import Asked
from shared.display.visible import MARK
from tests.browser.test_console_deciding import signed_in
from tests.integration.sandbox_runner import OWNER, Running, running
from tests.rig.browser import chromium
from tests.rig.fleet import Fleet
from tests.rig.forgeries import FORGERIES

PHONE: Final = {"width": 360, "height": 740}
QUESTION: Final = Asked(
    origin="health",
    admitted_by="health",
    intent="send",
    channel="telegram",
    contact_id="c1",
    name="Mallory",
    address="5000000000000002",
    deliverable=True,
    subject="",
    emoji="",
    thread="",
    findings=("This address is not in your contacts.",),
    summary="",
    until=datetime(2026, 1, 4, 12, 30, tzinfo=UTC),
    message="",
    content_sha="41543a9d00",
)
# Each row of text as it is painted in an element: where it is, its words, and the block around it that quotes.
ROWS: Final = """
(root, inside) => {
  const rows = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.trim()) continue;
    const block = node.parentElement.closest(inside);
    const range = document.createRange();
    let last = null;
    for (let n = 0; n < node.data.length; n++) {
      range.setStart(node, n); range.setEnd(node, n + 1);
      const box = range.getClientRects()[0];
      if (!box || !box.width) continue;
      if (last && Math.abs(last.top - box.top) < 4) {
        last.text += node.data[n];
        last.right = Math.max(last.right, box.right);
        last.left = Math.min(last.left, box.left);
      } else {
        last = {...box.toJSON(), text: node.data[n], quoted: !!block};
        last.block = block && block.getBoundingClientRect().toJSON();
        last.scrolls = !!block && getComputedStyle(block).overflowY !== 'visible';
        rows.push(last);
      }
    }
  }
  return rows;
}
"""


def misplaced(rows: list[dict[str, object]], said: str) -> Iterator[str]:
    """The rows of words that are not the house's and stand outside a quotation, or stick out of it."""
    for row in rows:
        box = cast("dict[str, float]", row["block"])
        top, bottom, left, right = (float(cast("float", row[side])) for side in ("top", "bottom", "left", "right"))
        if not row["quoted"]:
            if str(row["text"]).strip() not in said:
                yield f"outside: {row['text']}"
        # What is scrolled away is not painted.
        elif (
            not (row["scrolls"] or box["top"] - 3 <= top < bottom <= box["bottom"] + 3)
            or not box["left"] - 1 <= left <= right <= box["right"] + 1
        ):
            yield f"sticks out: {row['text']}"


async def test_in_the_chat_each_row_of_a_forged_card_stands_in_its_block(tmp_path: Path) -> None:
    async with running(tmp_path) as box, chromium() as browser:
        sent = [one for name, words in FORGERIES.items() for one in await _sent(box, name, words)]
        page = await browser.new_page(viewport=PHONE)  # type: ignore[arg-type]  # a mapping of its form
        await page.goto(f"{box.url}/chats/{OWNER}")
        shown = await page.locator("article.bubble .text").all()
        assert len(shown) == len(sent) > len(FORGERIES)
        for bubble, (name, said) in zip(shown, sent, strict=True):
            rows = await bubble.evaluate(f"root => ({ROWS})(root, '.block')")
            assert list(misplaced(rows, _ours(said))) == [], name
            # The first row is ours, and so is the last that has the buttons below it.
            assert str(rows[0]["text"]).startswith(MARK), name
            assert not rows[-1]["quoted"] or said.text.startswith(f"{MARK} ("), name
        pressed = page.locator("#thread").locator("a, .mention, .bot_command, .hashtag, .email, .phone_number")
        assert await pressed.all_inner_texts() == []


async def _sent(box: Running, name: str, words: str) -> list[tuple[str, owner.Said]]:
    """The messages of the card that asks with these words as text, as headline and as a reason, once they are there."""
    question = replace(QUESTION, message=words, subject=words[:500], summary=words)
    # A page is named only where nothing can be delivered.
    sheet = approval.sheet(question, str(uuid4()), cast("Context", None))
    for wire in owner.by_house(Message("d1", "telegram", "send", str(OWNER), ""), sheet):
        status, _ = await box.bot("sendMessage", **json.loads(wire.body))
        assert status == HTTPStatus.OK
    return [(name, said) for said in owner.bubbles(sheet)]


def _ours(said: owner.Said) -> str:
    """What of a message is in no block of its own, on one line."""
    end, pieces = 0, list[str]()
    for block in [one for one in said.stretches if one.kind == "pre"]:
        pieces.append(said.text[end : block.start])
        end = block.end
    return " ".join(" ".join([*pieces, said.text[end:]]).split())


@pytest.mark.slow
async def test_on_the_page_of_an_approval_each_row_stands_in_its_block(fleet: Fleet) -> None:
    asked = {}
    for name, words in FORGERIES.items():
        friend = str(uuid4().int % 10**12 + 10**12)
        answer = await fleet.notify(channel="telegram", recipient=friend, message=f"{uuid4().hex} {words}")
        assert answer["status"] == "pending_approval", answer
        asked[name] = str(answer["action_id"])
    async with signed_in(fleet, phone=True) as page:
        for name, action_id in asked.items():
            await page.goto(f"{fleet.url('console')}/approvals/{action_id}")
            main = page.locator("main")
            rows = await main.evaluate(f"root => ({ROWS})(root, '.text, .subject, blockquote, textarea')")
            outside = " ".join(str(row["text"]) for row in rows if not row["quoted"])
            assert "Anna" not in outside, name
            assert "4242)" not in outside, name
            assert list(misplaced(rows, outside)) == [], name
