"""What the sandbox still knows after it was stopped, or killed in the middle of a line."""

import asyncio
import json
import smtplib
from pathlib import Path

import pytest

from messenger.sandbox.journal import SandboxBusy
from messenger.sandbox.sandbox import Accepted, Saying, open_sandbox
from messenger.sandbox.world import World
from tests.integration.sandbox_runner import OWNER, Running, running

KEYS = {"inline_keyboard": [[{"text": "Approve", "callback_data": "a"}]]}


def picture(world: World) -> object:
    """Everything a world knows, comparable."""
    return {name: str(value) for name, value in vars(world).items()}


async def live(box: Running) -> None:
    """A bit of everything that can happen."""
    await box.api("say", as_=OWNER, text="hello")
    await box.bot("getUpdates", allowed_updates=["message", "callback_query", "message_reaction"])
    await box.bot("getUpdates", offset=700_000_002)
    await box.bot("sendMessage", chat_id=OWNER, text="card", reply_markup=KEYS, reply_parameters={"message_id": 1})
    await box.bot("setMessageReaction", chat_id=OWNER, message_id=1, reaction=[{"type": "emoji", "emoji": "👍"}])
    pressed = await box.api("press", as_=OWNER, message_id=2, data="a")
    await box.bot("answerCallbackQuery", callback_query_id=pressed["callback_query_id"], text="Noted")
    await box.bot("editMessageText", chat_id=OWNER, message_id=2, text="approved", reply_markup=KEYS)
    await box.bot("editMessageReplyMarkup", chat_id=OWNER, message_id=2)
    await box.api("react", as_=OWNER, message_id=2, emoji="🔥")
    await box.api("say", as_=4242, chat=-100, text="in a group", name="Dana")
    await box.bot("sendMessage", chat_id="@somebody", text="to a name")

    def mail() -> None:
        with smtplib.SMTP("127.0.0.1", box.smtp_port) as client:
            client.sendmail("a@b.test", ["c@d.test"], b"Subject: caf\xe9\r\n\r\nhello\r\n")

    await asyncio.to_thread(mail)


async def test_a_restart_keeps_messages_ids_offsets_and_updates(tmp_path: Path) -> None:
    async with running(tmp_path) as box:
        await live(box)
        before, lines, version = picture(box.sandbox.world), await box.journal(), box.sandbox.version
    async with running(tmp_path) as box:
        assert picture(box.sandbox.world) == before
        assert (await box.journal(), box.sandbox.version) == (lines, version)
        _, shape = await box.bot("getUpdates")
        result = shape["result"]
        assert isinstance(result, list)
        assert [update["update_id"] for update in result] == [700_000_002, 700_000_003, 700_000_004]
        said = await box.api("say", as_=OWNER, text="again")
        assert (said["message_id"], said["update_id"]) == (5, 700_000_005)
        status, _ = await box.bot("editMessageText", chat_id=OWNER, message_id=2, text="approved and sent")
        assert status == 200


async def test_the_journal_is_on_the_disk_when_the_answer_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as box:
        lines: list[str] = []
        for n in range(1, 4):
            await box.bot("sendMessage", chat_id=5, text=f"message {n}")
            lines = (tmp_path / "sandbox" / "journal.jsonl").read_text().splitlines()
            assert [json.loads(line)["n"] for line in lines] == list(range(1, n + 1))
        async with box.http.get(f"{box.url}/api/journal?after=2") as answer:
            [line] = (await answer.text()).splitlines()
    assert json.loads(line) == json.loads(lines[-1])
    assert set(json.loads(line)) == {"n", "at", "channel", "token_id", "to", "payload", "provider_id"}
    assert json.loads(line)["at"].endswith("+00:00")


async def test_a_line_cut_by_a_crash_is_dropped_and_the_number_used_again(tmp_path: Path) -> None:
    async with running(tmp_path) as box:
        await box.bot("sendMessage", chat_id=5, text="whole")
    path = tmp_path / "sandbox" / "journal.jsonl"
    with path.open("a") as file:
        file.write('{"n": 2, "at": "2026-11-21T1')
    async with running(tmp_path) as box:
        assert len(await box.journal()) == 1
        await box.bot("sendMessage", chat_id=5, text="next")
        assert [line["n"] for line in await box.journal()] == [1, 2]


def test_a_journal_that_lost_its_last_lines_still_opens(tmp_path: Path) -> None:
    sandbox = open_sandbox(tmp_path)
    payload = {"method": "sendMessage", "chat_id": 5, "text": "x"}
    sandbox.accept(Accepted("telegram", "42", "5", payload, "1"))
    sandbox.say(Saying(5, 5, "later"))
    sandbox.close()
    (tmp_path / "sandbox" / "journal.jsonl").write_text("")
    again = open_sandbox(tmp_path)
    assert [message.text for message in again.world.messages.values()] == ["later"]
    again.close()


def test_two_sandboxes_cannot_share_a_home(tmp_path: Path) -> None:
    first = open_sandbox(tmp_path)
    with pytest.raises(SandboxBusy, match="Stop it, or give this one another home"):
        open_sandbox(tmp_path)
    first.close()
    open_sandbox(tmp_path).close()
