"""Questions to the owner while daemons are killed: no answer is lost, and none is told twice."""

import asyncio
import signal
from collections.abc import Mapping
from functools import partial

import aiohttp
import pytest

from tests.chaos.directed import LEASES_ARE_OVER, Stage, play
from tests.rig.bench import Bench
from tests.rig.failpoints import Armed
from tests.rig.forks import Process
from tests.rig.outside import Entry
from tests.rig.waiting import eventually

TOLD = "SELECT count(*) = 1 FROM shared.notices WHERE key = $1"
ASKED = "SELECT id::text FROM shared.questions WHERE question = $1"
CARDS = "SELECT count(*) FROM messenger.deliveries WHERE about = $1 AND status = 'sent'"


async def card_of(stage: Stage, words: str) -> Entry | None:
    for entry in await stage.fleet.outside.journal():
        if words in entry.text and "reply_markup" in entry.payload:
            return entry
    return None


async def press(stage: Stage, words: str) -> None:
    """The owner presses the first choice of the card with these words, once that is there."""
    entry = await eventually(partial(card_of, stage, words))
    markup = entry.payload["reply_markup"]
    assert isinstance(markup, Mapping)
    data = markup["inline_keyboard"][0][0]["callback_data"]
    await stage.fleet.outside.press_data(int(entry.provider_id), data)


async def killed(stage: Stage, name: str, process: Process) -> None:
    process.send(signal.SIGKILL)
    await process.wait()
    stage.fleet.running[name].remove(process)
    await stage.fleet.sql(LEASES_ARE_OVER)


def asking(words: str, **more: object) -> Mapping[str, object]:
    return {"title": "Asked", "question": words, "options": ["Yes", "No"], **more}


@pytest.mark.slow
async def test_a_messenger_killed_around_a_press_loses_no_answer(bench: Bench) -> None:
    async def kills(stage: Stage) -> None:
        for name in ("press.handled_before_commit", "press.handled_after_commit"):
            process = await stage.messenger(Armed(name))
            words = f"question <{name}>"
            question = (await stage.call("health", "ask_user", asking(words)))["question_id"]
            await press(stage, words)
            await stage.gone(process)
            plain = await stage.messenger()
            await stage.until(TOLD, question)
            status = await stage.call("health", "question_status", {"question_id": question})
            stage.demand(status.get("choice") == "Yes", f"{name}: {status}")
            await killed(stage, "messenger", plain)
        stage.left_open = True

    assert await play(bench, kills, {}) == []


@pytest.mark.slow
async def test_a_butler_killed_while_a_call_waits_loses_no_answer(bench: Bench) -> None:
    async def kills(stage: Stage) -> None:
        await stage.messenger()
        words = "question <waited for>"
        waits = asyncio.create_task(stage.call("health", "ask_user", asking(words, wait_for_response=True, timeout=60)))
        await eventually(partial(card_of, stage, words))
        await killed(stage, "health", stage.fleet.running["health"][0])
        with pytest.raises(aiohttp.ClientError):
            await waits
        await press(stage, words)
        question = await stage.fleet.value(ASKED, words)
        await stage.until(TOLD, question)
        await stage.butler("health")
        status = await stage.call("health", "question_status", {"question_id": question})
        stage.demand(status.get("choice") == "Yes", str(status))
        stage.demand(await stage.fleet.value(CARDS, question) == 1, "it was asked twice")
        stage.left_open = True

    assert await play(bench, kills, {}) == []
