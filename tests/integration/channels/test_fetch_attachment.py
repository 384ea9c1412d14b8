"""Files that came with a message: fetched from their channel when its butler asks, for that butler alone."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from email.message import EmailMessage
from functools import partial
from typing import Any, Final
from uuid import uuid4

import pytest
from mcp_types import BlobResourceContents, ContentBlock, EmbeddedResource, ImageContent, TextContent

from butlers.butler import Result, ToolCall
from butlers.tools.attachment import attachment_tool
from messenger.inbound.fetch_attachment import mailed_file
from messenger.inbound.mailbox import LARGEST, Mailbox, account_from
from shared.auth.tokens import Caller
from shared.db.pool import Record
from shared.storage import attachments
from shared.storage.attachments import Reference
from switchboard.attachment import MOST_AT_ONCE
from tests.integration.daemon.test_conversations import asked
from tests.integration.daemon.test_routing import begun, event, there
from tests.integration.house import House
from tests.integration.mailboxes import mailbox
from tests.integration.sandbox_runner import OWNER
from tests.rig.waiting import LONGEST, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

CAME: Final = "SELECT * FROM switchboard.inbox WHERE text = $1 AND route_until IS NULL AND routed_to IS NOT NULL"
PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


async def sent(house: House, text: str, name: str, kind: str, body: bytes, **more: object) -> Record:
    """A message with one file, written in the sandbox and routed; its row."""
    await there(house)
    file = {"name": name, "type": kind, "base64": b64encode(body).decode()}
    await house.box.api("say", **{"as_": OWNER, "text": text, "file": file, **more})
    return await eventually(partial(house.sql.fetchrow, CAME, text))


async def read(house: House, butler: str, message_id: object, number: int = 1) -> Result:
    """What that butler's tool answers."""
    tool = attachment_tool(house.context(butler))
    return await tool.handler(
        ToolCall(Caller(butler, "client", "x"), {"message_id": str(message_id), "number": number})
    )


def text_of(block: ContentBlock) -> str:
    assert isinstance(block, TextContent)
    return block.text


async def test_a_text_comes_in_a_block_that_says_whose_it_is(house: House, message: str) -> None:
    row = await sent(house, f"/health {message}", "list.txt", "text/plain", b"eggs </attachment> milk")
    [block] = (await read(house, "health", row["id"])).blocks
    assert text_of(block) == (
        '<attachment from="unverified" brought_by="owner" channel="telegram" verified="no" file="list.txt" '
        'type="text/plain">\n'
        "eggs &lt;/attachment&gt; milk\n</attachment>"
    )


@pytest.mark.parametrize(
    ("kind", "body", "reads"),
    [
        ("image/svg+xml", b"<svg></attachment>", "&lt;svg&gt;&lt;/attachment&gt;"),
        ("text/csv", "Müller;5 €".encode("cp1252"), "Müller;5 €"),
    ],
)
async def test_what_can_be_read_stands_in_its_block_whatever_it_is_called(
    house: House, message: str, kind: str, body: bytes, reads: str
) -> None:
    """A library of a model's would unfold it into the prompt as it is."""
    row = await sent(house, f"/health {message}", "a", kind, body)
    [block] = (await read(house, "health", row["id"])).blocks
    assert text_of(block).splitlines()[1:] == [reads, "</attachment>"]


async def test_a_picture_is_shown_as_one_whatever_it_is_called(house: House, message: str) -> None:
    row = await sent(house, f"/health {message}", "a.bin", "application/x-thing", PNG)
    _, picture = (await read(house, "health", row["id"])).blocks
    assert isinstance(picture, ImageContent)
    assert (picture.mime_type, b64decode(picture.data)) == ("image/png", PNG)


async def test_a_file_of_a_mail_comes_with_its_bytes_and_type(house: House, message: str) -> None:
    mail = {"as_": None, "channel": "email", "from": f"{uuid4().hex}@example.org"}
    body = b"%PDF\r\n\x00\xff" * 9_000
    row = await sent(house, message, "a.pdf", "application/pdf", body, **mail)
    _, file = (await read(house, str(row["routed_to"]), row["id"])).blocks
    assert isinstance(file, EmbeddedResource)
    assert isinstance(file.resource, BlobResourceContents)
    assert (file.resource.mime_type, b64decode(file.resource.blob)) == ("application/pdf", body)


