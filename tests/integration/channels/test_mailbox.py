"""The Messenger and a real mailbox: a mail is sent, its report comes in, and reading leaves the mailbox as it was."""

import asyncio
import re
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest

from butlers.butler import Context
from messenger.cards import kinds
from messenger.channels.smtp import Relay
from messenger.daemon import build
from messenger.inbound import reader
from messenger.inbound.mail.dsn import Bounce
from messenger.inbound.mailbox import Found, Seen, account_from
from messenger.inbound.mailbox import Mailbox as Box
from messenger.inbound.reader import Source
from shared.config.settings import Secret
from shared.config.timings import STANDARD
from shared.errors import Misconfigured, Unavailable
from tests.integration.house import House
from tests.integration.mailboxes import Mailbox, mailbox
from tests.integration.workers import in_queue, work
from tests.rig.waiting import LONGEST, until

REPORT = """\
From: MAILER-DAEMON@relay.example
Content-Type: {kind}
Subject: Undelivered

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; relay.example

Final-Recipient: rfc822; {recipient}
Action: {action}
Status: 5.1.1
Diagnostic-Code: smtp; 550 nobody of that name

--b
Content-Type: text/rfc822-headers

Message-ID: {message_id}
--b--
"""
KIND = "multipart/report; report-type=delivery-status; boundary=b"
RECEIPT = """
SELECT p.provider_id, d.address FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
WHERE d.notification_id = $1
"""
ACCOUNTS = "SELECT account, last_uid, holder, lease_until > clock_timestamp() AS held FROM messenger.mailboxes"
TOLD = "SELECT id FROM messenger.deliveries WHERE about = $1"


def report(message_id: str, recipient: str, *, kind: str = KIND, action: str = "failed") -> bytes:
    text = REPORT.format(message_id=message_id, recipient=recipient, kind=kind, action=action)
    return text.replace("\n", "\r\n").encode()


def seen(found: Found | None = None) -> Seen:
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    return Seen(found.uidvalidity, found.last_uid, yesterday) if found else Seen(0, 0, yesterday)


def looked(account: Relay, before: Seen) -> Found:
    box = Box(account)
    try:
        return box.take(before)
    finally:
        box.close()


def take(box: Mailbox, before: Found | None = None, *, tls: bool = False) -> Found:
    return looked(account_from(box.url(tls=tls)), seen(before))


def ours() -> str:
    return f"<n.{uuid4()}@sandbox.test>"


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mailbox() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["starttls", "tls"])
def test_reports_are_read_and_the_mailbox_stays_as_it_was(box: Mailbox, tls: bool) -> None:  # noqa: FBT001
    before = take(box, tls=tls)
    letter, message_id = b"Subject: hello\r\n\r\nwords\r\n", ours()
    lie = [box.put(letter), box.put(report(message_id, "anna@example.org")), box.put(letter)]
    lie.append(box.put(report(ours(), "anna@example.org", kind="multipart/mixed; boundary=b")))
    found = take(box, before, tls=tls)
    said = Bounce(message_id, frozenset({"anna@example.org"}), "5.1.1", "550 nobody of that name")
    assert [bounce for _, bounce in found.items] == [said]
    assert (found.whole, found.last_uid) == (True, before.last_uid + 4)
    assert all(path.exists() for path in lie), "somebody took the letters for seen"
    assert take(box, found, tls=tls).items == ()


@pytest.mark.slow
def test_what_is_older_than_a_day_is_left_alone_and_a_new_numbering_begins_anew(box: Mailbox) -> None:
    message_id = ours()
    box.put(report(message_id, "anna@example.org"))
    late = Seen(0, 0, datetime.now(UTC).date() + timedelta(days=2))
    assert looked(account_from(box.url()), late).items == ()
    found = take(box)
    # The latter as where a copy of the mailbox was put back, which gives known numbers to other mails.
    for validity, last_uid in ((found.uidvalidity + 1, found.last_uid), (found.uidvalidity, found.last_uid + 3)):
        other = looked(account_from(box.url()), Seen(validity, last_uid, seen().since))
        assert message_id in {bounce.message_id for _, bounce in other.items if isinstance(bounce, Bounce)}


@pytest.mark.slow
def test_a_server_on_this_computer_needs_no_encryption() -> None:
    with mailbox(ssl="no") as plain:
        plain.put(report(ours(), "anna@example.org"))
        assert len(take(plain).items) == 1


@pytest.mark.slow
def test_a_login_that_is_refused_is_said_without_it(box: Mailbox) -> None:
    with pytest.raises(Misconfigured) as refused:
        looked(account_from(box.url(password="not-it-either")), seen())
    assert str(refused.value) == ("The mailbox server rejects the login. Correct the login in BUTLERS_IMAP_URL.")


