"""Every fault of the Bot API stand-in as a client sees it, and what the journal holds afterwards."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from messenger.sandbox.connections import reset
from tests.integration.sandbox_runner import Running, running
from tests.rig.waiting import LONGEST

BODY = b'{"chat_id": 5, "text": "hello"}'


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as box:
        yield box


async def arm(box: Running, fault: str, **more: object) -> None:
    await box.api("faults", **{"channel": "telegram", "stage": "sendMessage", "fault": fault, **more})


async def send(box: Running, text: str = "hello") -> tuple[int, str]:
    async with box.http.post(f"{box.url}/bot42:A/sendMessage", json={"chat_id": 5, "text": text}) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("fault", "code", "description"),
    [
        ("400", 400, "Bad Request: chat not found"),
        ("401", 401, "Unauthorized"),
        ("403", 403, "Forbidden: bot was blocked by the user"),
        ("500", 500, "Internal Server Error"),
    ],
)
async def test_a_refusal_is_answered_once_and_not_journalled(
    box: Running, fault: str, code: int, description: str
) -> None:
    await arm(box, fault)
    status, text = await send(box)
    assert (status, json.loads(text)) == (code, {"ok": False, "error_code": code, "description": description})
    assert await box.journal() == []
    assert (await send(box))[0] == 200
    assert len(await box.journal()) == 1


async def test_429_says_when_to_come_again(box: Running) -> None:
    await arm(box, "429", value=17)
    status, text = await send(box)
    assert status == 429
    assert json.loads(text)["parameters"] == {"retry_after": 17}
    assert json.loads(text)["description"] == "Too Many Requests: retry after 17"


async def test_502_is_a_page_of_html(box: Running) -> None:
    await arm(box, "502")
    status, text = await send(box)
    assert (status, text.startswith("<html>")) == (502, True)
    assert await box.journal() == []


@pytest.mark.parametrize("fault", ["500_accepted", "garbage"])
async def test_what_is_accepted_is_journalled_although_the_answer_is_useless(box: Running, fault: str) -> None:
    await arm(box, fault)
    status, text = await send(box)
    assert status == (500 if fault == "500_accepted" else 200)
    if fault == "garbage":
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    assert len(await box.journal()) == 1


async def test_accept_and_reset_journals_then_resets(box: Running) -> None:
    await arm(box, "accept_reset")
    reader, writer = await raw_request(box, BODY)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    assert len(await box.journal()) == 1


class Left:
    """A connection whose other side was faster."""

    def get_extra_info(self, name: str) -> socket.socket:
        assert name == "socket"
        closed = socket.socket()
        closed.close()
        return closed

    def abort(self) -> None:
        raise AssertionError("there is nothing left to close")


def test_who_left_already_is_not_reset() -> None:
    reset(Left())


async def test_accept_and_hang_journals_and_says_nothing_until_the_sandbox_stops(box: Running) -> None:
    await arm(box, "accept_hang")
    reader, writer = await raw_request(box, BODY)
    await box.until_journalled("sendMessage")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    box.sandbox.stop()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), LONGEST)
    writer.close()


async def test_slow_journals_at_once_and_answers_later(box: Running) -> None:
    await arm(box, "slow", value=1)
    sending = asyncio.create_task(send(box))
    [line] = await box.until_journalled("sendMessage")
    assert (await sending)[0] == 200
    # A little less than the second: one clock tells the moment, another measures the wait.
    assert datetime.now(UTC) - datetime.fromisoformat(str(line["at"])) >= timedelta(seconds=0.9)


async def raw_request(
    box: Running, body: bytes, hold_back: int = 0
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
    head = (
        f"POST /bot42:A/sendMessage HTTP/1.1\r\nHost: 127.0.0.1:{box.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body[: len(body) - hold_back])
    await writer.drain()
    return reader, writer


async def test_nothing_happens_before_the_last_byte(box: Running) -> None:
    reader, writer = await raw_request(box, BODY, hold_back=1)
    await asyncio.sleep(0.1)
    assert await box.journal() == []
    writer.write(BODY[-1:])
    assert b"200 OK" in await asyncio.wait_for(reader.readline(), LONGEST)
    assert len(await box.journal()) == 1
    writer.close()


async def test_a_client_that_leaves_before_the_last_byte_has_sent_nothing(box: Running) -> None:
    _, writer = await raw_request(box, BODY, hold_back=1)
    await asyncio.sleep(0.05)
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.1)
    assert await box.journal() == []
    assert (await send(box))[0] == 200


async def test_drop_before_body_acts_on_the_headers(box: Running) -> None:
    await arm(box, "drop_before_body")
    reader, writer = await raw_request(box, BODY, hold_back=len(BODY))
    assert await closed(reader)
    writer.close()
    assert await box.journal() == []
    assert (await send(box))[0] == 200


async def closed(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closes, politely or not, without a word."""
    try:
        return await asyncio.wait_for(reader.read(), LONGEST) == b""
    except ConnectionResetError:
        return True


