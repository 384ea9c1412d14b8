"""One clean token or a refusal: what a recipient may be, and the one form it is kept in."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.addresses import Address, canonical, folded, parse_recipient
from shared.channels.telegram import Thread, is_private_chat, parse_thread
from shared.errors import InvalidInput

ACCEPTED = {
    "owner@example.org": Address("email", "owner@example.org"),
    "  owner@example.org ": Address("email", "owner@example.org"),
    "Owner.Name+tag@Example.ORG": Address("email", "Owner.Name+tag@example.org"),
    "o'brien!#$%&*/=?^_`{|}~-@a.b": Address("email", "o'brien!#$%&*/=?^_`{|}~-@a.b"),
    "12345@example.org": Address("email", "12345@example.org"),
    "a@xn--bcher-kva.example": Address("email", "a@xn--bcher-kva.example"),
    "a@sub-domain.example.co.uk": Address("email", "a@sub-domain.example.co.uk"),
    "a@1.example": Address("email", "a@1.example"),
    "l" * 64 + "@example.org": Address("email", "l" * 64 + "@example.org"),
    "a@" + "d" * 63 + ".org": Address("email", "a@" + "d" * 63 + ".org"),
    "1": Address("telegram", "1"),
    " 123456789 ": Address("telegram", "123456789"),
    "-1001234567890": Address("telegram", "-1001234567890"),
    "9223372036854775807": Address("telegram", "9223372036854775807"),
    "-9223372036854775807": Address("telegram", "-9223372036854775807"),
    "5000000000000001": Address("telegram", "5000000000000001"),
    "@durov": Address("telegram", "@durov"),
    "@Some_Body_9": Address("telegram", "@Some_Body_9"),
    "@" + "a" * 32: Address("telegram", "@" + "a" * 32),
}

LINE_BREAKS = [
    "owner@example.org\r\nBcc: evil@example.net",
    "owner@example.org\nBcc: evil@example.net",
    "owner@example.org\rBcc: evil@example.net",
    "owner@example.org\r\n",
    "owner@example.org\n",
    "\nowner@example.org",
    "\r\n.\r\nowner@example.org",
    "owner\n@example.org",
    "owner@example.org\0",
    "\0owner@example.org",
    "owner@example.org\0.evil.example.net",
    "123456789\n",
    "123456789\r\n987654321",
    "\n123456789",
    "@durov\n",
    "@durov\0",
    "   \n  ",
    "a" * 400 + "\n",
]
LISTS = [
    "a@example.org,b@example.net",
    "a@example.org, b@example.net",
    "evil@example.net,owner@corp.example",
    "a@example.org;b@example.net",
    "a@example.org; b@example.net",
    "a@example.org b@example.net",
    "123,456",
    "123;456",
    "123 456",
    "@durov,@other",
    "@durov @other",
    "a@example.org,",
    ",a@example.org",
    ";a@example.org",
    "a@example.org,123456789",
    "friends:a@example.org,b@example.net;",
    "undisclosed-recipients:;",
]
DISPLAY_NAMES = [
    "Owner <evil@example.net>",
    '"Owner" <evil@example.net>',
    "<owner@example.org>",
    "owner@example.org>evil@example.net",
    "owner@example.org<evil@example.net",
    "owner@example.org <evil@example.net>",
    "<@relay.example:owner@example.org>",
    "@relay.example:owner@example.org",
    "@a.example,@b.example:owner@example.org",
    "mailto:owner@example.org?bcc=evil@example.net",
    "owner@example.org?cc=evil@example.net",
    '"owner@example.org"@evil.example',
    '"owner"@example.org',
    '"ow ner"@example.org',
    '"owner\\"@example.org',
    "ow\\ner@example.org",
    "owner(comment)@example.org",
    "(comment)owner@example.org",
    "owner@(comment)example.org",
    "owner@example.org(comment)",
    "owner@example.org (Owner)",
    "owner@[127.0.0.1]",
    "owner@[IPv6:::1]",
    "Owner owner@example.org",
]
NOT_ASCII = [
    "\uff4fwner@example.org",  # full-width o
    "owner\uff20example.org",  # full-width commercial at
    "owner@example\uff0eorg",  # full-width full stop
    "owner@example\u3002org",  # ideographic full stop, a dot to IDNA
    "owner@example\uff61org",  # half-width ideographic full stop
    "\uff11\uff12\uff13\uff14\uff15",  # full-width digits
    "\u0661\u0662\u0663",  # Arabic-Indic digits
    "\u0967\u0968\u0969",  # Devanagari digits
    "12\u00b2",  # superscript two
    "\u2212100123",  # minus sign
    "\uff0d100123",  # full-width hyphen-minus
    "\u200bowner@example.org",  # zero width space
    "owner\u200b@example.org",
    "owner@example.org\u200b",
    "own\u200cer@example.org",  # zero width non-joiner
    "own\u200der@example.org",  # zero width joiner
    "own\u2060er@example.org",  # word joiner
    "\ufeffowner@example.org",  # byte order mark
    "own\u00ader@example.org",  # soft hyphen
    "\u202eowner@example.org",  # right-to-left override
    "owner@example.org\u202c",
    "\u2066owner@example.org\u2069",  # isolates
    "\u200fowner@example.org",  # right-to-left mark
    "\u061cowner@example.org",  # Arabic letter mark
    "\u043ewner@example.org",  # Cyrillic o
    "owner@ex\u0430mple.org",  # Cyrillic a
    "own\u0435r@example.org",  # Cyrillic e
    "\u03bfwner@example.org",  # Greek omicron
    "o\u0455ner@example.org",  # Cyrillic dze
    "\u017fam@example.org",  # long s, an s once folded
    "mi\u212ae@example.org",  # Kelvin sign, a k once lowered
    "\u0130lker@example.org",  # dotted capital I
    "stra\u00dfe@example.org",  # sharp s
    "owner@b\u00fccher.example",
    "owner@bu\u0308cher.example",
    "\u00f6wner@example.org",
    "\u00a0owner@example.org",  # no-break space
    "owner@example.org\u3000",  # ideographic space
    "owner@example.org\u2028",  # line separator
    "owner@example.org\u2029evil@example.net",
    "owner@example.org\u0085",  # next line
    "@dur\u043ev",
    "@durov\u200b",
    "\uff20durov",
    "123\u200b",
    "\U0001d428wner@example.org",  # mathematical bold o
    "\U0001f600@example.org",
    "owner@\U0001f600.example",
    "\udcff@example.org",  # lone surrogate
    "owner@example.org\uff0cevil@example.net",  # full-width comma
    "owner@example.org\uff1bevil@example.net",  # full-width semicolon
]
CONTROL = [
    "owner\t@example.org",
    "\towner@example.org",
    "owner@example.org\t",
    "owner@example.org\x0b",
    "owner@example.org\x0c",
    "owner@example.org\x1b[2K",
    "own\x08er@example.org",
    "owner@example.org\x7f",
    "\x01owner@example.org",
    "123\x1f",
    "owner @example.org",
    "owner@ example.org",
    "owner@example .org",
    "1 2",
    "- 123",
    "@ durov",
]
MALFORMED = [
    "",
    " ",
    "     ",
    "@",
    "@@",
    "a@",
    "a@.",
    "@.org",
    "owner",
    "owner@localhost",
    "owner@example",
    "owner@example.org.",
    "owner@.example.org",
    "owner@example..org",
    "owner@-example.org",
    "owner@example-.org",
    "owner@exam_ple.org",
    "owner@example.org:25",
    "owner@example.org/x",
    "owner@example.org%evil.example",
    "owner@127.0.0.1",
    "owner@1.2",
    ".owner@example.org",
    "owner.@example.org",
    "own..er@example.org",
    "owner@@example.org",
    "owner@example.org@evil.example",
    "a@b@c.example",
    "l" * 65 + "@example.org",
    "a@" + "d" * 64 + ".org",
    "a@" + ".".join(["d" * 49] * 5) + ".example",
    "a" * 321,
    "1" * 400,
    " " * 330 + "1",
    "0",
    "-0",
    "00",
    "007",
    "-012",
    "+123456789",
    "+49 170 1234567",
    "--5",
    "-",
    "+",
    "1.0",
    "1e5",
    "0x1f",
    "1_000",
    "9223372036854775808",
    "-9223372036854775808",
    "99999999999999999999",
    "telegram:123456789",
    "tg://user?id=123456789",
    "https://t.me/durov",
    "t.me/durov",
    "@abcd",
    "@1durov",
    "@_durov",
    "@dur-ov",
    "@dur.ov",
    "@" + "a" * 33,
    "@durov/5",
    "123:45",
    "None",
    "null",
    "{}",
    "*",
    "*@example.org",
    "%",
    "'; DROP TABLE contacts; --",
    "$(id)@example.org",
    "me",
]
# A star is an ordinary letter before the @; it must stay one and never become a pattern.
LITERAL = {"*@example.org": Address("email", "*@example.org")}

NASTY = [
    *LINE_BREAKS,
    *LISTS,
    *DISPLAY_NAMES,
    *NOT_ASCII,
    *CONTROL,
    *(text for text in MALFORMED if text not in LITERAL),
]


def test_the_corpus_is_large_and_without_repeats() -> None:
    assert len(NASTY) == len(set(NASTY)) >= 120


@pytest.mark.parametrize(("text", "address"), [*ACCEPTED.items(), *LITERAL.items()])
def test_a_clean_token_is_one_address(text: str, address: Address) -> None:
    assert parse_recipient(text) == address


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_a_nasty_string_is_refused_in_two_sentences(text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_recipient(text)
    said = refusal.value
    assert said.code == "validation_error"
    for sentence in (said.message, said.remedy):
        assert sentence.endswith(".")
        assert sentence.isascii()
        assert sentence.isprintable()


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_a_nasty_string_is_no_stored_email_either(text: str) -> None:
    with pytest.raises(InvalidInput):
        canonical("email", text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a@example.org\n", "line break"),
        ("a@example.org,b@example.org", "comma"),
        ("a@example.org;b@example.org", "semicolon"),
        ("<a@example.org>", "angle bracket"),
        ('"a"@example.org', "quotation mark"),
        ("a(b)@example.org", "parenthesis"),
        ("\u202ea@example.org", "U+202E"),
        ("\uff4fwner@example.org", "non-ASCII character U+FF4F"),
        ("a\t@example.org", "U+0009"),
        ("a b@example.org", "space inside"),
        ("a" * 321, "longer than 320"),
        ("  ", "empty"),
        ("a@b@c.example", "more than one @"),
        ("l" * 65 + "@example.org", "before the @"),
        ("a@localhost", "after the @"),
        ("a@1.2.3.4", "number"),
        ("+123456", "chat id"),
        ("@abcd", "username"),
        ("mother", "neither"),
    ],
)
def test_the_refusal_names_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_recipient(text)
    assert reason in refusal.value.message


@given(st.text(max_size=40) | st.text(alphabet=string.printable, max_size=40) | st.emails())
@example("owner@Example.org")
def test_what_parses_is_ascii_and_parses_to_itself(text: str) -> None:
    try:
        address = parse_recipient(text)
    except InvalidInput:
        return
    assert address.value.isascii()
    assert address.value.isprintable()
    assert not set(address.value) & set(' ,;<>"()[]\\')
    assert parse_recipient(address.value) == address
    assert canonical(address.channel, text) == address.value
    assert folded(address.value) == folded(parse_recipient(folded(address.value)).value)


@given(st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1).filter(bool))
def test_every_chat_id_is_its_plain_number(number: int) -> None:
    assert parse_recipient(f" {number} ") == Address("telegram", str(number))
    assert is_private_chat(str(number)) == (number > 0)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("telegram", "telegram:123456789", "123456789"),
        ("telegram", " telegram:123456789 ", "123456789"),
        ("telegram", "Telegram: 123456789", "123456789"),
        ("telegram", " 123456789", "123456789"),
        ("telegram", "telegram:@durov", "@durov"),
        ("email", " Owner@Example.ORG ", "Owner@example.org"),
    ],
)
def test_a_stored_value_is_canonical(kind: str, value: str, stored: str) -> None:
    assert canonical(kind, value) == stored
    assert canonical(kind, stored) == stored


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("telegram", "owner@example.org"),
        ("telegram", "telegram:telegram:1"),
        ("telegram", "telegram:"),
        ("telegram", "telegram:1\n"),
        ("telegram", "\u0442elegram:1"),
        ("email", "123456789"),
        ("email", "@durov"),
        ("email", "email:owner@example.org"),
        ("phone", "123456789"),
        ("Email", "owner@example.org"),
        ("", "1"),
    ],
)
def test_a_value_of_another_type_is_not_stored(kind: str, value: str) -> None:
    with pytest.raises(InvalidInput):
        canonical(kind, value)


def test_a_lookup_folds_ascii_letters_and_nothing_else() -> None:
    assert folded("OWNER@Example.org") == folded("owner@example.ORG")
    assert folded("@Durov") == "@durov"
    assert folded("mi\u212ae@\u0130") == "mi\u212ae@\u0130"


@pytest.mark.parametrize("value", ["-5", "0", "@durov", "", "+5", "05", "5 ", "\u0665", "9223372036854775808", "5\n"])
def test_what_is_no_positive_number_is_no_private_chat(value: str) -> None:
    assert not is_private_chat(value)


@pytest.mark.parametrize(
    ("text", "thread"),
    [("123:45", Thread("123", 45)), (" -1001234567890:1 ", Thread("-1001234567890", 1))],
)
def test_a_thread_is_a_chat_and_a_message(text: str, thread: Thread) -> None:
    assert parse_thread(text) == thread


@pytest.mark.parametrize(
    "text",
    ["", ":", "123", "123:", ":45", "123:0", "123:-4", "123:045", "0:1", "123:45:6", "123 : 45", "123:45\n",
     "@durov:45", "a@example.org:45", "123:2147483648", "9223372036854775808:1", "\u0661:1", "123:\uff11"],
)  # fmt: skip
def test_what_is_no_thread_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_thread(text)