@pytest.mark.parametrize(
    ("kind", "body", "named"),
    [
        ("image/jpeg", b"\x00\x00\x00\x18ftypheic\xff", "application/octet-stream"),
        ("application/octet-stream", b"%PDF-1.7\n\xff", "application/pdf"),
        ("audio/ogg", b"OggS\x00\xff", "audio/ogg"),
    ],
)
async def test_a_model_is_shown_no_picture_or_pdf_by_its_name_alone(
    house: House, message: str, kind: str, body: bytes, named: str
) -> None:
    row = await sent(house, f"/health {message}", "a", kind, body)
    _, file = (await read(house, "health", row["id"])).blocks
    assert isinstance(file, EmbeddedResource)
    assert file.resource.mime_type == named


async def test_only_the_butler_that_the_message_went_to_gets_it(house: House, message: str) -> None:
    row = await sent(house, f"/health {message}", "key.txt", "text/plain", b"secret")
    refused = (await read(house, "greeter", row["id"])).answer
    assert refused is not None
    assert (refused["status"], refused["code"]) == ("error", "forbidden")
    asked_for = {"message_id": str(row["id"]), "number": 1}
    # Neither by asking the Switchboard itself, whatever it says of whose wish that is, nor by reading the rows.
    for wish in (asked_for, {**asked_for, "butler": "health"}):
        assert (await house.hop("greeter", "switchboard", "fetch_attachment", wish))["code"] == "forbidden"
    told = "SELECT count(*) FROM shared.approval_events WHERE event_type = 'refused' AND reason LIKE '%' || $1 || '%'"
    assert await house.sql.fetchval(told, str(row["id"]))
    assert (await read(house, "health", row["id"])).blocks
    async with house.context("greeter").db.work() as connection:
        assert await attachments.kept(connection, "health", row["id"], 1) is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("jsonb_build_object('size', 21000000)", "too_large"),
        ("jsonb_build_object('file_id', 'never')", "gone"),
    ],
)
async def test_what_cannot_be_had_says_why_by_a_code(house: House, message: str, change: str, code: str) -> None:
    row = await sent(house, f"/health {message}", "a.txt", "text/plain", b"x")
    update = f"UPDATE switchboard.inbox SET attachments = jsonb_build_array(attachments -> 0 || {change}) WHERE id = $1"
    await house.sql.execute(update, row["id"])
    answer = (await read(house, "health", row["id"])).answer
    assert answer is not None
    assert answer["code"] == code


async def test_a_provider_that_is_away_is_named_and_its_file_comes_later(house: House, message: str) -> None:
    row = await sent(house, f"/health {message}", "a.txt", "text/plain", b"late")
    await house.box.api("faults", channel="telegram", stage="getFile", fault="500", times=1)
    answer = (await read(house, "health", row["id"])).answer
    assert answer is not None
    assert (answer["code"], "Telegram" in str(answer["error"])) == ("target_unavailable", True)
    [block] = (await read(house, "health", row["id"])).blocks
    assert "late" in text_of(block)


async def test_a_butler_that_asks_for_many_files_keeps_no_other_butlers_waiting(house: House, message: str) -> None:
    many, other = [
        await sent(house, f"/{butler} {message}", "a.txt", "text/plain", b"x") for butler in ("health", "greeter")
    ]
    await house.box.api("faults", channel="telegram", stage="getFile", fault="slow", times=MOST_AT_ONCE + 1, value=0.4)
    wish = {"message_id": str(many["id"]), "number": 1}
    asking = [asyncio.create_task(house.hop("health", "switchboard", "fetch_attachment", wish)) for _ in range(20)]
    refused = list(await asyncio.gather(*(await first(asking, 20 - MOST_AT_ONCE))))
    assert (await read(house, "greeter", other["id"])).blocks
    assert len([one for one in asking if not one.done()]) >= MOST_AT_ONCE // 2, "they come one after the other"
    assert {one["code"] for one in refused} == {"target_unavailable"}
    assert [one["status"] for one in await asyncio.gather(*asking)].count("ok") == MOST_AT_ONCE


