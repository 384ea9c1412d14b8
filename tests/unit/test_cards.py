"""What the owner is asked: the whole text, every hidden character visible, and buttons bound to exactly this."""

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.butler import Context
from messenger.cards import approval, base
from shared.channels.base import Message
from shared.channels.telegram import utf16_units
from shared.db.pool import Record
from shared.display import owner
from shared.display.approval import Asked, lines

SECRET = b"k" * 32
ID = "882f944d-051b-4fa8-a3cf-373336d2e355"
UNTIL = datetime(2026, 1, 4, 12, 30, tzinfo=UTC)
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
    message="Hello",
    content_sha="sha",
)


def action(**changes: object) -> Record:
    """A pending action's row as far as buttons read it."""
    return cast("Record", {"id": ID, "revision": 1, "content_sha": "sha", **changes})


def text_of(question: Asked) -> str:
    return "\n".join(lines(question))


def card(question: Asked) -> list[dict[str, object]]:
    """The bodies of the card that asks this."""
    keyboard = approval.buttons(SECRET, action(), can_approve=True)
    # A page is named only where nothing can be delivered.
    shown = approval.sheet(question, ID, cast("Context", None))
    wires = owner.by_house(Message("d1", "telegram", "send", "5000000000000001", ""), shown)
    return [json.loads(wire.body) for wire in base.with_keyboard(wires, keyboard)]


def blocks(body: dict[str, object]) -> list[str]:
    """What Telegram shows in a block of its own, in order."""
    raw = str(body["text"]).encode("utf-16-le")
    found = cast("list[dict[str, int | str]]", body.get("entities", []))
    spans = [(int(one["offset"]), int(one["offset"]) + int(one["length"])) for one in found if one["type"] == "pre"]
    return [raw[2 * start : 2 * end].decode("utf-16-le") for start, end in spans]


def test_it_says_where_another_admitted_it_in_the_name_of_its_butler() -> None:
    mark = "Submitted by switchboard on behalf of health."
    for message in ("Hello", "x" * 10_000):
        bodies = [str(body["text"]) for body in card(replace(QUESTION, message=message, admitted_by="switchboard"))]
        assert mark in bodies[-1].split("\n")
        assert all(utf16_units(body) <= 4096 for body in bodies)
    assert "Submitted by" not in text_of(QUESTION)


def test_it_says_who_wants_what_to_whom_why_and_until_when() -> None:
    findings, message = ("This address is not in your contacts.",), "See you at nine."
    mail = replace(QUESTION, channel="email", subject="Dinner", address="anna@example.org", message=message)
    assert lines(replace(mail, findings=findings, summary="because")) == [
        "Health wants to message Anna by e-mail (anna@example.org)",
        "",
        "Subject:",
        "> Dinner",
        "",
        "> See you at nine.",
        "",
        "Health says:",
        "> because",
        "",
        "Why: This address is not in your contacts.",
        "Expires Sun 4 Jan 2026 12:30 UTC",
        "To Anna (anna@example.org): 16 characters, hash sha",
    ]


@pytest.mark.parametrize(
    ("channel", "intent", "thread", "line"),
    [
        ("telegram", "reply", "-100123:17", "Reply to message 17 in chat -100123"),
        ("telegram", "react", "4242:9", "Reaction to message 9 in chat 4242"),
        ("email", "reply", "<a.b@example.org>", "Reply to the mail <a.b@example.org>"),
    ],
)
def test_it_says_which_thread_an_answer_goes_into(channel: str, intent: str, thread: str, line: str) -> None:
    assert line in lines(replace(QUESTION, channel=channel, intent=intent, thread=thread))
    assert "Reply to" not in text_of(QUESTION)


def test_a_missing_identifier_is_told() -> None:
    assert "Anna on Telegram (no address on file)" in text_of(replace(QUESTION, address=""))


def test_an_address_without_a_contact_is_unknown() -> None:
    assert "an unknown recipient on Telegram (4242)" in text_of(replace(QUESTION, name="", contact_id=""))


