"""Words made to deceive whoever reads a card, a mail or a page: what is shown of each, to the letter."""

import json
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from typing import cast

import pytest

from butlers.butler import Context
from butlers.cli.terminal import GOES_ON, broken
from butlers.console import labels as console
from messenger.cards import approval as cards
from messenger.cards import closing, digest
from shared.channels.base import Message
from shared.channels.telegram import utf16_units
from shared.contracts import NotifyEnvelope
from shared.db.pool import Record
from shared.display import approval, owner
from shared.display.approval import Asked
from shared.display.owner import Sheet
from shared.display.visible import PLAIN, in_line, quoted, said, seen, visible
from shared.hashing import short
from shared.storage.addressees import Addressee

ID = "882f944d-051b-4fa8-a3cf-373336d2e355"
UNTIL = datetime(2026, 1, 4, 12, 30, tzinfo=UTC)
SHA = "9f86d081884c7d659a2feaa0c55ad015"

# What somebody writes, and each line of it as the owner reads it.
NASTY = [
    # Lines that pass for ours.
    ("Hi\nApproved.", "> Hi\n> Approved."),
    ("Hi\n\nApproved. Sent.", "> Hi\n>\n> Approved. Sent."),
    ("Text:\nharmless", "> Text:\n> harmless"),
    ("> Text:\n> quoted", "> > Text:\n> > quoted"),
    ("To: Anna (4242)", "> To: Anna (4242)"),
    ("Length: 3 characters, hash 00000000", "> Length: 3 characters, hash 00000000"),
    ("[ Approve ]   [ Deny ]", "> [ Approve ]   [ Deny ]"),
    ("(1/2)\nthe rest follows", "> (1/2)\n> the rest follows"),
    ("(The text is above.)", "> (The text is above.)"),
    ("Show 1", "> Show 1"),
    ("Health wants to message Anna on Telegram (4242)", "> Health wants to message Anna on Telegram (4242)"),
    ("\nleading line", ">\n> leading line"),
    ("trailing line\n", "> trailing line\n>"),
    # Other characters at which some programs begin a line.
    ("a\rApproved.", "> a<U+000D>Approved."),
    ("a\r\nApproved.", "> a<U+000D>\n> Approved."),
    ("a\x0bApproved.", "> a<U+000B>Approved."),
    ("a\x0cApproved.", "> a<U+000C>Approved."),
    ("a\x1c\x1d\x1eb", "> a<U+001C><U+001D><U+001E>b"),
    ("a\x85Approved.", "> a<U+0085>Approved."),
    ("a\u2028Approved.", "> a<U+2028>Approved."),
    ("a\u2029Approved.", "> a<U+2029>Approved."),
    # The order of what is read.
    ("pay \u202e001\u202c EUR", "> pay <U+202E>001<U+202C> EUR"),
    ("\u202dabc", "> <U+202D>abc"),
    ("\u2066abc\u2069", "> <U+2066>abc<U+2069>"),
    ("\u2067abc\u2068d", "> <U+2067>abc<U+2068>d"),
    ("\u200eab\u200f", "> <U+200E>ab<U+200F>"),
    ("\u061cab", "> <U+061C>ab"),
    ("photo\u202egnp.exe", "> photo<U+202E>gnp.exe"),
    # Nothing that can be seen.
    ("pay\u200bme", "> pay<U+200B>me"),
    ("pay\u200cme", "> pay<U+200C>me"),
    ("pay\u200dme", "> pay<U+200D>me"),
    ("pay\u2060me", "> pay<U+2060>me"),
    ("\ufeffpay", "> <U+FEFF>pay"),
    ("pay\u00adment", "> pay<U+00AD>ment"),
    ("a\u034fb", "> a<U+034F>b"),
    ("a\u115f\u1160\u3164\uffa0b", "> a<U+115F><U+1160><U+3164><U+FFA0>b"),
    ("a\u2800b", "> a<U+2800>b"),
    ("a\u180eb", "> a<U+180E>b"),
    ("a\u2061\u2062\u2063\u2064b", "> a<U+2061><U+2062><U+2063><U+2064>b"),
    ("a\u206ab", "> a<U+206A>b"),
    ("a\ufff9b\ufffbc", "> a<U+FFF9>b<U+FFFB>c"),
    ("a\ufe0fb", "> a<U+FE0F>b"),
    ("a\ufe00b", "> a<U+FE00>b"),
    ("👍\ufe0f\ufe0f", "> 👍\ufe0f<U+FE0F>"),
    ("👍\U000e0100\U000e01ef", "> 👍<U+E0100><U+E01EF>"),
    ("\U000e0041\U000e0042", "> <U+E0041><U+E0042>"),
    ("a\U000e0fffb", "> a<U+E0FFF>b"),
    ("a\U0001d159b", "> a<U+1D159>b"),
    ("a\u2065b", "> a<U+2065>b"),
    ("a\uf8ffb", "> a<U+F8FF>b"),
    ("a\x00b", "> a<U+0000>b"),
    ("a\x1b[2Jb", "> a<U+001B>[2Jb"),
    ("a\x07\x08b", "> a<U+0007><U+0008>b"),
    ("a\x7f\x9bb", "> a<U+007F><U+009B>b"),
    # Markup stays what was typed.
    ("*bold* _it_ `code`", "> *bold* _it_ `code`"),
    ("<b>Approved</b>", "> <b>Approved</b>"),
    ("<a href='https://evil.example'>https://bank.example</a>",) * 2,
    ("[bank.example](https://evil.example)", "> [bank.example](https://evil.example)"),
    ("tg://user?id=1", "> tg://user?id=1"),
    ("{{ 7 * 7 }} {% raw %} ${x}", "> {{ 7 * 7 }} {% raw %} ${x}"),
    ("'; DROP TABLE x; --", "> '; DROP TABLE x; --"),
    ("https://xn--bnk-sna.example/", "> https://xn--bnk-sna.example/"),
    # And what is no trick.
    ("Grüße, Zoë! 你好 שלום", "> Grüße, Zoë! 你好 שלום"),
    ("1\ufe0f\u20e3 ❤\ufe0f 👩\u200d💻", "> 1\ufe0f\u20e3 ❤\ufe0f 👩\u200d💻"),
    ("a\tb", "> a\tb"),
    ("let me\n  in,\n   please", "> let me\n>   in,\n>    please"),
    ("Cafe\u0301, Việt Nam, שָׁלוֹם, ทั้งหมด", "> Cafe\u0301, Việt Nam, שָׁלוֹם, ทั้งหมด"),
    # Blanks in a row, of whichever kind, and marks in a pile.
    ("a" + " " * 40 + "To: Anna", "> a<U+0020 x 40>To: Anna"),
    ("a" + "\u00a0" * 40 + "To: Anna", "> a<U+00A0 x 40>To: Anna"),
    ("a\u2003\u3000 \u2009b", "> a<U+2003><U+3000><U+0020><U+2009>b"),
    ("a\t\t\t\tb", "> a<U+0009 x 4>b"),
    ("a\U00013441\U00013441b", "> a<U+13441 x 2>b"),
    ("a \U00016fe4 b", "> a <U+16FE4> b"),
    # Some fonts draw what is no character yet as a blank; newer pictures and ideographs than ours are drawn.
    ("a\ufb37\ufb37b\U0001343e", "> a<U+FB37 x 2>b<U+1343E>"),
    ("\U0001fa77 \U0001fae8 \U0002ebf0", "> \U0001fa77 \U0001fae8 \U0002ebf0"),
    ("a\u303f\ufffc\u2d7fb", "> a<U+303F><U+FFFC><U+2D7F>b"),
    ("a \u17d2 \u17d2 b", "> a <U+17D2> <U+17D2> b"),
    ("a" + "\u0301" * 40, "> a" + "\u0301" * 4 + "<U+0301 x 36>"),
    (
        "\u25a3 Linked. Your butlers will message you here.",
        "> <U+25A3> Linked. Your butlers will message you here.",
    ),
]
CASES = [(words, shown if shown.startswith(">") else f"> {shown}") for words, shown in NASTY]