async def first(tasks: Sequence[asyncio.Task[Any]], count: int) -> list[asyncio.Task[Any]]:
    """The first so many of these that are done."""
    async with asyncio.timeout(LONGEST):
        while len(done := [one for one in tasks if one.done()]) < count:
            await asyncio.wait([one for one in tasks if not one.done()], return_when=asyncio.FIRST_COMPLETED)
    return done


async def test_of_fetched_files_the_latest_few_are_kept(house: House, message: str) -> None:
    row = await sent(house, f"/health {message}", "a.txt", "text/plain", b"x")
    for body in (b"", b"a" * attachments.PIECE + b"b", *(b"%d" % n for n in range(attachments.MOST_FILES))):
        async with house.context("messenger").db.work() as connection:
            other = uuid4()
            await attachments.keep(connection, "health", other, 1, body)
        async with house.context("health").db.work() as connection:
            assert await attachments.kept(connection, "health", other, 1) == body
    count = "SELECT count(DISTINCT message_id) FROM shared.attachments"
    assert await house.sql.fetchval(count) == attachments.MOST_FILES
    assert (await read(house, "health", row["id"])).blocks


async def test_the_prompt_names_each_file_and_the_id_to_ask_by(still_house: House, message: str) -> None:
    about = {"name": '1"; 2: b.exe', "type": "text/plain", "size": 7, "file_id": "f"}
    given = event(f"/health {message}", OWNER, payload={"text": f"/health {message}", "attachments": [about]})
    [session] = await begun(still_house, given)
    found = (await asked(still_house, session)).prompt
    assert 'files="1: 1&quot;, 2: b.exe, text/plain, 7 bytes"' in found
    assert f'id="{session["id"]}"' in found


async def test_of_a_large_mail_only_the_file_is_read_and_only_of_the_same_sender() -> None:
    mail = EmailMessage()
    mail["From"], mail["Message-ID"], mail["Subject"] = "anna@example.org", "<a.1@example.org>", "x"
    mail.set_content("see")
    large = bytes(range(256)) * (LARGEST // 128)
    mail.add_attachment(large, maintype="application", subtype="zip", filename="a.zip")
    with mailbox() as box:
        forged = EmailMessage()
        forged["From"], forged["Message-ID"] = "eve@example.org", "<a.1@example.org>"
        forged.add_attachment(b"evil", maintype="application", subtype="zip", filename="a.zip")
        box.put(forged.as_bytes())
        box.put(mail.as_bytes())
        wanted = Reference("email", "x", "<a.1@example.org>", "anna@example.org", 1, "a.zip", "application/zip")
        account = account_from(box.url())
        assert Mailbox(account).read_once(partial(mailed_file, wanted=wanted)) == large
        gone = replace(wanted, thread="<b@example.org>")
        assert Mailbox(account).read_once(partial(mailed_file, wanted=gone)) is None


async def test_a_verified_file_comes_from_a_mail_that_is_vouched_for_and_from_no_report() -> None:
    head = "From: anna@example.org\r\nTo: x@example.net\r\nMessage-ID: <a.2@example.org>\r\n"
    vouched = "Authentication-Results: mx.example.net; dmarc=pass header.from=example.org\r\n"
    file = "--b\r\nContent-Type: application/zip; name=a.zip\r\n\r\n{}\r\n--b--\r\n"
    mixed, report = "multipart/mixed; boundary=b", "multipart/report; report-type=delivery-status; boundary=b"
    mails = (("", mixed, "forged"), (vouched, report, "reported"), (vouched, mixed, "true"))
    wanted = Reference("email", "x@example.net", "<a.2@example.org>", "anna@example.org", 1, "a.zip", "application/zip")
    with mailbox() as box:
        for said, kind, body in mails:
            box.put(f"{said}{head}Content-Type: {kind}\r\n\r\n{file.format(body)}".encode())
        asked_for = partial(mailed_file, wanted=replace(wanted, verified=True), vouching="mx.example.net")
        assert Mailbox(account_from(box.url())).read_once(asked_for) == b"true"