@pytest.mark.parametrize(("name", "named"), [("", "a group or channel"), ("Family", "Family, a group or channel")])
def test_a_chat_that_many_read_is_called_a_group_or_channel(name: str, named: str) -> None:
    told = lines(replace(QUESTION, name=name, contact_id="", address="-100123"))
    assert told[0] == f"Health wants to message {named} on Telegram (-100123)"
    assert told[-1].startswith(f"To {named} (-100123): ")


def test_a_reaction_shows_its_emoji() -> None:
    assert "Emoji:\n> 👍" in text_of(replace(QUESTION, intent="react", emoji="👍", message=""))


@pytest.mark.parametrize(
    "hidden", ["\u202e", "\u200b", "\u2066", "\x07", "\u00ad", "\ufeff", "\U00013441", "\U00016fe4"]
)
def test_hidden_characters_are_visible_wherever_others_words_are_shown(hidden: str) -> None:
    shown = f"<U+{ord(hidden):04X}>"
    words = {"message": f"pay{hidden}me", "subject": f"su{hidden}bject", "summary": f"be{hidden}cause"}
    text = text_of(replace(QUESTION, name=f"An{hidden}na", **words))  # type: ignore[arg-type]  # each a text
    assert hidden not in text
    # The name stands above the words and below them.
    assert text.count(shown) == 5


@given(st.text(st.sampled_from("ab \n\t\u202eé😀👨\u200d"), min_size=1, max_size=60))
def test_it_holds_the_whole_message(message: str) -> None:
    (shown,) = blocks(card(replace(QUESTION, message=message))[0])
    for character in message:
        assert character in shown or f"<U+{ord(character):04X}" in shown
    # Four blanks and five line ends in a row are written out, as are unseen characters.
    written_out = re.search(r"[\u202e\u200d]|[ \t]{4}|\n(?:[ \t]*\n){4}", message)
    if not written_out:
        assert shown == message


def test_a_short_text_is_one_message_with_its_buttons() -> None:
    (body,) = card(QUESTION)
    assert blocks(body) == ["Hello"]
    assert [button["text"] for button in _keyboard(body)] == ["Approve", "Deny"]


def test_right_above_the_buttons_stands_once_more_to_whom_and_what() -> None:
    for message in ("Hello", "word " * 1500):
        *_, last = card(replace(QUESTION, message=message, subject="Dinner", summary="why"))
        shown = str(last["text"]).split("\n")
        assert shown[0] == "▣ Health wants to message Anna on Telegram (4242)"
        assert shown[-1] == f"▣ To Anna (4242): {len(message)} characters, hash sha"


def test_a_long_text_comes_whole_in_numbered_parts_with_the_buttons_last() -> None:
    words = " ".join(f"word{n}" for n in range(1100))
    bodies = card(replace(QUESTION, message=words, subject="Dinner"))
    assert len(bodies) == 5
    assert all("reply_markup" not in body for body in bodies[:-1])
    assert [button["text"] for button in _keyboard(bodies[-1])] == ["Approve", "Deny"]
    texts = [str(body["text"]) for body in bodies[:-1]]
    assert [text.partition("\n")[0] for text in texts] == [f"▣ ({n}/4)" for n in range(1, 5)]
    subject, *parts = [block for body in bodies for block in blocks(body)]
    assert subject == "Dinner"
    assert " ".join(parts).split() == words.split()
    assert all(utf16_units(str(body["text"])) <= 4096 for body in bodies)
    assert "Health wants to message Anna" in str(bodies[-1]["text"])


