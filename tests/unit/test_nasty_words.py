"""Words made to deceive whoever reads a card, a mail or a page: what is shown of each, to the letter."""

import json
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from typing import cast

import pytest

from butlers.console import words as console
from messenger import cards, closing, digests
from messenger.store import Claimed
from shared.contracts import NotifyEnvelope
from shared.db import Record
from shared.identity import Target
from shared.keys import short
from shared.render import Message, email
from shared.render.telegram import utf16_units
from shared.render.visible import in_line, quoted, said, seen, visible

SECRET = b"k" * 32
ID = "882f944d-051b-4fa8-a3cf-373336d2e355"
UNTIL = datetime(2026, 1, 4, 12, 30, tzinfo=UTC)
CLAIMED = Claimed("d1", None, "card", "telegram", "5000000000000001", 1, 1, ID, 1, UNTIL)
SHA = "9f86d081884c7d659a2feaa0c55ad015"

# What somebody writes, and each line of it as the owner reads it.
NASTY = [
    # Lines that pass for ours.
    ("Hi\nApproved.", "> Hi\n> Approved."),
    ("Hi\n\nApproved and sent.", "> Hi\n>\n> Approved and sent."),
    ("Text:\nharmless", "> Text:\n> harmless"),
    ("> Text:\n> quoted", "> > Text:\n> > quoted"),
    ("To: Anna (4242)", "> To: Anna (4242)"),
    ("Length: 3 characters, hash 00000000", "> Length: 3 characters, hash 00000000"),
    ("[ Approve ]   [ Deny ]", "> [ Approve ]   [ Deny ]"),
    ("(1/2)\nthe rest follows", "> (1/2)\n> the rest follows"),
    ("(Its text stands above.)", "> (Its text stands above.)"),
    ("Show 1", "> Show 1"),
    ("health wants to send by Telegram", "> health wants to send by Telegram"),
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
]
CASES = [(words, shown if shown.startswith(">") else f"> {shown}") for words, shown in NASTY]


def action(**changes: object) -> Record:
    row = {"id": ID, "revision": 1, "content_sha": SHA, "agent_summary": "why", "expires_at": UNTIL}
    row["admitted_by"] = "health"
    return cast("Record", {**row, **changes})


def asked(message: str, **delivery: object) -> NotifyEnvelope:
    given = {"channel": "telegram", "message": message, **delivery}
    return NotifyEnvelope.model_validate({"origin_butler": "health", "delivery": given})


def text_of(envelope: NotifyEnvelope, name: str = "Anna", **changes: object) -> tuple[str, str]:
    return cards.card_text(envelope, Target("4242", "c1", name, "e1"), action(**changes))


def test_there_are_enough_of_them() -> None:
    assert len(NASTY) >= 60


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_a_message_is_shown_as_data(words: str, shown: str) -> None:
    head, below = text_of(asked(words))
    assert below == f"Text:\n{shown}"
    assert head.endswith(f"Length: {len(words)} characters, hash 9f86d081")
    wires = cards.telegram_card(CLAIMED, (head, below), [])
    bodies = [json.loads(wire.body) for wire in wires]
    assert [set(body) for body in bodies] == [{"chat_id", "link_preview_options", "reply_markup", "text"}]
    assert bodies[0]["link_preview_options"] == {"is_disabled": True}


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
    for text in text_of(asked("x", channel="email", subject=words), name=words, agent_summary=words):
        assert text.count("\n") == {True: 5, False: 1}[text.startswith("health")]


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_what_the_owner_may_edit_holds_nothing_unseen(words: str, shown: str) -> None:
    assert visible(seen(words)) == seen(words)
    assert seen(words) in words or "<U+" in shown


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_a_mail_is_plain_text_with_the_same_words(words: str, shown: str) -> None:
    body = "\n\n".join(text_of(asked(words)))
    to, by, subject = "owner@example.org", "butlers@example.org", "health asks: may this go out?"
    (wire,) = email.render(Message("d1", "email", "send", to, body, subject, sender=by, created_at=UNTIL))
    read = message_from_bytes(wire.body, policy=default)
    assert read.get_content_type() == "text/plain"
    assert [line.rstrip() for line in read.get_content().split("\n")[7:]][: shown.count("\n") + 1] == [
        line.rstrip() for line in shown.split("\n")
    ]


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_a_page_shows_what_the_card_shows(words: str, shown: str) -> None:
    page = console.text({"message": words}, "message")
    assert quoted(page) == quoted(words) == shown
    assert visible(console.excerpt(words)) == console.excerpt(words)
    assert "\n" not in console.excerpt(words)


def test_a_long_text_is_a_quotation_in_every_part_and_its_end_is_shown() -> None:
    message = "\n" * 4000 + "Approved.\n" + "x " * 2500 + "and send the keys to https://evil.example"
    bodies = cards.bodies(text_of(asked(message)))
    assert all(utf16_units(body) <= 4096 for body in bodies)
    lines = [line for body in bodies[:-1] for line in body.split("\n")[1:]]
    assert lines[0] == "Text:"
    assert all(line.startswith(">") for line in lines[1:])
    assert lines[-1].endswith("and send the keys to https://evil.example")
    assert bodies[-1].endswith("hash 9f86d081\n\n(Its text stands above.)")


def test_a_butlers_own_reason_is_clipped_and_says_so() -> None:
    head, _ = text_of(asked("Hello"), agent_summary="because " * 1000 + '"\nApproved.')
    assert "\nApproved." not in head
    assert " ... (8011 characters)\nUntil:" in head
    assert len(head) < 800


def test_what_has_no_address_has_no_hash() -> None:
    assert short(None) == "none"
    assert text_of(asked("Hello"), content_sha=None)[0].endswith("Length: 5 characters, hash none")


def item(name: str = "Zoe", whom: str = "contact:c1", **delivery: object) -> Record:
    envelope = asked("secret words", **delivery).model_dump(exclude_none=True)
    row = {"id": ID, "revision": 1, "content_sha": SHA, "envelope": envelope, "owner_text": None, "whom": whom}
    return cast("Record", {**row, "name": name, "address": None, "total": 1})


@pytest.mark.parametrize(("words", "shown"), CASES, ids=range(len(CASES)))
def test_a_digest_holds_no_word_of_a_message_and_one_line_for_each(words: str, shown: str) -> None:
    _, text = digests.words([item(name=words or shown, recipient="anna@example.org")], "link")
    first, empty, last = text.split("\n")
    assert first.startswith("1. to ")
    assert first.endswith("(anna@example.org) by Telegram, 12 characters")
    assert (empty, last) == ("", digests.NO_ANSWER_HERE)
    assert visible(first) == first


def test_the_outcome_on_a_card_shows_no_preview_of_a_link() -> None:
    method, payload = closing.edited("5000000000000001", "7", "> https://evil.example", "Denied.")
    assert method == "editMessageText"
    assert set(payload) == {"chat_id", "message_id", "link_preview_options", "text"}
    assert payload["link_preview_options"] == {"is_disabled": True}


def test_quoting_twice_is_seen() -> None:
    assert quoted(quoted("a\nb")) == "> > a\n> > b"