QUESTION = Asked(
    origin="health",
    admitted_by="health",
    intent="send",
    channel="telegram",
    contact_id="c1",
    name="Anna",
    address="4242",
    deliverable=True,
    subject="",
    emoji="",
    thread="",
    findings=(),
    summary="",
    until=UNTIL,
    message="",
    content_sha=SHA,
)


def asked(message: str, **changes: object) -> Asked:
    return replace(QUESTION, message=message, **changes)  # type: ignore[arg-type]  # by its fields' names


def sheet_of(question: Asked) -> Sheet:
    # A page is named only where nothing can be delivered.
    return cards.sheet(question, ID, cast("Context", None))


def test_there_are_enough_of_them() -> None:
    assert len(NASTY) >= 60


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_a_message_is_shown_as_data(words: str, shown: str) -> None:
    (said,) = owner.bubbles(sheet_of(asked(words)))
    head, foot = (
        "▣ Health wants to message Anna on Telegram (4242)\n\n",
        "\n\nExpires Sun 4 Jan 2026 12:30 UTC\n▣ To Anna",
    )
    plain = "\n".join(line.removeprefix(">").removeprefix(" ") for line in shown.split("\n"))
    assert said.text == f"{head}{plain}{foot} (4242): {len(words)} characters, hash 9f86d081"
    (block,) = [one for one in said.stretches if one.kind == "pre"]
    assert said.text[block.start : block.end] == plain
    message = Message("d1", "telegram", "send", "5000000000000001", "")
    (wire,) = owner.by_house(message, sheet_of(asked(words)))
    body = json.loads(wire.body)
    assert set(body) == {"chat_id", "link_preview_options", "text", "entities"}
    assert body["link_preview_options"] == {"is_disabled": True}
    assert {"text": body["text"], "entities": body["entities"]} == said.fields


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_in_a_line_of_ours_it_stays_in_that_line(words: str, shown: str) -> None:
    line = in_line(words)
    assert "\n" not in line
    assert "\t" not in line
    assert visible(line) == line
    plain = shown.removeprefix("> ")
    if ">" not in plain and "\t" not in plain:
        assert line == plain
    quotation = said(words)
    assert quotation.startswith('"')
    assert quotation.endswith('"')
    assert quotation.count('"') == 2
    question = asked("x", channel="email", subject="x", name=words, summary=words, findings=(words,), thread=words)
    assert [len(approval.head(question)), len(approval.foot(question))] == [2, 3]
    assert not any("\n" in one for one in (*approval.head(question), *approval.foot(question)))


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_what_the_owner_may_edit_holds_nothing_unseen(words: str, shown: str) -> None:
    assert visible(seen(words)) == seen(words)
    assert seen(words) in words or "<U+" in shown


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_a_mail_is_plain_text_with_the_same_words(words: str, shown: str) -> None:
    to, by, subject = "owner@example.org", "butlers@example.org", "Health needs your approval"
    message = Message("d1", "email", "send", to, "", subject, sender=by, created_at=UNTIL)
    (wire,) = owner.by_house(message, sheet_of(asked(words)))
    read = message_from_bytes(wire.body, policy=default)
    assert read.get_content_type() == "text/plain"
    assert read["Subject"] == "▣ Health needs your approval"
    assert [line.rstrip() for line in read.get_content().split("\n")[2:]][: shown.count("\n") + 1] == [
        line.rstrip() for line in shown.split("\n")
    ]


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_a_page_shows_what_the_card_shows(words: str, shown: str) -> None:
    page = console.text({"message": words}, "message")
    assert quoted(page) == quoted(words) == shown
    assert visible(console.excerpt(words)) == console.excerpt(words)
    assert "\n" not in console.excerpt(words)


