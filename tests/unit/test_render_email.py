"""shared/render/email: the same bytes every time, safe headers, and the text as it was given."""

import re
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.channels.base import Message
from shared.channels.email import render, subject
from shared.errors import InvalidInput

SENT_AT = datetime(2026, 3, 29, 12, 30, 5, 999, tzinfo=UTC)
SEND = Message(
    notification_id="0198c0de-0000-7000-8000-000000000001",
    channel="email",
    intent="send",
    address="ann@example.org",
    text="Hello Ann,\n\nsee you.",
    subject="Tomorrow",
    sender="butlers@home.example",
    created_at=SENT_AT,
)
REPLY = replace(SEND, intent="reply", subject=None, thread="<abc@mail.example>")
ONE_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=200)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300).filter(lambda text: bool(text.strip()))


def parsed(message: Message) -> EmailMessage:
    (wire,) = render(message)
    mail = message_from_bytes(wire.body, policy=default)
    assert isinstance(mail, EmailMessage)
    return mail


def test_the_whole_message_byte_for_byte() -> None:
    (wire,) = render(replace(SEND, text="Grüße = 1\n.\n"))
    assert (wire.verb, wire.to, wire.sender) == ("MAIL", "ann@example.org", "butlers@home.example")
    assert wire.body == (
        b"Date: Sun, 29 Mar 2026 12:30:05 +0000\r\n"
        b"From: butlers@home.example\r\n"
        b"To: ann@example.org\r\n"
        b"Message-ID: <n.0198c0de-0000-7000-8000-000000000001@home.example>\r\n"
        b"Subject: Tomorrow\r\n"
        b"Auto-Submitted: auto-generated\r\n"
        b'Content-Type: text/plain; charset="utf-8"\r\n'
        b"Content-Transfer-Encoding: quoted-printable\r\n"
        b"MIME-Version: 1.0\r\n"
        b"\r\n"
        b"Gr=C3=BC=C3=9Fe =3D 1\r\n.\r\n"
    )


def test_the_date_is_the_same_moment_in_utc() -> None:
    elsewhere = SENT_AT.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert render(replace(SEND, created_at=elsewhere)) == render(SEND)


@pytest.mark.parametrize("created_at", [None, datetime(2026, 3, 29)])  # noqa: DTZ001  (what must be refused)
def test_a_time_without_zone_is_refused(created_at: datetime | None) -> None:
    with pytest.raises(InvalidInput):
        render(replace(SEND, created_at=created_at))


@pytest.mark.parametrize("thread", ["<abc@mail.example>", "abc@mail.example"])
def test_a_reply_is_threaded(thread: str) -> None:
    mail = parsed(replace(REPLY, thread=thread))
    assert (mail["In-Reply-To"], mail["References"]) == ("<abc@mail.example>", "<abc@mail.example>")
    assert mail["Subject"] == "Re: Hello Ann,"


def test_a_long_message_id_is_answered_unfolded() -> None:
    thread = f"<{'x' * 200}@mail.example>"
    assert f"\r\nReferences: {thread}\r\n".encode() in render(replace(REPLY, thread=thread))[0].body


@pytest.mark.parametrize("thread", ["<a b>", "<a>\r\nBcc: eve@example.org", "<ä@x>", "<<a>>", "x" * 901])
def test_a_thread_that_is_no_message_id_is_refused(thread: str) -> None:
    with pytest.raises(InvalidInput):
        render(replace(REPLY, thread=thread))


def test_a_reply_without_thread_is_plain_but_says_re() -> None:
    mail = parsed(replace(REPLY, thread=None))
    assert mail["In-Reply-To"] is None
    assert mail["Subject"] == "Re: Hello Ann,"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n\n  Water   the plants \nplease", "Water the plants"),
        ("x" * 78, "x" * 78),
        ("x" * 79, "x" * 77 + "…"),
        ("word " * 40, "word " * 14 + "word…"),
        ("a\0b", "ab"),
    ],
)
def test_the_default_subject_is_the_first_line(text: str, expected: str) -> None:
    message = replace(SEND, subject=None, text=text)
    assert subject(message) == expected
    assert len(subject(message)) <= 78
    assert parsed(message)["Subject"] == expected


@pytest.mark.parametrize("bad", ["a\r\nBcc: eve@example.org", "a\nb", "a\rb", "a\0b", "\ud83d"])
def test_a_subject_that_would_break_the_header_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInput):
        render(replace(SEND, subject=bad))


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "ann",
        "ann@",
        "Ann <ann@example.org>",
        "a@b, c@d",
        "ann@example.org\r\nBcc: e@x",
        "änn@example.org",
        "a@b>c",
        f"{'x' * 320}@y",
    ],
)
@pytest.mark.parametrize("field", ["address", "sender"])
def test_an_address_that_is_not_one_plain_address_is_refused(field: str, bad: str) -> None:
    changed = replace(SEND, address=bad) if field == "address" else replace(SEND, sender=bad)
    with pytest.raises(InvalidInput):
        render(changed)


@pytest.mark.parametrize(
    "address", [f"{'x' * 64}@{'y' * 200}.example", "o'hara+tag{1}@example.org", "=?utf-8?q?x?=@example.org"]
)
def test_an_address_is_written_as_it_is(address: str) -> None:
    (wire,) = render(replace(SEND, address=address))
    assert wire.to == address
    assert f"\r\nTo: {address}\r\n".encode() in wire.body


@pytest.mark.parametrize(
    "changed", [replace(SEND, intent="react"), replace(SEND, text=" \n"), replace(SEND, text="\ud83d")]
)
def test_what_has_no_form_as_mail_is_refused(changed: Message) -> None:
    with pytest.raises(InvalidInput):
        render(changed)


def test_an_id_that_would_break_the_message_id_is_refused() -> None:
    with pytest.raises(InvalidInput):
        render(replace(SEND, notification_id="x>\r\nBcc: e@x"))


@given(ONE_LINE)
def test_any_subject_of_one_line_arrives_unchanged(given_subject: str) -> None:
    (wire,) = render(replace(SEND, subject=given_subject or None))
    raw = re.search(rb"\r\nSubject: (.*?)\r\nAuto", wire.body, re.DOTALL)
    assert raw is not None
    lines = raw[1].split(b"\r\n")
    assert all(len(line) <= 76 for line in lines)
    assert all(line.startswith(b" ") for line in lines[1:])
    words = [line.strip() for line in lines]
    if words[0].startswith(b"=?utf-8?b?"):
        octets = b"".join(b64decode(word[10:-2]) for word in words)
        assert octets.decode() == given_subject
    else:
        assert raw[1].decode() == (given_subject or "Hello Ann,")


@given(TEXT)
def test_any_text_arrives_with_only_its_line_ends_changed(text: str) -> None:
    (wire,) = render(replace(SEND, text=text))
    assert wire == render(replace(SEND, text=text))[0]
    assert wire.body.isascii()
    assert not re.search(rb"\r(?!\n)|(?<!\r)\n", wire.body)
    assert all(len(line) <= 998 for line in wire.body.split(b"\r\n"))
    payload = message_from_bytes(wire.body, policy=default).get_payload(decode=True)
    assert isinstance(payload, bytes)
    arrived = payload.decode().replace("\r\n", "\n")
    asked = re.sub(r"\r\n|\r", "\n", text)
    assert arrived == (asked if asked.endswith("\n") else asked + "\n")
