"""Anybody on this computer may write in the sandbox: it keeps so much and no more, and always starts again."""

import asyncio
import json
import signal
import smtplib
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import pytest_asyncio
from starlette.responses import PlainTextResponse
from starlette.types import Message

from messenger.sandbox.connections import MOST_MAIL
from messenger.sandbox.faults import LONGEST_MATCH, MOST_ARMED, FaultBoard
from messenger.sandbox.journal import SandboxFull
from messenger.sandbox.mail.smtp import LARGEST_MAIL
from messenger.sandbox.room import Room
from messenger.sandbox.sandbox import MOST_UNDER_WAY, Accepted, Sandbox, Saying, open_sandbox
from messenger.sandbox.web.middleware import Bounded
from messenger.sandbox.web.views import CUT, LONGEST_MAIL, MOST_MAILS, MOST_MESSAGES, letters, thread
from shared.errors import InvalidInput
from tests.integration.cli.bad_input_runner import start
from tests.integration.sandbox_runner import OWNER, Running, running
from tests.rig.bench import Bench
from tests.rig.waiting import LONGEST

SMALL = 64 * 1024


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as box:
        yield box


def sent(sandbox: Sandbox, text: str) -> Accepted:
    payload = {"method": "sendMessage", "chat_id": 5, "text": text}
    return Accepted("telegram", "42", "5", payload, str(sandbox.world.next_message_id))


def mailed(raw: str, *to: str) -> list[Accepted]:
    payload = {"from": "a@b.test", "raw": raw, "message_id": "<1@b.test>", "subject": "x"}
    return [Accepted("email", "", one, payload, "<1@b.test>") for one in to]


def fill(sandbox: Sandbox) -> int:
    """Write as a bot and as a person until neither is taken; return how many messages there are."""
    with suppress(SandboxFull):
        while True:
            sandbox.accept(sent(sandbox, "hello"))
    with suppress(SandboxFull):
        while True:
            sandbox.say(Saying(5, 5, "hello"))
    return len(sandbox.world.messages)


def test_what_does_not_fit_is_refused_and_what_is_there_stays(tmp_path: Path) -> None:
    sandbox = open_sandbox(tmp_path, most=SMALL)
    count = fill(sandbox)
    assert count > 20
    assert all((tmp_path / "sandbox" / name).stat().st_size < SMALL for name in ("journal.jsonl", "events.jsonl"))
    sandbox.events.most = sandbox.events.weight
    with pytest.raises(SandboxFull, match=r"The sandbox is full\. Start it again"):
        sandbox.say(Saying(6, 6, "hello", name="Dana"))
    assert 6 not in sandbox.world.people, "the refused left something in memory"
    sandbox.close()


def test_a_full_sandbox_begins_anew_at_the_next_start_with_numbers_nobody_knows(tmp_path: Path) -> None:
    sandbox = open_sandbox(tmp_path, most=SMALL)
    fill(sandbox)
    first, read = sandbox.world.next_message_id, sandbox.world.next_update_id
    sandbox.close()
    new = open_sandbox(tmp_path, most=SMALL)
    assert new.told.startswith("The sandbox was nearly full. It began anew;")
    new.close()
    again = open_sandbox(tmp_path, most=SMALL)
    assert again.told == ""
    assert again.say(Saying(5, 5, "new")).message_id > first
    [update] = again.world.updates
    assert update.update_id >= read, "a reader who noted the last number never hears of it"
    assert [one.update_id for one in again.world.pending("42")] == [update.update_id]
    again.close()