async def test_drop_before_body_by_text_waits_for_that_text(box: Running) -> None:
    await arm(box, "drop_before_body", match="doomed soul")
    assert (await send(box, "a happy one"))[0] == 200
    with pytest.raises(aiohttp.ClientConnectionError):
        await send(box, "a doomed soul")
    with pytest.raises(aiohttp.ClientConnectionError):
        await box.http.post(f"{box.url}/bot42:A/sendMessage", data={"chat_id": "5", "text": "a doomed soul"})
    assert len(await box.journal()) == 1


async def test_a_fault_by_text_holds_until_it_is_deleted(box: Running) -> None:
    await arm(box, "403", match="Dana")
    assert [(await send(box, text))[0] for text in ("to Dana", "to Eve", "Dana again")] == [403, 200, 403]
    async with box.http.get(f"{box.url}/api/faults") as answer:
        [fault] = (await answer.json())["faults"]
    assert (fault["hits"], fault["times"], fault["match"]) == (2, None, "Dana")
    async with box.http.delete(f"{box.url}/api/faults") as answer:
        assert await answer.json() == {"deleted": 1}
    assert (await send(box, "to Dana"))[0] == 200


async def test_times_counts_down_also_with_a_text(box: Running) -> None:
    await arm(box, "500", match="x", times=2)
    await arm(box, "403", times=1)
    assert [(await send(box, text))[0] for text in ("x", "y", "x", "x", "y")] == [500, 403, 500, 200, 200]


async def test_any_means_every_method(box: Running) -> None:
    await arm(box, "500", stage="any", times=2)
    assert (await box.bot("getMe"))[0] == 500
    assert (await box.bot("getUpdates"))[0] == 500
    assert (await box.bot("getMe"))[0] == 200


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"channel": "fax", "stage": "any", "fault": "500"}, "'channel' is 'fax'"),
        ({"channel": "telegram", "stage": "sendFax", "fault": "500"}, "'stage' is 'sendFax'"),
        ({"channel": "telegram", "stage": "any", "fault": "4xx"}, "'fault' is '4xx'"),
        ({"channel": "email", "stage": "rcpt", "fault": "accept_reset"}, "after the final dot only"),
        ({"channel": "email", "stage": "rcpt", "fault": "4xx", "value": 550}, "no SMTP code of 4xx"),
        ({"channel": "telegram", "stage": "any", "fault": "429", "value": "soon"}, "'value' is not a number"),
        ({"channel": "telegram", "stage": "any", "fault": "429", "times": 0}, "'times' is not"),
        ({"channel": "telegram", "stage": "any", "fault": "429", "match": 5}, "'match' is not a text"),
        ({"channel": "telegram", "stage": "any", "fault": "429", "time": 5}, "Unknown key 'time'"),
        ([], "no JSON object"),
    ],
)
async def test_a_fault_that_cannot_be_is_refused_with_a_sentence(box: Running, asked: object, words: str) -> None:
    async with box.http.post(f"{box.url}/api/faults", json=asked) as answer:
        shape = await answer.json()
    assert answer.status == 400
    assert words in shape["error"]
    async with box.http.get(f"{box.url}/api/faults") as answer:
        assert await answer.json() == {"faults": []}
