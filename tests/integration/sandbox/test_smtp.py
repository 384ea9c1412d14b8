"""The mail sink, seen by smtplib, aiosmtplib and a raw socket."""

import asyncio
import email.policy
import smtplib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from email.message import EmailMessage
from pathlib import Path

import aiosmtplib
import pytest
import pytest_asyncio

from messenger.sandbox.app import MailSink
from tests.integration.sandbox_runner import Running, running
from tests.rig.tls import self_signed
from tests.rig.waiting import LONGEST

MESSAGE_ID = "<d.1@sandbox.test>"


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as box:
        yield box


def letter(text: str = "Hello\n.a dot first\nGrüße\n", subject: str = "Büro") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Butlers <b@sandbox.test>", "owner@sandbox.test", subject
    message["Message-ID"] = MESSAGE_ID
    message.set_content(text)
    return message


async def talk(box: Running, work: Callable[[smtplib.SMTP], object]) -> object:
    """What `work` answers, done with smtplib in a thread."""

    def connected() -> object:
        with smtplib.SMTP("127.0.0.1", box.smtp_port, timeout=LONGEST) as client:
            return work(client)

    return await asyncio.to_thread(connected)


async def send(box: Running, text: str = "Hello\n") -> object:
    return await talk(box, lambda client: client.send_message(letter(text)))


async def arm(box: Running, stage: str, fault: str, **more: object) -> None:
    await box.api("faults", channel="email", stage=stage, fault=fault, **more)


async def test_what_smtplib_sends_is_journalled_byte_for_byte(box: Running) -> None:
    message = letter()
    await talk(box, lambda client: client.send_message(message, to_addrs=["owner@sandbox.test", "dana@sandbox.test"]))
    lines = await box.journal("mail")
    assert [line["to"] for line in lines] == ["owner@sandbox.test", "dana@sandbox.test"]
    assert {line["provider_id"] for line in lines} == {MESSAGE_ID}
    payload = lines[0]["payload"]
    assert isinstance(payload, dict)
    assert (payload["from"], payload["message_id"], payload["subject"]) == ("b@sandbox.test", MESSAGE_ID, "Büro")
    assert payload["raw"].encode() == message.as_bytes(policy=email.policy.SMTP)


async def test_bytes_that_are_no_utf8_survive(box: Running) -> None:
    raw = b"Subject: caf\xe9\r\n\r\n\xff\xfe\r\n"
    await talk(box, lambda client: client.sendmail("a@b.test", ["c@d.test"], raw))
    [line] = await box.journal("mail")
    assert isinstance(line["payload"], dict)
    assert line["payload"]["raw"].encode(errors="surrogateescape") == raw
    assert line["provider_id"], "a mail without a Message-ID gets one"


async def test_aiosmtplib_logs_in_and_sends_over_one_connection(box: Running) -> None:
    async with aiosmtplib.SMTP(
        hostname="127.0.0.1", port=box.smtp_port, username="me", password="secret", start_tls=False
    ) as client:
        for _ in range(3):
            await client.send_message(letter())
    assert len(await box.journal("mail")) == 3
    assert "secret" not in (box.sandbox.home / "sandbox" / "journal.jsonl").read_text()


async def test_a_connection_left_open_does_not_keep_the_sandbox_from_ending(tmp_path: Path) -> None:
    async with running(tmp_path) as box:
        reader, writer = await asyncio.open_connection("127.0.0.1", box.smtp_port)
        assert (await reader.readline()).startswith(b"220 ")
        began = time.monotonic()
    assert time.monotonic() - began < LONGEST
    assert await asyncio.wait_for(reader.read(), LONGEST) == b""
    writer.close()


def login_and_send(client: smtplib.SMTP) -> object:
    """The whole conversation; smtplib alone would forgive a refused EHLO by saying HELO."""
    code, text = client.ehlo()
    if code >= 400:
        raise smtplib.SMTPHeloError(code, text)
    client.login("me", "secret")
    return client.send_message(letter())


async def outcome(box: Running) -> int:
    """The code the client was refused with, 0 for a lost connection, 250 for success."""
    try:
        await talk(box, login_and_send)
    except smtplib.SMTPResponseException as error:
        return error.smtp_code
    except smtplib.SMTPRecipientsRefused as error:
        return int(next(iter(error.recipients.values()))[0])
    except (smtplib.SMTPServerDisconnected, ConnectionError):
        return 0
    return 250


@pytest.mark.parametrize("stage", ["connect", "ehlo", "auth", "mail", "rcpt", "data", "text", "dot"])
@pytest.mark.parametrize(("fault", "value"), [("4xx", 451), ("5xx", 552), ("drop", 0)])
async def test_every_stage_can_refuse_or_drop_and_then_nothing_is_journalled(
    box: Running, stage: str, fault: str, value: int
) -> None:
    # smtplib tries a second mechanism when one is refused.
    more = {"times": 2 if stage == "auth" and value else 1} | ({"value": value} if value else {})
    await arm(box, stage, fault, **more)
    assert await outcome(box) == value
    assert await box.journal() == []
    assert await outcome(box) == 250
    assert len(await box.journal("mail")) == 1