def test_the_beginning_of_a_text_is_made_without_the_rest_of_it() -> None:
    began = time.monotonic()
    assert console.excerpt("a\x01" * 500_000).startswith("a<U+0001>a")
    assert time.monotonic() - began < 1


def test_a_long_text_is_a_quotation_in_every_part_and_its_end_is_shown() -> None:
    message = "\n" * 4000 + "Approved.\n" + "x " * 2500 + "and send the keys to https://evil.example"
    *parts, last = owner.bubbles(sheet_of(asked(message)))
    assert all(utf16_units(part.text) <= 4096 for part in (*parts, last))
    for part in parts:
        (block,) = [one for one in part.stretches if one.kind == "pre"]
        first, _, rest = part.text.partition("\n")
        assert first.startswith("▣ (")
        assert part.text[block.start : block.end] == rest
    assert parts[-1].text.endswith("and send the keys to https://evil.example")
    assert "\n\n(The text is above.)\n\n" in last.text
    assert last.text.endswith("hash 9f86d081")


@pytest.mark.parametrize(
    "words", ["x" * 1000, "To: Anna (4242) " * 60, "語" * 500, "a\u0301" * 300, "x" * 73, "\t" * 3 + "y" * 90]
)
def test_each_row_of_a_quotation_has_its_mark_in_a_mail_and_on_a_terminal(words: str) -> None:
    rows = quoted(words).split("\n")
    assert all(row.startswith("> ") for row in rows)
    assert "".join(row.removeprefix("> ") for row in rows) == visible(words)
    assert all(sum(2 if one == "語" else one != "\u0301" for one in row) <= 76 for row in rows)


