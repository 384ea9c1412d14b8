"""What the owner is asked: the whole text, every hidden character visible, and buttons bound to exactly this."""

import json
from datetime import UTC, datetime
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messenger import cards
from messenger.store import Claimed
from shared.contracts import NotifyEnvelope
from shared.db import Record
from shared.identity import MissingIdentifier, Target
from shared.render import Wire
from shared.render.telegram import utf16_units

SECRET = b"k" * 32
ID = "882f944d-051b-4fa8-a3cf-373336d2e355"
UNTIL = datetime(2026, 1, 4, 12, 30, tzinfo=UTC)
ANNA = Target("4242", "c1", "Anna", "e1")
CLAIMED = Claimed("d1", None, "card", "telegram", "5000000000000001", 1, 1, ID, 1, UNTIL)


def action(**changes: object) -> Record:
    """A pending action's row as far as buttons read it."""
    row = {"id": ID, "revision": 1, "content_sha": "sha", "agent_summary": "why", "expires_at": UNTIL}
    row["admitted_by"] = "health"
    return cast("Record", {**row, **changes})


def asked(message: str = "Hello", **delivery: object) -> NotifyEnvelope:
    given = {"channel": "telegram", "message": message, **delivery}
    return NotifyEnvelope.model_validate({"origin_butler": "health", "delivery": given})


def text_of(envelope: NotifyEnvelope, target: Target | MissingIdentifier = ANNA, summary: str = "why") -> str:
    return "\n\n".join(cards.card_text(envelope, target, action(agent_summary=summary)))


def card(message: str) -> list[dict[str, object]]:
    """The bodies of the card that asks for this message."""
    keyboard = cards.buttons(SECRET, action(), can_approve=True)
    wires: tuple[Wire, ...] = cards.telegram_card(CLAIMED, cards.card_text(asked(message), ANNA, action()), keyboard)
    return [json.loads(wire.body) for wire in wires]


def test_it_says_where_another_admitted_it_in_the_name_of_its_butler() -> None:
    mark = "Admitted by switchboard in the name of health."
    for message in ("Hello", "x" * 10_000):
        bodies = cards.bodies(cards.card_text(asked(message), ANNA, action(admitted_by="switchboard")))
        assert mark in bodies[-1].split("\n")
        assert all(len(body) <= cards.ROOM for body in bodies)
    assert "Admitted by" not in text_of(asked())


def test_it_says_who_wants_what_to_whom_why_and_until_when() -> None:
    text = text_of(asked("See you at nine.", channel="email", subject="Dinner", recipient="anna@example.org"))
    for words in (
        "health wants to send by e-mail",
        "To: Anna (4242)",
        "Subject: Dinner",
        'Why asked, as health says: "why"',
        "Until: 2026-01-04 12:30 UTC",
        "Length: 16 characters, hash sha",
        "Text:\n> See you at nine.",
    ):
        assert words in text


def test_a_missing_identifier_is_told() -> None:
    assert "To: Anna (no identifier on file)" in text_of(asked(), MissingIdentifier("c1", "Anna"))


def test_an_address_without_a_contact_is_unknown() -> None:
    assert "To: unknown (4242)" in text_of(asked(), Target("4242"))


def test_a_reaction_shows_its_emoji() -> None:
    assert "Emoji: 👍" in text_of(asked("", intent="react", emoji="👍"))


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\u2066", "\x07", "\u00ad", "\ufeff"])
def test_hidden_characters_are_visible_wherever_others_words_are_shown(hidden: str) -> None:
    shown = f"<U+{ord(hidden):04X}>"
    envelope = asked(f"pay{hidden}me", channel="email", subject=f"su{hidden}bject")
    text = text_of(envelope, Target("4242", "c1", f"An{hidden}na"), f"be{hidden}cause")
    assert hidden not in text
    assert text.count(shown) == 4


@given(st.text(st.sampled_from("ab \n\t\u202eé😀👨\u200d"), min_size=1, max_size=60))
def test_it_holds_the_whole_message(message: str) -> None:
    shown = text_of(asked(message))
    for character in message:
        assert character in shown or f"<U+{ord(character):04X}>" in shown
    if not {"\u202e", "\u200d"} & set(message):
        lines = shown.partition("Text:\n")[2].split("\n")
        assert [line.removeprefix(">").removeprefix(" ") for line in lines] == message.split("\n")


def test_a_short_text_is_one_message_with_its_buttons() -> None:
    (body,) = card("Hello")
    assert "Text:\n> Hello" in str(body["text"])
    assert [button["text"] for button in _keyboard(body)] == ["Approve", "Deny"]


def test_a_long_text_comes_whole_in_numbered_parts_with_the_buttons_last() -> None:
    words = " ".join(f"word{n}" for n in range(1100))
    bodies = card(words)
    assert len(bodies) == 4
    assert all("reply_markup" not in body for body in bodies[:-1])
    assert [button["text"] for button in _keyboard(bodies[-1])] == ["Approve", "Deny"]
    texts = [str(body["text"]) for body in bodies[:-1]]
    assert [text.partition("\n")[0] for text in texts] == ["(1/3)", "(2/3)", "(3/3)"]
    assert [line[:2] for text in texts for line in text.split("\n")[1:]] == ["Te", "> ", "> ", "> "]
    assert " ".join(text.partition("\n")[2] for text in texts).replace("> ", "").split() == ["Text:", *words.split()]
    assert all(utf16_units(str(body["text"])) <= 4096 for body in bodies)
    assert "health wants to send" in str(bodies[-1]["text"])


@pytest.mark.parametrize("length", [3000, 3900, 4096, 10_000])
def test_no_character_is_cut_at_any_length(length: int) -> None:
    bodies = card("😀" * (length // 2))
    assert sum(str(body["text"]).count("😀") for body in bodies) == length // 2
    assert all(utf16_units(str(body["text"])) <= 4096 for body in bodies)


def _keyboard(body: dict[str, object]) -> list[dict[str, str]]:
    markup = cast("dict[str, list[list[dict[str, str]]]]", body["reply_markup"])
    return [button for row in markup["inline_keyboard"] for button in row]


def test_only_what_can_be_delivered_can_be_approved() -> None:
    (row,) = cards.buttons(SECRET, action(), can_approve=False)
    assert [button.text for button in row] == ["Deny"]


@pytest.mark.parametrize("verb", ["ok", "no"])
def test_a_button_is_read_back_within_64_bytes(verb: str) -> None:
    data = cards.data(SECRET, action(), verb)
    press = cards.read(data)
    assert len(data.encode()) <= 64
    assert press is not None
    assert (press.about, press.verb) == (ID, verb)
    assert cards.genuine(SECRET, action(), press)


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
    press = cards.read(cards.data(SECRET, action(), "ok"))
    assert press is not None
    assert not cards.genuine(SECRET, other, press)


def test_a_button_speaks_for_its_own_verb_and_secret_only() -> None:
    denying = cards.data(SECRET, action(), "no")
    press = cards.read(denying.replace(":no:", ":ok:"))
    assert press is not None
    assert not cards.genuine(SECRET, action(), press)
    own = cards.read(denying)
    assert own is not None
    assert not cards.genuine(b"j" * 32, action(), own)


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
    assert cards.read(data) is None


def test_the_mail_card_says_where_to_decide() -> None:
    head, quoted = cards.card_text(asked("Hello"), ANNA, action())
    assert "Hello" not in head
    assert quoted == "Text:\n> Hello"
