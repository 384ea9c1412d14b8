"""A channel that nothing can leave by pauses itself, says so once elsewhere, and comes back with no hand."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
import pytest_asyncio

from messenger.channels.base import Prepared, Reason, Receipt, SendFailed
from messenger.channels.email import EmailChannel
from messenger.channels.telegram import TelegramChannel
from messenger.delivery import expire, loop
from messenger.delivery.lease import Worker
from messenger.maintenance import circuit_breaker, reaper
from messenger.storage import breakers
from shared import answers
from shared.channels.base import Wire
from shared.channels.realms import SANDBOX_TOKEN
from shared.config.timings import STANDARD
from shared.rpc import Answer
from tests.integration.doubts import ANSWER
from tests.integration.house import House, opened
from tests.integration.workers import FREE, PAST, admitted, in_queue, new_chat, work
from tests.rig.cluster import Cluster
from tests.rig.gate import Gate
from tests.rig.waiting import LONGEST, eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAUSE = "SELECT * FROM messenger.circuit_breakers WHERE channel = $1"
DOWN = SendFailed("unavailable", "nobody there", proved_not_sent=True, is_down=True)
TWO_PROBES = "UPDATE messenger.circuit_breakers SET probes = 2"
BACK = (
    "UPDATE messenger.deliveries SET status = 'queued', claimed_by = NULL, lease_until = NULL WHERE status = 'claimed'"
)
PROBING = replace(STANDARD, probe=STANDARD.probe / 10)
A_MOMENT = timedelta(seconds=5)
LOCKED_OUT = SendFailed("unauthorized", "Unauthorized", proved_not_sent=True)
LONG_AGO = "UPDATE messenger.circuit_breakers SET first_failed_at = first_failed_at - interval '11 minutes'"
NOTHING_WAITS = "UPDATE messenger.deliveries SET status = 'cancelled' WHERE status = 'queued'"
PROBE = "UPDATE messenger.circuit_breakers SET next_probe_at = clock_timestamp()"
ALL_SENT = """
SELECT min(settled_at) FROM messenger.deliveries WHERE notification_id::text = ANY ($1::text[])
HAVING count(*) FILTER (WHERE status = 'sent') = cardinality($1::text[])
"""
LAST_CARD = "SELECT status, reason FROM messenger.deliveries WHERE class = 'card' ORDER BY created_at DESC LIMIT 1"


@pytest_asyncio.fixture(loop_scope="module")
async def quiet(still_house: House) -> AsyncIterator[House]:
    """The still house with no pause left over, and nothing that waited for its end."""
    await still_house.sql.execute(FREE)
    await still_house.sql.execute(NOTHING_WAITS)
    await still_house.box.http.delete(f"{still_house.box.url}/api/faults")
    yield still_house


@dataclass(slots=True)
class Probed:
    """A channel of which only the probe is of interest."""

    name: str = "telegram"
    probes: int = 0
    works: bool = False
    paused: dict[str, str] = field(default_factory=dict)

    async def prepare(self, wire: Wire) -> Prepared | SendFailed:
        return SendFailed("unavailable", f"nobody there for {wire.verb}", proved_not_sent=True, is_down=True)

    async def probe(self) -> SendFailed | None:
        self.probes += 1
        return None if self.works else SendFailed("unavailable", "nobody there", proved_not_sent=True, is_down=True)

    async def close(self) -> None:
        pass


@asynccontextmanager
async def at_work(worker: Worker) -> AsyncIterator[dict[str, str]]:
    """The worker with the loops of a Messenger; how it shows its pauses."""
    stopping, paused = asyncio.Event(), dict[str, str]()
    loops = [
        loop.run(worker, stopping),
        reaper.tidy(worker, stopping),
        circuit_breaker.run(worker.context, worker.channels, paused, stopping),
    ]
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield paused
    finally:
        stopping.set()
        await asyncio.gather(*tasks)


async def tell(house: House) -> int:
    async with house.context("messenger").db.work() as connection:
        return await breakers.tell_owner(connection)


def mails_about(house: House, words: str) -> list[object]:
    return [line for line in house.box.sandbox.lines if line["channel"] == "email" and words in str(line["payload"])]


async def test_a_refused_token_pauses_and_a_probe_brings_it_back_with_no_hand(cluster: Cluster, message: str) -> None:
    async with opened(cluster, timings=PROBING) as house:
        await house.fault(message, "401", times=1)
        started = time.monotonic()
        answer = await house.notify(message=message)
        # The caller waits for longer than the probe does; a slow machine may need more.
        assert answer["status"] in {"ok", "queued"}, answer
        assert await house.settled(answer["notification_id"], "ok") == "ok"
        assert time.monotonic() - started > 0.4, "the probe is not at once"
        assert len(house.sent(message)) == 1
        told = await until(lambda: mails_about(house, "does not accept the bot's token"))
        assert len(told) == 1
        assert await house.sql.fetch("SELECT FROM messenger.circuit_breakers") == []


async def test_while_it_is_paused_nothing_of_the_channel_is_claimed(quiet: House, message: str) -> None:
    first = await in_queue(quiet, message)
    await quiet.fault(message, "401", times=1)
    worker = quiet.worker()
    await work(worker)
    row = await quiet.row(PAUSE, "telegram")
    assert (row["reason"], row["since"] is not None, "Unauthorized" in row["detail"]) == ("unauthorized", True, True)
    other, mail = await in_queue(quiet, message), await in_queue(quiet, message, channel="email")
    await work(worker)
    assert (await quiet.delivery(other))["attempt"] == 0
    assert await quiet.status(mail) == "ok"
    async with at_work(quiet.worker()):
        await until(lambda: len(quiet.sent(message)) == 3 or None)
    assert [await quiet.status(one) for one in (first, other)] == ["ok", "ok"]


async def test_what_runs_out_of_time_in_a_pause_is_told_and_not_sent(quiet: House, message: str) -> None:
    async with quiet.context("messenger").db.work() as connection:
        await breakers.heed(connection, "telegram", LOCKED_OUT, STANDARD)
    told = await in_queue(quiet, message)
    await quiet.sql.execute(PAST, told)
    await work(quiet.worker())
    assert await quiet.status(told) == "queued"
    async with quiet.context("messenger").db.work() as connection:
        await expire.end_late(connection)
    assert (await quiet.status(told), (await quiet.delivery(told))["status"]) == ("error", "expired")
    assert quiet.sent(message) == []


async def test_a_channel_that_answers_and_takes_nothing_pauses_again_at_once(quiet: House) -> None:
    channel, told = Probed(works=True), 0
    for failures in (breakers.MOST_FAILURES, 1, 1):
        for _ in range(failures):
            assert not await stands(quiet)
            await heed(quiet, DOWN)
        assert await stands(quiet)
        told += await tell(quiet)
        await quiet.sql.execute(PROBE)
        await probed(quiet, channel)
    assert told == 1, "of a channel that is lost again and again the owner hears once"
    await heed(quiet, Receipt("1"))
    assert await quiet.sql.fetchrow(PAUSE, "telegram") is None
    await heed(quiet, DOWN)
    assert not await stands(quiet), "what works again may fail again"
    await heed(quiet, Receipt("2"))


async def test_of_a_pause_long_after_another_the_owner_hears_anew(quiet: House) -> None:
    for before, told in (("", 1), ("", 0), (LONG_AGO, 1)):
        if before:
            await quiet.sql.execute(before)
        await heed(quiet, LOCKED_OUT)
        assert await tell(quiet) == told
        await quiet.sql.execute(PROBE)
        await probed(quiet, Probed(works=True))


async def test_that_a_hand_is_needed_is_told_whatever_was_told_before(quiet: House) -> None:
    for _ in range(breakers.MOST_FAILURES):
        await heed(quiet, DOWN)
    await quiet.sql.execute(TWO_PROBES)
    assert await tell(quiet) == 1
    await quiet.sql.execute(PROBE)
    await probed(quiet, Probed(works=True))
    await heed(quiet, LOCKED_OUT)
    assert await tell(quiet) == 1
    async with quiet.context("messenger").db.work() as connection:
        await connection.execute(breakers.STILL, "telegram", "unreachable", "nobody there")
    assert await tell(quiet) == 0
    async with quiet.context("messenger").db.work() as connection:
        await connection.execute(breakers.STILL, "telegram", "unauthorized", "Unauthorized")
    assert await tell(quiet) == 1


async def test_what_was_to_be_told_and_was_over_too_soon_is_told_of_the_next_pause(quiet: House) -> None:
    await heed(quiet, LOCKED_OUT)
    assert await tell(quiet) == 1
    await quiet.sql.execute(PROBE)
    await probed(quiet, Probed(works=True))
    async with asyncio.timeout(LONGEST):
        while (card := await quiet.row(LAST_CARD))["status"] == "queued":
            await work(quiet.worker())  # the owner's other mail goes before
    assert card["reason"] == "pause_over"
    await heed(quiet, LOCKED_OUT)
    assert await tell(quiet) == 1


async def heed(house: House, result: Receipt | SendFailed) -> None:
    async with house.context("messenger").db.work() as connection:
        await breakers.heed(connection, "telegram", result, STANDARD)


async def stands(house: House) -> bool:
    async with house.context("messenger").db.work() as connection:
        return await breakers.stands(connection, "telegram")


async def probed(house: House, channel: Probed) -> None:
    """The loop of pauses, until it has probed this channel and let it go on."""
    stopping, before = asyncio.Event(), channel.probes
    looking = asyncio.ensure_future(
        circuit_breaker.run(house.context("messenger"), {"telegram": channel}, channel.paused, stopping)
    )
    await until(lambda: channel.probes > before or None)
    while await stands(house):
        await asyncio.sleep(0.02)
    stopping.set()
    await looking


async def test_who_waits_for_a_channel_that_does_not_work_is_told_so_at_once(cluster: Cluster, message: str) -> None:
    async with opened(cluster) as house:
        await house.box.api("faults", channel="telegram", stage="getMe", fault="401", times=1000)
        async with house.context("messenger").db.work() as connection:
            await breakers.heed(connection, "telegram", LOCKED_OUT, STANDARD)
        answer, seconds = await timed(house, message)
        assert (answer["status"], answer["message"]) == ("queued", answers.PAUSED)
        assert seconds < STANDARD.messenger_wait, "nobody waited the whole time"
        await house.box.http.delete(f"{house.box.url}/api/faults")
        await house.sql.execute(PROBE)
        await house.settled(answer["notification_id"], "ok")
        assert len(house.sent(message)) == 1


async def timed(house: House, message: str) -> tuple[Answer, float]:
    """The answer, and after how many seconds it came."""
    started = time.monotonic()
    return await house.notify(message=message), time.monotonic() - started


async def test_the_word_of_a_pause_is_kept_nowhere(quiet: House, message: str) -> None:
    async with quiet.context("messenger").db.work() as connection:
        await breakers.heed(connection, "telegram", LOCKED_OUT, STANDARD)
    told = await quiet.notify(message=message)
    assert (told["status"], told["message"]) == ("queued", answers.PAUSED)
    kept = (await quiet.row(ANSWER, told["notification_id"]))["answer"]
    assert kept["message"] == answers.ACCEPTED, "whoever asks once it is lifted is not told of it"


async def test_five_failures_in_a_row_pause_it_and_a_success_between_starts_anew(quiet: House) -> None:
    down = SendFailed("unavailable", "refused", proved_not_sent=True, is_down=True)
    other = SendFailed("provider_rejected", "chat not found", proved_not_sent=True)
    for results, paused in (([down] * 4, False), ([other, *[down] * 4], False), ([down], True)):
        for result in results:
            async with quiet.context("messenger").db.work() as connection:
                await breakers.heed(connection, "telegram", result, STANDARD)
        assert ((await quiet.row(PAUSE, "telegram"))["since"] is not None) is paused
    assert await tell(quiet) == 0, "what comes back at the first probes is not worth a message"


@pytest.mark.parametrize("reason", ["server_error", "timeout", "connection_lost", "unreadable"])
async def test_what_nobody_answered_for_counts_as_a_failure_until_the_next_receipt(
    quiet: House, reason: Reason
) -> None:
    unknown = SendFailed(reason, "half a character \ud800 and \0", proved_not_sent=False)
    put_off = SendFailed("rate_limited", "later", proved_not_sent=True)
    rounds: list[tuple[list[Receipt | SendFailed], bool]] = [
        ([unknown, Receipt("1")] * 6, False),
        ([unknown] * 4, False),
        ([put_off] * 6, False),
        ([unknown], True),
    ]
    for results, paused in rounds:
        for result in results:
            async with quiet.context("messenger").db.work() as connection:
                await breakers.heed(connection, "telegram", result, STANDARD)
        assert bool(await quiet.sql.fetchval(f"SELECT since IS NOT NULL FROM ({PAUSE}) p", "telegram")) is paused


async def test_of_many_messages_in_an_outage_few_become_uncertain_and_the_rest_goes_out_after_it(
    quiet: House, message: str
) -> None:
    told = [await in_queue(quiet, message) for _ in range(loop.AT_ONCE + 8)]
    await quiet.fault(message, "502")
    worker = quiet.worker()
    for _ in range(3):
        await work(worker)
    stands = Counter([(await quiet.delivery(one))["status"] for one in told])
    waits = stands["queued"]
    assert stands == {"uncertain": len(told) - waits, "queued": waits}
    assert stands["uncertain"] <= loop.AT_ONCE
    await quiet.box.http.delete(f"{quiet.box.url}/api/faults")
    async with at_work(quiet.worker()):
        await until(lambda: len(quiet.sent(message)) == waits or None)
    stands = Counter([(await quiet.delivery(one))["status"] for one in told])
    assert stands == {"uncertain": len(told) - waits, "sent": waits}


async def test_failures_of_more_than_ten_minutes_ago_do_not_count(quiet: House) -> None:
    down = SendFailed("unavailable", "refused", proved_not_sent=True, is_down=True)
    for n in range(6):
        async with quiet.context("messenger").db.work() as connection:
            await breakers.heed(connection, "telegram", down, STANDARD)
            if n == 3:
                await connection.execute(LONG_AGO)
    row = await quiet.row(PAUSE, "telegram")
    assert (row["failures"], row["since"]) == (2, None)


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["telegram", "email"])
async def test_a_closed_port_pauses_and_the_first_goes_out_by_the_second_probe_after_its_opening(
    quiet: House, message: str, channel: str
) -> None:
    gate = Gate(quiet.box.port if channel == "telegram" else quiet.box.smtp_port)
    await gate.open()
    gate.shut()
    where = f"127.0.0.1:{gate.port}"
    way = TelegramChannel(f"http://{where}", SANDBOX_TOKEN) if channel == "telegram" else _mail(where)
    worker = quiet.worker(**{channel: way})
    worker.context = quiet.context("messenger", probe=PROBING.probe)
    told = [await in_queue(quiet, message, channel=channel) for _ in range(6)]
    async with AsyncExitStack() as held:
        shown = await held.enter_async_context(at_work(worker))
        await until(lambda: shown.get(channel))
        await gate.open()
        held.callback(gate.shut)
        opened_at = await quiet.sql.fetchval("SELECT clock_timestamp()")
        [first_sent_at] = await eventually(lambda: quiet.sql.fetchrow(ALL_SENT, told))
        assert len(quiet.sent(message)) == 6
        assert first_sent_at - opened_at < 2 * PROBING.probe + A_MOMENT
        await until(lambda: not shown or None)


def _mail(where: str) -> EmailChannel:
    return EmailChannel.from_url(f"smtp://{where}")


async def taken(house: House, both: list[Probed]) -> int:
    """How many took a probe that is due, before the next one was."""
    before = sum(one.probes for one in both)
    due_at = await house.sql.fetchval(f"{PROBE} RETURNING next_probe_at")
    await until(lambda: sum(one.probes for one in both) > before or None)
    await asyncio.sleep(0.5)  # five more looks of each
    count = sum(one.probes for one in both) - before
    in_time = await house.sql.fetchval("SELECT clock_timestamp() < $1::timestamptz + $2", due_at, STANDARD.probe)
    return count if in_time else await taken(house, both)


async def test_of_two_messengers_one_takes_the_probe(quiet: House) -> None:
    async with quiet.context("messenger").db.work() as connection:
        await breakers.heed(connection, "telegram", LOCKED_OUT, STANDARD)
    both, stopping, context = [Probed(), Probed()], asyncio.Event(), quiet.context("messenger")
    loops = [
        asyncio.ensure_future(circuit_breaker.run(context, {"telegram": one}, one.paused, stopping)) for one in both
    ]
    await until(lambda: all(one.paused for one in both) or None)
    assert await taken(quiet, both) == 1
    for one in both:
        one.works = True
    await quiet.sql.execute(PROBE)
    await until(lambda: not any(one.paused for one in both) or None)
    stopping.set()
    await asyncio.gather(*loops)


async def test_the_owner_is_told_once_per_pause_by_the_other_channel(quiet: House, message: str) -> None:
    told = await in_queue(quiet, message)
    await quiet.fault(message, "401", times=1)
    await work(quiet.worker())
    assert [await tell(quiet), await tell(quiet)] == [1, 0]
    for _ in range(3):
        await work(quiet.worker())
    mails = mails_about(quiet, "does not accept the bot's token")
    assert len(mails) == 1
    assert all(words in str(mails) for words in ("BUTLERS_TELEGRAM_TOKEN", "1 message waiting", "Unauthorized"))
    assert (await quiet.delivery(told))["status"] == "queued"


async def test_a_pause_that_is_over_is_not_told_any_more(quiet: House) -> None:
    async with quiet.context("messenger").db.work() as connection:
        await breakers.heed(connection, "email", SendFailed("unauthorized", "535 no", proved_not_sent=True), STANDARD)
    assert await tell(quiet) == 1
    await quiet.sql.execute(FREE)
    await work(quiet.worker())
    assert not any("does not accept the login" in str(line) for line in quiet.box.sandbox.lines)
    row = await quiet.row(LAST_CARD)
    assert (row["status"], row["reason"]) == ("cancelled", "pause_over")


async def test_readyz_and_metrics_show_it(quiet: House) -> None:
    context, paused = quiet.context("messenger"), dict[str, str]()
    async with context.db.work() as connection:
        await breakers.heed(connection, "email", SendFailed("unauthorized", "535 no", proved_not_sent=True), STANDARD)
    stopping = asyncio.Event()
    loop = asyncio.ensure_future(circuit_breaker.run(context, {"email": Probed("email")}, paused, stopping))
    shown = await until(lambda: paused.get("email"))
    stopping.set()
    await loop
    assert shown.startswith("The mail server cannot be reached. Paused since ")
    assert await admitted(quiet, "words", contact_id=await quiet.contact("Seen", telegram=new_chat()))