@contextmanager
def listening(answers: Mapping[bytes, bytes | None]) -> Iterator[tuple[int, list[bytes]]]:
    """A server that greets, answers these commands, or not at all, and notes every line it gets."""
    got: list[bytes] = []

    class Line(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"* OK ready\r\n")
            for line in self.rfile:
                got.append(line)
                tag, _, command = line.strip().partition(b" ")
                answer = answers.get(command.split(b" ")[0], b"")
                if answer is not None:
                    self.wfile.write(answer + tag + b" OK done\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Line) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1], got
        finally:
            server.shutdown()
            thread.join()


def test_the_password_crosses_no_network_in_plain() -> None:
    with listening({b"CAPABILITY": b"* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\n"}) as (port, got):
        # Not in a form that is known for this computer's own.
        account = account_from(f"imap://house:secret@127.1:{port}")
        with pytest.raises(Misconfigured, match="passwords are not sent unencrypted") as refused:
            looked(account, seen())
    assert "imaps://" in refused.value.remedy
    assert {line.split()[1] for line in got} == {b"CAPABILITY", b"LOGOUT"}


def test_it_is_examined_and_never_selected() -> None:
    answers = {b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n", b"EXAMINE": b"* OK [UIDVALIDITY 7] x\r\n* 0 EXISTS\r\n"}
    with listening({**answers, b"UID": b"* SEARCH\r\n"}) as (port, got):
        found = looked(account_from(f"imap://house:se%22cret@127.0.0.1:{port}"), Seen(7, 41, seen().since))
    assert found == Found(7, 41, (), whole=True)
    words = [line.split(b" ", 1)[1].strip() for line in got]
    assert words[1:4] == [b'LOGIN "house" "se\\"cret"', b"CAPABILITY", b"EXAMINE INBOX"]
    assert re.fullmatch(rb"UID SEARCH UID 42:\* SINCE \d{1,2}-[A-Z][a-z]{2}-\d{4}", words[4])


def test_a_server_that_names_idle_last_is_waited_on() -> None:
    answers = {b"CAPABILITY": b"* CAPABILITY IMAP4rev1 IDLE\r\n", b"EXAMINE": b"* OK [UIDVALIDITY 7] x\r\n"}
    waits = {b"UID": b"* SEARCH\r\n", b"IDLE": b"+ idling\r\n", b"": b"IDLE1 OK done\r\n"}
    with listening({**answers, **waits}) as (port, _):
        box = Box(account_from(f"imap://house:secret@127.0.0.1:{port}"))
        found = box.take(Seen(7, 41, seen().since), wait=0.1)
        box.close()
    assert found.woken


def test_what_a_server_says_shows_no_password() -> None:
    answers = {b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n* BYE you said s3cret-words\r\n"}
    with listening(answers) as (port, _), pytest.raises(Unavailable, match=r"\*\*\*") as failed:
        looked(account_from(f"imap://house:s3cret-words@127.0.0.1:{port}"), seen())
    assert "s3cret-words" not in str(failed.value)


@pytest.mark.parametrize(
    ("command", "nonsense"),
    [
        (b"CAPABILITY", b""),
        (b"EXAMINE", b"* OK [UIDVALIDITY many] x\r\n"),
        (b"EXAMINE", b"nonsense\r\n"),
        (b"UID", b"* SEARCH one two\r\n"),
        (b"UID", b"* SEARCH 1\r\n* 1 FETCH (BODY[] {nine}\r\n* BYE\r\n\0"),
        (b"UID", b"* SEARCH 1\r\n* 1 FETCH (BODY[] {900000000000}\r\n"),
    ],
)
def test_nonsense_is_said_and_raises_nothing_else(command: bytes, nonsense: bytes) -> None:
    answers = {b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n", b"EXAMINE": b"* OK [UIDVALIDITY 7] x\r\n"}
    told = {**answers, b"UID": b"* SEARCH\r\n", command: nonsense}
    with listening(told) as (port, _), pytest.raises(Unavailable, match="cannot be read"):
        looked(account_from(f"imap://house:x@127.0.0.1:{port}"), seen())


async def test_a_look_at_a_server_that_falls_silent_ends_when_the_daemon_stops() -> None:
    with listening({b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n", b"EXAMINE": None}) as (port, got):
        box, stopping = Box(account_from(f"imap://house:x@127.0.0.1:{port}")), asyncio.Event()
        looking = asyncio.ensure_future(reader.taken(box, seen(), stopping, STANDARD.mailbox_look))
        await until(lambda: any(b"EXAMINE" in line for line in got))
        stopping.set()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(looking, LONGEST)


async def once(context: Context, account: Relay) -> int:
    """One look at what came back: how much of it was new."""
    box = Box(account)
    try:
        return (await reader.look(context, Source(account), box, asyncio.Event()))[0]
    finally:
        await asyncio.to_thread(box.close)


async def sent(house: House, message: str) -> tuple[str, str, str]:
    """A mail that was sent: its notification, its Message-ID and its recipient."""
    address = f"{uuid4().hex}@example.org"
    contact = await house.contact("Anna", email=address)
    await house.rule({"contact_id": contact})
    told = await in_queue(house, message, channel="email", contact_id=contact)
    await work(house.worker())
    row = await house.row(RECEIPT, told)
    return told, row["provider_id"], row["address"]


async def word_to_owner(house: House, told: str) -> int:
    """How many words to the owner there are about it."""
    async with house.context("messenger").db.work() as connection:
        await kinds.write_missing(connection, 1000, STANDARD)
    return len(await house.sql.fetch(TOLD, (await house.delivery(told))["id"]))


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_from_the_mail_to_its_report_to_the_owner(still_house: House, box: Mailbox) -> None:
    told, message_id, recipient = await sent(still_house, f"words {uuid4()}")
    other, other_id, other_recipient = await sent(still_house, f"words {uuid4()}")
    context, account = still_house.context("messenger"), account_from(box.url())
    box.put(report(message_id, other_recipient))
    box.put(report(ours(), recipient))
    box.put(report(other_id, other_recipient, action="delayed"))
    assert await once(context, account) == 0
    assert [await still_house.status(one) for one in (told, other)] == ["ok", "ok"]
    box.put(report(message_id, recipient.upper()))
    assert await once(context, account) == 1
    assert [await still_house.status(one) for one in (told, other)] == ["error", "ok"]
    assert await word_to_owner(still_house, told) == 1
    await still_house.sql.execute("UPDATE messenger.mailboxes SET last_uid = 0")
    assert await once(context, account) == 0
    assert await word_to_owner(still_house, told) == 1
    row = await still_house.row(ACCOUNTS)
    assert row["account"] == f"house@127.0.0.1:{box.port}"


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_a_mailbox_that_is_away_is_said_and_read_when_it_is_back(still_house: House, box: Mailbox) -> None:
    told, message_id, recipient = await sent(still_house, f"words {uuid4()}")
    context, account, stopping = still_house.context("messenger"), account_from(box.url()), asyncio.Event()
    unread: dict[str, str] = {}
    box.stop()
    running = asyncio.ensure_future(reader.run(context, Source(account), unread, stopping, reader.Pace(0.01, 0.1)))
    assert await until(lambda: "cannot be read" in unread.get("127.0.0.1", ""))
    assert (await sent(still_house, f"words {uuid4()}"))[1]
    box.put(report(message_id, recipient))
    await asyncio.to_thread(box.start)
    assert await still_house.settled(told, "error") == "error"
    await until(lambda: not unread)
    stopping.set()
    await asyncio.wait_for(running, LONGEST)
    assert (await still_house.row(ACCOUNTS))["held"] is False


@pytest.mark.asyncio(loop_scope="module")
async def test_one_messenger_reads_and_another_takes_over(still_house: House) -> None:
    answers = {b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n", b"EXAMINE": b"* OK [UIDVALIDITY 7] x\r\n"}
    with listening({**answers, b"UID": b"* SEARCH\r\n"}) as (port, got):
        account = account_from(f"imap://house:x@127.0.0.1:{port}")
        first, second = still_house.worker().context, still_house.worker().context
        for context, connections in ((first, 1), (second, 1), (first, 2)):
            await once(context, account)
            assert sum(b"EXAMINE" in line for line in got) == connections
        await still_house.sql.execute("UPDATE messenger.mailboxes SET lease_until = clock_timestamp()")
        await once(second, account)
        assert sum(b"EXAMINE" in line for line in got) == 3


@pytest.mark.asyncio(loop_scope="module")
async def test_a_messenger_with_a_mailbox_reads_it_and_says_what_is_wrong_with_it(still_house: House) -> None:
    context = still_house.context("messenger")
    url = Secret("imap://house:secret@127.0.0.1:1")
    plain, reading = build(context), build(replace(context, settings=replace(context.settings, imap_url=url)))
    more = [loop for loop in reading.loops if isinstance(loop, partial) and loop.func is reader.run]
    assert (len(more), len(reading.loops)) == (1, len(plain.loops))
    stopping = asyncio.Event()
    running = asyncio.ensure_future(more[0](stopping, pace=reader.Pace(0.01, 0.01)))
    (said,) = await until(reading.remarks)
    assert said.startswith("The mailbox cannot be read: ")
    assert "secret" not in said
    stopping.set()
    await asyncio.wait_for(running, LONGEST)
    for parts in (plain, reading):
        assert parts.close is not None
        await parts.close()