@pytest.mark.parametrize("length", [3000, 3900, 4096, 10_000])
def test_no_character_is_cut_at_any_length(length: int) -> None:
    bodies = card(replace(QUESTION, message="😀" * (length // 2)))
    assert sum(str(body["text"]).count("😀") for body in bodies) == length // 2
    assert all(utf16_units(str(body["text"])) <= 4096 for body in bodies)


def test_no_card_is_too_long_whatever_others_wrote() -> None:
    wide = "\u202e\u202d" * 250
    worst = replace(QUESTION, message=wide * 20, subject=wide, summary=wide, name=wide, emoji=wide[:32], thread=wide)
    for question in (worst, replace(worst, channel="email", address=f"{'a' * 64}@{'b.' * 120}example.org")):
        bodies = card(question)
        assert all(utf16_units(str(body["text"])) <= 4096 for body in bodies)
        assert all(len(cast("list[object]", body.get("entities", []))) <= 100 for body in bodies)


def _keyboard(body: dict[str, object]) -> list[dict[str, str]]:
    markup = cast("dict[str, list[list[dict[str, str]]]]", body["reply_markup"])
    return [button for row in markup["inline_keyboard"] for button in row]


def test_only_what_can_be_delivered_can_be_approved() -> None:
    (row,) = approval.buttons(SECRET, action(), can_approve=False)
    assert [button.text for button in row] == ["Deny"]


@pytest.mark.parametrize(
    ("url", "takes"),
    [
        ("https://home.example.org", True),
        ("https://home.example.org:8443/butlers", True),
        ("https://192.168.1.2", True),
        ("http://home.example.org", False),
        ("https://localhost:41102", False),
        ("https://console.localhost", False),
        ("https://127.0.0.1:41102", False),
        ("https://home", False),
        ("", False),
    ],
)
def test_a_button_opens_the_console_only_where_telegram_takes_the_link(url: str, takes: bool) -> None:  # noqa: FBT001
    assert base.can_be_opened(url) is takes


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("UTC", "Expires Sun 4 Jan 2026 12:30 UTC"),
        ("Europe/Berlin", "Expires Sun 4 Jan 2026 13:30 UTC+01:00"),
        ("America/St_Johns", "Expires Sun 4 Jan 2026 09:00 UTC-03:30"),
    ],
)
def test_it_says_until_when_in_the_time_of_its_process(zone: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        assert shown in lines(QUESTION)
    time.tzset()


@pytest.mark.parametrize("verb", ["ok", "no"])
def test_a_button_is_read_back_within_64_bytes(verb: str) -> None:
    data = approval.data(SECRET, action(), verb)
    press = base.read(data, approval.VERBS)
    assert len(data.encode()) <= 64
    assert press is not None
    assert (press.about, press.verb) == (ID, verb)
    assert approval.genuine(SECRET, action(), press)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(action(id="11111111-1111-4111-8111-111111111111"), id="another action"),
        pytest.param(action(revision=2), id="another revision"),
        pytest.param(action(content_sha="other"), id="other content"),
        pytest.param(action(content_sha=None), id="no content"),
    ],
)
def test_a_button_speaks_for_its_own_action_revision_and_content_only(other: Record) -> None:
    press = base.read(approval.data(SECRET, action(), "ok"), approval.VERBS)
    assert press is not None
    assert not approval.genuine(SECRET, other, press)


def test_a_button_speaks_for_its_own_verb_and_secret_only() -> None:
    denying = approval.data(SECRET, action(), "no")
    press = base.read(denying.replace(":no:", ":ok:"), approval.VERBS)
    assert press is not None
    assert not approval.genuine(SECRET, action(), press)
    own = base.read(denying, approval.VERBS)
    assert own is not None
    assert not approval.genuine(b"j" * 32, action(), own)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "a1",
        "a1:::",
        "a1:x:ok:y",
        "🙂:a:b:c",
        "a2:iC-UTQUbT6ijzzczNtLjVQ:ok:tag",
        "a1:iC-UTQUbT6ijzzczNtLjVQ:maybe:tag",
        "a1:iC-UTQUbT6ijzzczNtLjVé:ok:tag",
        "a1:iC-UTQUbT6ijzzczNtLjVQ:ok:tag:more",
        "a1:!!!!!!!!!!!!!!!!!!!!!!:ok:tag",
    ],
)
def test_what_was_never_a_button_of_ours_is_none(data: str) -> None:
    assert base.read(data, approval.VERBS) is None