def test_no_text_is_long_by_what_hides_in_it() -> None:
    plain = len(owner.bubbles(sheet_of(asked("😀" * 10_000))))
    for piece in ("\u202e\u202d", "a\u202e", "\U000e0041\U000e0042", "a    ", "▣\n"):
        words = piece * (10_000 // len(piece))
        shown = visible(words)
        assert shown.startswith(visible(words[:100]))
        assert len(shown) <= 2 * len(words)
        assert visible(shown) == shown
        assert len(owner.bubbles(sheet_of(asked(words)))) <= plain


def test_a_butlers_own_reason_is_clipped_and_says_so() -> None:
    text = "\n".join(approval.lines(asked("Hello", summary="because " * 1000 + '"\nApproved.')))
    assert "Approved." not in text
    assert " ... (8011 characters)\n\nExpires " in text.replace("\n> ", "")
    assert len(text) < 800


def test_what_has_no_address_has_no_hash() -> None:
    assert short(None) == "none"
    assert approval.foot(asked("Hello", content_sha=None))[-1].endswith("5 characters, hash none")


def item(**delivery: object) -> Record:
    given = {"channel": "telegram", "message": "secret words", **delivery}
    envelope = NotifyEnvelope.model_validate({"origin_butler": "health", "delivery": given}).model_dump(
        exclude_none=True
    )
    row = {"id": ID, "revision": 1, "content_sha": SHA, "envelope": envelope, "owner_text": None}
    row |= {"origin_butler": "health", "tool_name": None}
    return cast("Record", {**row, "total": 1})


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_a_digest_holds_no_word_of_a_message_and_one_line_for_each(words: str, shown: str) -> None:
    _, sheet = digest.words(
        [item(recipient="eve@example.org")], [Addressee(words or shown, "anna@example.org")], "link", "people"
    )
    first, empty, last = sheet.foot.split("\n")
    assert first.startswith("1. to ")
    assert first.endswith("(anna@example.org) on Telegram, 12 characters")
    assert (empty, last) == ("", digest.NO_ANSWER_HERE)
    assert visible(first) == first


def test_the_outcome_on_a_card_shows_no_preview_of_a_link() -> None:
    words = owner.as_block("https://evil.example").fields
    card = {"address": "5000000000000001", "provider_id": "7", "shown": words}
    method, payload = closing.edited(card, "Denied.")
    assert method == "editMessageText"
    assert set(payload) == {"chat_id", "message_id", "link_preview_options", "text", "entities"}
    assert payload["link_preview_options"] == {"is_disabled": True}
    assert str(payload["text"]).endswith("\n\n▣ Denied.")


def test_what_is_plain_in_one_look_is_plain_one_by_one() -> None:
    plain = [one for one in map(chr, range(sys.maxunicode + 1)) if PLAIN.fullmatch(one)]
    assert len(plain) > 900
    # The ideograph is none of them, so that each is looked at by itself.
    assert [one for one in plain if visible(f"\u6f22{one}") != f"\u6f22{one}"] == []


def test_quoting_twice_is_seen() -> None:
    assert quoted(quoted("a\nb")) == "> > a\n> > b"


@pytest.mark.parametrize("words", ["a" * 200, "b " * 100, "\u6f22" * 100, "no break at all", ""])
def test_no_row_that_a_screen_breaks_off_begins_without_a_mark(words: str) -> None:
    first, *more = broken(f"health: {words}", 40)
    assert first.startswith("health: ")
    assert all(row.startswith(GOES_ON) for row in more)
    assert "".join([first, *(row.removeprefix(GOES_ON) for row in more)]) == f"health: {words}"
    assert all(sum(2 if one > "\u2e80" else 1 for one in row) <= 40 for row in (first, *more))
