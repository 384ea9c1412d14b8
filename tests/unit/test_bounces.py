"""Reading reports of mails that came back, in the shapes that mail servers write, and whatever a stranger writes."""

from email import message_from_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from messenger.inbound.mail.dsn import LIMIT_BYTES, SAID_CHARACTERS, Bounce, is_report, parse
from shared.display.visible import seen

OURS = "<n.0b6f7c1e-6a2d-4a57-9d52-3f1f8f6f2b10@house.example>"

POSTFIX = f"""\
Return-Path: <>
From: MAILER-DAEMON@relay.house.example (Mail Delivery System)
To: butlers@house.example
Subject: Undelivered Mail Returned to Sender
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status;
\tboundary="4XyZ12345.1700000000/relay.house.example"
Content-Transfer-Encoding: 8bit
Message-Id: <20261121101010.4XyZ@relay.house.example>

This is a MIME-encapsulated message.

--4XyZ12345.1700000000/relay.house.example
Content-Description: Notification
Content-Type: text/plain; charset=us-ascii

The mail could not be delivered to one recipient.

--4XyZ12345.1700000000/relay.house.example
Content-Description: Delivery report
Content-Type: message/delivery-status

Reporting-MTA: dns; relay.house.example
X-Postfix-Queue-ID: 4XyZ12345
X-Postfix-Sender: rfc822; butlers@house.example
Arrival-Date: Sat, 21 Nov 2026 10:10:09 +0000 (UTC)

Final-Recipient: rfc822; anna@example.org
Original-Recipient: rfc822;anna@example.org
Action: failed
Status: 5.1.1
Remote-MTA: dns; mx.example.org
Diagnostic-Code: smtp; 550 5.1.1 <anna@example.org>: Recipient address rejected:
    there is nobody of that name

--4XyZ12345.1700000000/relay.house.example
Content-Description: Undelivered Message Headers
Content-Type: text/rfc822-headers

Return-Path: <butlers@house.example>
Date: Sat, 21 Nov 2026 10:10:08 +0000
To: anna@example.org
Message-ID: {OURS}
Subject: dinner

--4XyZ12345.1700000000/relay.house.example--
"""
EXIM = f"""\
Return-path: <>
X-Failed-Recipients: Anna@Example.org
Auto-Submitted: auto-replied
From: Mail Delivery System <Mailer-Daemon@relay.house.example>
Content-Type: multipart/report; report-type=delivery-status; boundary=1700000000-eximdsn-12345
MIME-Version: 1.0
Message-Id: <E1rabc-0001@relay.house.example>

--1700000000-eximdsn-12345
Content-type: text/plain; charset=us-ascii

A message that you sent could not be delivered to all of its recipients.

--1700000000-eximdsn-12345
Content-type: message/delivery-status

Reporting-MTA: dns; relay.house.example

Action: failed
Final-Recipient: rfc822;Anna@Example.org
Status: 5.0.0
Remote-MTA: dns; mx.example.org
Diagnostic-Code: smtp; 552 mailbox is full

--1700000000-eximdsn-12345
Content-type: message/rfc822

Return-path: <butlers@house.example>
Message-ID: {OURS}
From: butlers@house.example
Content-Type: text/plain; charset="utf-8"

Dinner at eight?

--1700000000-eximdsn-12345--
"""
EXCHANGE = f"""\
From: <postmaster@corp.example>
To: <butlers@house.example>
Subject: Undeliverable: dinner
Content-Type: multipart/report; report-type=delivery-status;
 boundary="_d0e1f2a3-0000-4444-8888-abcdef012345_"
X-MS-Exchange-Message-Is-Ndr:
Message-ID: <11111111-2222-3333-4444-555555555555@MBX01.corp.example>
MIME-Version: 1.0

--_d0e1f2a3-0000-4444-8888-abcdef012345_
Content-Type: multipart/alternative; differences=Content-Type;
 boundary="_inner_"

--_inner_
Content-Type: text/plain; charset="us-ascii"
Content-Transfer-Encoding: quoted-printable

It couldn't be delivered.=

--_inner_
Content-Type: text/html; charset="us-ascii"

<p>It couldn't be delivered.</p>
--_inner_--

--_d0e1f2a3-0000-4444-8888-abcdef012345_
Content-Type: message/delivery-status

Reporting-MTA: dns;MBX01.corp.example
Received-From-MTA: dns;relay.house.example
Arrival-Date: Sat, 21 Nov 2026 10:10:09 +0000

Original-Recipient: rfc822;anna@example.org
Final-Recipient: rfc822;anna.new@corp.example
Action: failed
Status: 5.7.1
Diagnostic-Code: smtp;550 5.7.1 only people of this house may write to this address
X-Display-Name: Anna

--_d0e1f2a3-0000-4444-8888-abcdef012345_
Content-Type: message/rfc822

Received: from relay.house.example by MBX01.corp.example
Message-ID:
 {OURS}
Content-Type: text/plain

Dinner at eight?
--_d0e1f2a3-0000-4444-8888-abcdef012345_--
"""


