"""shared/render/telegram: canonical bytes, parts that lose nothing, and no character that hides."""

import json
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.channels.base import Message, shas
from shared.channels.telegram import Button, render, split, utf16_units, with_buttons
from shared.display.visible import seen, visible
from shared.errors import InvalidInput

SEND = Message(notification_id="n1", channel="telegram", intent="send", address="42", text="Grüße")
REPLY = replace(SEND, intent="reply", thread="42:7")
REACT = replace(SEND, intent="react", thread="42:7", emoji="👍")

# Prose-like text with everything that makes splitting hard: astral, combining, joined, flags, all white space.
HARD = st.text(
    st.sampled_from("ab \n\t\r\u00a0\u3000é\u0301\u200d👩🏽⚕\ufe0f🇩🇪🇫𐍈한\u1161\u202e\x00\x1c\x85\u2028"), max_size=60
)


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_send_is_canonical_json_without_parse_mode() -> None:
    (wire,) = render(SEND)
    expected = '{"chat_id":42,"link_preview_options":{"is_disabled":true},"text":"Grüße"}'
    assert (wire.verb, wire.to, wire.body) == ("sendMessage", "42", expected.encode())


def test_markup_stays_text() -> None:
    (wire,) = render(replace(SEND, text="<b>*_[x](http://y)`"))
    assert json.loads(wire.body)["text"] == "<b>*_[x](http://y)`"
    assert b"parse_mode" not in wire.body


@pytest.mark.parametrize(("address", "chat_id"), [("-100123", -100123), ("@some_name", "@some_name")])
def test_a_numeric_address_is_a_number_and_a_name_a_name(address: str, chat_id: int | str) -> None:
    assert json.loads(render(replace(SEND, address=address))[0].body)["chat_id"] == chat_id


@pytest.mark.parametrize("address", ["", "ann", "4 2", "42\n", "٤٢", "@", "1.5", "me@example.org"])
def test_an_address_of_no_telegram_form_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput):
        render(replace(SEND, address=address))


def test_a_reply_points_from_its_first_part_only() -> None:
    bodies = [json.loads(wire.body) for wire in render(replace(REPLY, text="word " * 2000))]
    assert len(bodies) == 3
    assert [body.get("reply_parameters") for body in bodies] == [{"message_id": 7}, None, None]


def test_a_reply_in_a_group_has_a_negative_chat() -> None:
    (wire,) = render(replace(REPLY, address="-100", thread="-100:9"))
    assert json.loads(wire.body)["reply_parameters"] == {"message_id": 9}


@pytest.mark.parametrize("thread", [None, "", "7", "42:", "42:0", "42:x", "42:-7", "43:7", "spotify:track:7"])
@pytest.mark.parametrize("message", [REPLY, REACT])
def test_a_thread_that_is_none_or_elsewhere_is_refused(message: Message, thread: str | None) -> None:
    with pytest.raises(InvalidInput):
        render(replace(message, thread=thread))


def test_a_reaction_sets_one_emoji() -> None:
    (wire,) = render(REACT)
    assert wire.verb == "setMessageReaction"
    assert json.loads(wire.body) == {
        "chat_id": 42,
        "message_id": 7,
        "reaction": [{"type": "emoji", "emoji": "👍"}],
    }


def test_a_reaction_without_emoji_is_refused() -> None:
    with pytest.raises(InvalidInput):
        render(replace(REACT, emoji=None))


@pytest.mark.parametrize("text", ["", " \n\t", " " * 5000, "half \ud83d"])
def test_blank_and_broken_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        render(replace(SEND, text=text))


def test_the_same_message_has_the_same_hashes_and_another_address_others() -> None:
    assert shas(render(SEND)) == shas(render(replace(SEND)))
    assert shas(render(SEND)) != shas(render(replace(SEND, address="43")))


def test_utf16_units_are_counted_as_telegram_counts() -> None:
    text = "aé€𐍈👍🏽"
    assert utf16_units(text) == len(text.encode("utf-16-le")) // 2 == 9