@pytest.mark.parametrize("fault", ["accept_reset", "accept_hang"])
async def test_after_the_dot_it_can_accept_and_not_say_so(box: Running, fault: str) -> None:
    await arm(box, "dot", fault)
    sending = asyncio.create_task(send(box))
    await box.until_journalled("mail")
    if fault == "accept_hang":
        await asyncio.sleep(0.1)
        assert not sending.done()
        box.sandbox.stop()
    with pytest.raises((smtplib.SMTPServerDisconnected, ConnectionError)):
        await sending
    assert len(await box.journal("mail")) == 1


async def test_slow_takes_its_time_and_accepts(box: Running) -> None:
    await arm(box, "dot", "slow", value=0.3)
    began = time.monotonic()
    await send(box)
    assert time.monotonic() - began >= 0.3
    assert len(await box.journal("mail")) == 1


async def test_a_fault_by_text_sees_through_the_encoding(box: Running) -> None:
    await arm(box, "dot", "5xx", match="Grüße")
    with pytest.raises(smtplib.SMTPDataError):
        await send(box, "viele Grüße\n")
    await send(box, "regards\n")
    with pytest.raises(smtplib.SMTPDataError):
        await send(box, "Grüße again\n")
    assert len(await box.journal("mail")) == 1


async def converse(box: Running, *lines: str) -> list[str]:
    """The reply to each line, the greeting first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", box.smtp_port)
    replies = [(await reader.readline()).decode()]
    for line in lines:
        writer.write(line.encode() + b"\r\n")
        reply = await asyncio.wait_for(reader.readline(), LONGEST)
        while reply[3:4] == b"-":
            reply = await reader.readline()
        replies.append(reply.decode())
    writer.close()
    return [reply[:3] for reply in replies]


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        (["MAIL FROM:<a@b.test>"], ["220", "503"]),
        (["EHLO x", "RCPT TO:<a@b.test>"], ["220", "250", "503"]),
        (["EHLO x", "MAIL FROM:<a@b.test>", "DATA"], ["220", "250", "250", "503"]),
        (["EHLO x", "MAIL FROM:<>", "RCPT TO:<a@b.test>, <c@d.test>"], ["220", "250", "250", "501"]),
        (["EHLO x", "MAIL FROM:<>", "RCPT TO:<a@b.test,c@d.test>"], ["220", "250", "250", "501"]),
        (["EHLO x", "MAIL FROM:<>", "RCPT TO:Owner <a@b.test>"], ["220", "250", "250", "501"]),
        (["EHLO x", "MAIL FROM:<>", "RCPT TO:<>"], ["220", "250", "250", "501"]),
        (["EHLO x", "MAIL FROM:<a@b.test> SIZE=10 BODY=8BITMIME", "RSET", "NOOP"], ["220", "250", "250", "250", "250"]),
        (["EHLO x", "STARTTLS", "AUTH CRAM-MD5", "WHAT", "QUIT"], ["220", "250", "454", "504", "500", "221"]),
        (["EHLO x", "AUTH PLAIN !!!", "AUTH PLAIN AGEAYg=="], ["220", "250", "501", "235"]),
    ],
)
async def test_the_sequence_and_the_grammar_are_checked(box: Running, lines: list[str], codes: list[str]) -> None:
    assert await converse(box, *lines) == codes


async def test_a_bare_line_feed_does_not_end_the_text(box: Running) -> None:
    smuggled = "hello\n.\nMAIL FROM:<evil@x.test>\r\n."
    codes = await converse(box, "EHLO x", "MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA", smuggled)
    assert codes == ["220", "250", "250", "250", "354", "250"]
    [line] = await box.journal("mail")
    assert isinstance(line["payload"], dict)
    assert line["payload"]["raw"] == "hello\n.\nMAIL FROM:<evil@x.test>\r\n"


async def test_a_client_that_leaves_before_the_dot_has_sent_nothing(box: Running) -> None:
    await converse(box, "EHLO x", "MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA")
    await asyncio.sleep(0.05)
    assert await box.journal() == []


async def test_starttls_is_offered_and_works_with_a_certificate(tmp_path: Path) -> None:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = self_signed(tmp_path)
    server_side.load_cert_chain(certificate)
    async with running(tmp_path, MailSink(tls=server_side)) as box:
        trusting = ssl.create_default_context(cafile=str(certificate))
        async with aiosmtplib.SMTP(
            hostname="localhost", port=box.smtp_port, start_tls=True, tls_context=trusting
        ) as client:
            await client.send_message(letter())
        assert len(await box.journal("mail")) == 1