def raw(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode()


@pytest.mark.parametrize(
    ("text", "status", "recipients", "said"),
    [
        (
            POSTFIX,
            "5.1.1",
            {"anna@example.org"},
            "550 5.1.1 <anna@example.org>: Recipient address rejected: there is nobody of that name",
        ),
        (EXIM, "5.0.0", {"anna@example.org"}, "552 mailbox is full"),
        (
            EXCHANGE,
            "5.7.1",
            {"anna@example.org", "anna.new@corp.example"},
            "550 5.7.1 only people of this house may write to this address",
        ),
    ],
    ids=["postfix", "exim", "exchange"],
)
def test_a_report_names_the_mail_the_recipient_and_the_reason(
    text: str, status: str, recipients: set[str], said: str
) -> None:
    assert parse(raw(text)) == (Bounce(OURS, frozenset(recipients), status, said),)
    assert parse(text.encode()) == parse(raw(text))


@pytest.mark.parametrize("action", ["delayed", "relayed", "delivered", "expanded", ""])
@pytest.mark.parametrize("text", [POSTFIX, EXIM, EXCHANGE], ids=["postfix", "exim", "exchange"])
def test_only_what_failed_came_back(text: str, action: str) -> None:
    assert parse(raw(text.replace("Action: failed", f"Action: {action}"))) == ()


@pytest.mark.parametrize(("status", "found"), [("4.4.1", 1), ("5.1.1 (nobody)", 1), ("2.0.0", 0), ("5", 0), ("", 0)])
def test_a_failure_for_good_or_after_days_of_trying_has_a_code_that_says_so(status: str, found: int) -> None:
    assert len(parse(raw(POSTFIX.replace("Status: 5.1.1", f"Status: {status}")))) == found


def test_of_several_recipients_each_stands_for_itself() -> None:
    more = "Final-Recipient: rfc822; {}@example.org\nAction: {}\nStatus: 5.2.2\n\n"
    blocks = "".join(more.format(*one) for one in (("bea", "failed"), ("cid", "delayed"), ("dan", "failed")))
    found = parse(raw(EXIM.replace("Action: failed\nFinal", f"{blocks}Action: failed\nFinal")))
    assert [min(one.recipients) for one in found] == ["bea@example.org", "dan@example.org", "anna@example.org"]


@pytest.mark.parametrize(
    "without",
    ["report-type=delivery-status;", "message/delivery-status", "text/rfc822-headers", f"Message-ID: {OURS}"],
)
def test_what_lacks_a_piece_is_no_report(without: str) -> None:
    assert without in POSTFIX
    assert parse(raw(POSTFIX.replace(without, "x"))) == ()


def test_the_reports_own_message_id_is_not_the_mails() -> None:
    assert parse(raw(POSTFIX))[0].message_id == OURS != message_from_bytes(raw(POSTFIX))["Message-Id"]


def test_headers_that_came_encoded_are_decoded() -> None:
    encoded = POSTFIX.replace(
        "Content-Type: text/rfc822-headers\n",
        "Content-Type: text/rfc822-headers\nContent-Transfer-Encoding: quoted-printable\n",
    ).replace(OURS, OURS.replace("@", "=40"))
    assert parse(raw(encoded))[0].message_id == OURS


def test_what_is_said_is_cut_and_shows_what_hides() -> None:
    evil = POSTFIX.replace("550 5.1.1", "550\x1b[2J\u202e\x00").replace("there is nobody", "x" * 5000)
    (found,) = parse(raw(evil))
    assert found.said.startswith("550<U+001B>[2J<U+202E><U+0000> <anna@")
    assert len(found.said) < SAID_CHARACTERS + 40


def test_a_report_is_read_to_its_limit_and_no_further() -> None:
    long = EXIM.replace("Dinner at eight?", "Dinner at eight? " * 100_000)
    assert len(parse(raw(long))) == 1
    late = EXIM.replace("A message that", "A message that " * 100_000)
    assert len(raw(late)) > LIMIT_BYTES
    assert parse(raw(late)) == ()


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b'Content-Type: multipart/report; boundary=b;\r\n report-type="Delivery-Status"\r\n\r\n', True),
        (b"content-type: Multipart/Report; REPORT-TYPE=delivery-status\r\n\r\n", True),
        (b"Content-Type: multipart/report; report-type=disposition-notification\r\n\r\n", False),
        (b"Content-Type: multipart/mixed; report-type=delivery-status\r\n\r\n", False),
        (b"Content-Type: text/plain\r\n\r\n", False),
        (b"", False),
    ],
)
def test_a_report_is_known_by_its_header(header: bytes, found: bool) -> None:  # noqa: FBT001  # a column of the table
    assert is_report(header) is found


