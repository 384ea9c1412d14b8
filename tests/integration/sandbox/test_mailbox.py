"""The sandbox's mailbox: what somebody writes on the page Mail, as the Messenger's own reader finds it."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from messenger.inbound.mailbox import Arrived, Found, Mailbox, Seen, sandbox_feed
from messenger.sandbox.sandbox import Accepted
from tests.integration.sandbox.test_pages import page, submit, visible
from tests.integration.sandbox_runner import Running, running

SERVER = "sandbox.test"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def found(box: Running, seen: Seen | None = None) -> Found:
    mailbox = Mailbox(sandbox_feed(f"imap://127.0.0.1:{box.imap_port}"), SERVER, "butlers@sandbox.test")
    try:
        return await asyncio.to_thread(mailbox.take, seen or Seen(0, 0, LONG_AGO.date(), LONG_AGO))
    finally:
        await asyncio.to_thread(mailbox.close)


def sent(number: int) -> Accepted:
    raw = f"From: butlers@sandbox.test\r\nTo: chloe@example.org\r\nSubject: Dinner\r\n\r\nAt {number}?\r\n"
    payload = {"from": "butlers@sandbox.test", "raw": raw, "message_id": "<n.1@sandbox.test>", "subject": "Dinner"}
    return Accepted("email", "", "chloe@example.org", payload, "<n.1@sandbox.test>")


async def test_an_answer_written_on_the_page_is_in_the_mailbox_also_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as box:
        box.sandbox.accept(sent(8))
        form = await page(box, "/mail?answer=1")
        assert 'value="chloe@example.org"' in form
        assert 'value="Re: Dinner"' in form
        fields = {
            "from": "chloe@example.org",
            "to": "butlers@sandbox.test",
            "name": "Chloe <b>",
            "subject": "Re: Dinner",
        }
        shown = await submit(box, "/mail/write", **fields, text="Yes\r\n& no", answers="<n.1@sandbox.test>")
        assert "Yes\n& no" in visible(shown).replace("\r\n", "\n")
        before = await found(box)
    async with running(tmp_path) as box:
        after = await found(box)
        assert after == before
        ((uid, item),) = after.items
        assert isinstance(item, Arrived)
        letter = item.letter
        assert (uid, letter.sender, letter.display_name) == (1, "chloe@example.org", "Chloe <b>")
        assert (letter.words.strip(), letter.reply_to, letter.verified) == ("Yes\n& no", "<n.1@sandbox.test>", False)
        assert (await found(box, Seen(after.uidvalidity, 1, LONG_AGO.date(), LONG_AGO))).items == ()


async def test_what_is_no_mail_is_refused_in_two_sentences(tmp_path: Path) -> None:
    async with running(tmp_path) as box:
        said = await submit(box, "/mail/write", **{"from": "chloe", "to": "butlers@sandbox.test", "text": "x"})
        assert "That is no e-mail address. Write one like anna@example.org." in visible(said)
        asked = {"channel": "email", "from": "a@b.c\r\nBcc: d@e.f", "text": "x"}
        async with box.http.post(f"{box.url}/api/say", json=asked) as answer:
            assert answer.status == 400
        assert (await found(box)).items == ()