@pytest.mark.parametrize("name", ["journal.jsonl", "events.jsonl"])
@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (b"nonsense\n", "is no JSON object"),
        (b'{"n": 1}\n', "KeyError"),
        (b"[" * 100_000 + b"\n", "holds too much"),
        (b'{"a": "' + b"x" * SMALL + b'"}\n', "holds too much"),
    ],
)
def test_what_cannot_be_read_or_is_too_large_stops_nobody(tmp_path: Path, name: str, kept: bytes, said: str) -> None:
    folder = tmp_path / "sandbox"
    open_sandbox(tmp_path).close()
    (folder / name).write_bytes(kept)
    sandbox = open_sandbox(tmp_path, most=SMALL)
    assert said in sandbox.told
    assert f"It began anew; what it kept lies in {folder}" in sandbox.told
    assert (folder / f"{name}.old").read_bytes() == kept
    sandbox.say(Saying(5, 5, "hello"))
    sandbox.close()


@pytest.mark.slow
async def test_who_starts_it_reads_that_it_began_anew(bench: Bench) -> None:
    house = await bench.house()
    folder = Path(house.env["BUTLERS_HOME"]) / "sandbox"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.parent.chmod(0o700)
    (folder / "journal.jsonl").write_text("nonsense\n")
    process = start(house, ["run", "sandbox"])
    async with asyncio.timeout(LONGEST):
        while " is ready at " not in process.out.read_text():
            assert process.alive, process.err.read_text()
            await asyncio.sleep(0.02)
    assert "The sandbox cannot read what it kept" in process.out.read_text()
    process.send(signal.SIGTERM)
    assert await process.wait() == 0
    house.close()


async def test_who_writes_into_a_full_sandbox_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as box:
        for lines in (box.sandbox.journal, box.sandbox.events):
            lines.most = lines.weight
        async with box.http.post(f"{box.url}/api/say", json={"as": OWNER, "text": "x"}) as answer:
            assert (answer.status, "The sandbox is full." in await answer.text()) == (400, True)
        status, shape = await box.bot("sendMessage", chat_id=OWNER, text="x")
        assert (status, "The sandbox is full." in str(shape["description"])) == (400, True)

        def mail() -> None:
            with smtplib.SMTP("127.0.0.1", box.smtp_port) as client:
                client.sendmail("a@b.test", ["c@d.test"], b"Subject: x\r\n\r\nhello\r\n")

        with pytest.raises(smtplib.SMTPDataError, match="The sandbox is full"):
            await asyncio.to_thread(mail)
        assert await box.journal() == []