@pytest.mark.parametrize("text", ["x" * 4096, " kept \n", "👍" * 2048])
def test_a_text_that_fits_is_one_untouched_part(text: str) -> None:
    assert split(text) == [text]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("aaaa bb\nccc ddd", ["aaaa bb", "ccc ddd"]),
        ("aaaa bbb ccc ddd", ["aaaa bbb", "ccc ddd"]),
        ("a bbbbbbbbbb", ["a", "bbbbbbbbbb"]),
        ("aaaaaaaaaabbb", ["aaaaaaaaaa", "bbb"]),
        ("aaaaaaaaaa bbb", ["aaaaaaaaaa", "bbb"]),
        ("aaaaaaaaaa\u0301b", ["aaaaaaaaa", "a\u0301b"]),
        ("aaaaaaaaa👍b", ["aaaaaaaaa", "👍b"]),
        ("aaaaaa👩\u200d⚕\ufe0f", ["aaaaaa", "👩\u200d⚕\ufe0f"]),
        ("aaaaaaaa👍🏽", ["aaaaaaaa", "👍🏽"]),
        ("aaa🇩🇪🇫🇷", ["aaa🇩🇪", "🇫🇷"]),
        ("\u0301" * 12, ["\u0301" * 10, "\u0301" * 2]),
        ("   aaaaaaaaaa   ", ["aaaaaaaaaa"]),
        ("aaaaaaaa" + "\n" * 30 + "bb", ["aaaaaaaa", "bb"]),
    ],
)
def test_breaks_prefer_lines_then_words_then_whole_characters(text: str, parts: list[str]) -> None:
    assert split(text, 10) == parts


@given(HARD | st.text(max_size=80), st.integers(min_value=2, max_value=12))
def test_no_part_is_blank_or_too_long_and_no_character_is_lost(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert all(utf16_units(part) <= limit and part.strip() for part in parts)
    assert squeezed("".join(parts)) == squeezed(text)


@given(st.text(st.sampled_from("ab\u0301"), max_size=60))
def test_an_accent_stays_with_its_letter(text: str) -> None:
    composed = unicodedata.normalize("NFC", text)
    if "\u0301\u0301" not in text and not text.startswith("\u0301"):
        parts = split(text, 12)
        assert not any(part.startswith("\u0301") for part in parts)
        assert "".join(unicodedata.normalize("NFC", part) for part in parts) == composed


@given(HARD)
def test_rendering_is_the_same_every_time_and_carries_every_character(text: str) -> None:
    if text.strip():
        wires = render(replace(SEND, text=text * 200))
        assert wires == render(replace(SEND, text=text * 200))
        sent = "".join(json.loads(wire.body)["text"] for wire in wires)
        assert squeezed(sent) == squeezed(text * 200)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Grüße, 한글\n\tnext", "plain, Grüße, 한글\n\tnext"),
        ("gpj.\u202eexe", "gpj.<U+202E>exe"),
        ("a\u200bb\ufeffc\u00add", "a<U+200B>b<U+FEFF>c<U+00AD>d"),
        ("\x00\x1b[0m\r\x7f\x85", "<U+0000><U+001B>[0m<U+000D><U+007F><U+0085>"),
        ("\u2066x\u2069\u2028", "<U+2066>x<U+2069><U+2028>"),
        ("a\u3164b\u034fc", "a<U+3164>b<U+034F>c"),
        ("a\u200db", "a<U+200D>b"),
        ("👩\u200d⚕\ufe0f ❤\ufe0f", "👩\u200d⚕\ufe0f ❤\ufe0f"),
        ("\U000e0041", "<U+E0041>"),
        ("\ud83d", "<U+D83D>"),
        ("Lunch?" + "\n" * 300 + "PIN 1234" + "\n" * 5, "Lunch?<U+000A x 300>PIN 1234<U+000A x 5>"),
        ("a" + "\n \n" * 2 + "\nb", "a<U+000A><U+0020><U+000A x 2><U+0020><U+000A x 2>b"),
        ("a\n\n\n\nb", "a\n\n\n\nb"),
    ],
)
def test_what_hides_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_draft_keeps_a_paragraph_of_empty_lines_in_a_row() -> None:
    assert seen("a" + "\n \n" * 4 + "b\n\n\nc") == "a\n\nb\n\n\nc"


def test_buttons_are_added_to_the_same_message() -> None:
    (wire,) = render(SEND)
    card = with_buttons(
        wire, [[Button("Approve", data="a1:x"), Button("Deny", data="d1:x")], [Button("Open", url="http://c/1")]]
    )
    body = json.loads(card.body)
    assert body.pop("reply_markup") == {
        "inline_keyboard": [
            [{"text": "Approve", "callback_data": "a1:x"}, {"text": "Deny", "callback_data": "d1:x"}],
            [{"text": "Open", "url": "http://c/1"}],
        ],
    }
    assert body == json.loads(wire.body)
    assert card.sha != wire.sha


@pytest.mark.parametrize("button", [Button("x"), Button("x", data="d", url="u"), Button("x", data="é" * 33)])
def test_a_button_telegram_would_refuse_is_refused_here(button: Button) -> None:
    with pytest.raises(InvalidInput):
        with_buttons(render(SEND)[0], [[button]])