PIECES = st.sampled_from(
    [b"\r\n", b"\n\n", b";", b"''", b"*0*=", b"*1=x", b"=?utf-8?q?=ff?=", b"\0", b"\xff", b'"', b"--", b"<", b" \t",
     b"boundary*=utf-9''%zz", b"Content-Transfer-Encoding: base64\n", b"Content-Transfer-Encoding: x-uuencode\n",
     b"Message-ID: =?x?=\n", b"Status: 5.1.1\n", b"Action: failed\n", b"\x85", b"\xe2\x80\xa8", b"(" * 50]
)  # fmt: skip


@given(
    st.sampled_from([raw(POSTFIX), raw(EXIM), raw(EXCHANGE), b""]),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 60), PIECES | st.binary(max_size=20)), max_size=6),
)
@example(b"Content-Type: multipart/report; report-type=delivery-status\n\n--\n", [])
@example(b"Content-Type: multipart/report" + b";" * 200_000, [])
def test_nothing_a_stranger_writes_breaks_it(text: bytes, changes: list[tuple[int, int, bytes]]) -> None:
    for at, gone, put in changes:
        text = text[:at] + put + text[at + gone :]
    for found in parse(text):
        assert found.message_id.isascii()
        assert found.message_id.startswith("<")
        assert seen(found.said) == found.said
        assert found.status[0] in "45"
    is_report(text[:200])


@pytest.mark.parametrize(
    "parameter",
    [
        "boundary*0*=utf%00''b",
        "boundary*0*=idna''..",
        "boundary*0*=punycode''%ff",
        "boundary*" + "1" * 5000 + "*=x",
        "boundary*=a; boundary*0=b",
    ],
)
def test_a_header_that_the_library_cannot_read_is_no_report(parameter: str) -> None:
    content = f"Content-Type: multipart/report; report-type=delivery-status; {parameter}\n"
    is_report(content.encode())
    assert parse(f"{content}\n--b\n\nwords\n--b--\n".encode()) == ()