async def test_uploads_at_once_are_refused_beyond_the_room_and_then_taken_again(box: Running) -> None:
    body = json.dumps({"as": 5, "text": "x", "file": {"name": "a", "base64": b64encode(bytes(700_000)).decode()}})
    head = f"POST /api/say HTTP/1.1\r\nhost: 127.0.0.1:{box.port}\r\ncontent-length: {len(body)}\r\n\r\n"
    async with AsyncExitStack() as stack:
        ends = []
        for _ in range(MOST_UNDER_WAY // len(body) + 1):
            reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
            stack.callback(writer.close)
            writer.write((head + body[:-1]).encode())
            ends.append(asyncio.create_task(reader.readline()))
        done, waiting = await asyncio.wait(ends, timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
        assert [one.result().split()[1] for one in done] == [b"503"]
        for one in waiting:
            one.cancel()
    async with asyncio.timeout(LONGEST):
        while not box.sandbox.room.take(MOST_UNDER_WAY):
            await asyncio.sleep(0.01)
    box.sandbox.room.give(MOST_UNDER_WAY)
    async with box.http.post(f"{box.url}/api/say", data=body) as answer:
        assert answer.status == 200


async def test_answers_that_nobody_takes_are_refused_beyond_the_room() -> None:
    room, taken = Room(100_000), asyncio.Event()
    heard: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        heard.append(message)
        if message.get("more_body"):
            await taken.wait()

    app = Bounded(PlainTextResponse("x" * 90_000), room)
    slow = asyncio.create_task(app({"type": "http"}, receive, send))
    await asyncio.sleep(0)
    heard.clear()
    async with asyncio.timeout(LONGEST):
        await app({"type": "http"}, receive, send)
    assert [message.get("status") for message in heard] == [503, None]
    taken.set()
    await slow
    heard.clear()
    await app({"type": "http"}, receive, send)
    assert b"".join(message.get("body", b"") for message in heard) == b"x" * 90_000
    assert room.take(100_000)


async def begun(box: Running, recipients: int = 1) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection in the middle of a mail."""
    reader, writer = await asyncio.open_connection("127.0.0.1", box.smtp_port)
    await reader.readline()
    for line in ("HELO x", "MAIL FROM:<a@b.test>", *["RCPT TO:<c@d.test>"] * recipients, "DATA"):
        writer.write(f"{line}\r\n".encode())
        await reader.readline()
    return reader, writer


async def test_a_mail_to_many_may_be_so_much_shorter(box: Running) -> None:
    reader, writer = await begun(box, 50)
    writer.write((b"x" * 998 + b"\r\n") * (LARGEST_MAIL // 1000 // 50 + 1))
    assert (await asyncio.wait_for(reader.readline(), LONGEST)).startswith(b"552 ")
    writer.close()
    assert await box.journal() == []


async def test_mails_at_once_are_refused_beyond_the_room(box: Running) -> None:
    assert box.sandbox.room.take(MOST_UNDER_WAY - 5_000)
    first, second = await begun(box), await begun(box)
    for _, writer in (first, second):
        writer.write((b"x" * 998 + b"\r\n") * 4)
    answers = [asyncio.create_task(reader.readline()) for reader, _ in (first, second)]
    done, (waiting,) = await asyncio.wait(answers, timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
    assert [one.result()[:4] for one in done] == [b"421 "]
    _, writer = second if answers[0] in done else first
    writer.write(b".\r\n")
    assert (await asyncio.wait_for(waiting, LONGEST)).startswith(b"250 ")
    for _, writer in (first, second):
        writer.close()


async def test_connections_of_mail_beyond_so_many_are_turned_away(box: Running) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(MOST_MAIL):
            reader, writer = await asyncio.open_connection("127.0.0.1", box.smtp_port)
            stack.callback(writer.close)
            assert (await reader.readline()).startswith(b"220 ")
        for port, said in ((box.smtp_port, b"421 "), (box.imap_port, b"* BYE ")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            assert (await asyncio.wait_for(reader.readline(), LONGEST)).startswith(said)


def test_a_page_shows_the_newest_and_the_beginning_of_a_long_mail(tmp_path: Path) -> None:
    sandbox = open_sandbox(tmp_path)
    for n in range(MOST_MESSAGES + 1):
        sandbox.accept(sent(sandbox, f"message {n}"))
    shown = [bubble.message_id for day in thread(sandbox.world, 5) for bubble in day.bubbles]
    assert shown == list(range(2, MOST_MESSAGES + 2))
    sandbox.accept(*mailed("Subject: x\r\n\r\n" + "x" * LONGEST_MAIL, *(["c@d.test"] * (MOST_MAILS + 1))))
    found = letters(sandbox.world)
    assert len(found) == MOST_MAILS
    assert {len(letter.raw) for letter in found} == {LONGEST_MAIL + len(CUT)}
    sandbox.close()


def test_so_many_faults_are_armed_and_no_more() -> None:
    board, asked = FaultBoard(), {"channel": "telegram", "stage": "any", "fault": "500"}
    with pytest.raises(InvalidInput, match="'match' is not a text, or too long"):
        board.arm({**asked, "match": "x" * (LONGEST_MATCH + 1)}, frozenset())
    for _ in range(MOST_ARMED):
        board.arm(asked, frozenset())
    with pytest.raises(InvalidInput, match="Disarm them first"):
        board.arm(asked, frozenset())


async def test_what_a_bot_says_of_its_commands_has_an_end(box: Running) -> None:
    commands = [{"command": f"c{n}", "description": "x"} for n in range(101)]
    assert (await box.bot("setMyCommands", commands=commands))[0] == 400
    box.sandbox.menus.update({(str(n), ""): [] for n in range(1000)})
    assert (await box.bot("setMyCommands", commands=commands[:100]))[0] == 400
    assert (await box.bot("deleteMyCommands"))[0] == 200
