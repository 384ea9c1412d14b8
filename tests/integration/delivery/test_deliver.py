"""Stages 7 to 10: nothing leaves before its marker, nothing of which it is unknown leaves twice."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import asyncpg
import pytest

from messenger.channels.email import EmailChannel
from messenger.channels.telegram import TelegramChannel
from messenger.delivery import loop
from messenger.delivery.lease import Worker
from messenger.storage import deliveries
from shared import answers
from shared.config.timings import STANDARD
from shared.contracts import NotifyResponse, wire
from tests.integration.house import House
from tests.integration.workers import (
    ACTION,
    DUE,
    admitted,
    due,
    enqueue,
    friend,
    in_queue,
    lose_lease,
    new_chat,
    reap,
    work,
    worker_where,
)
from tests.rig.waiting import LONGEST, eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MARKED = "SELECT count(*) FROM messenger.attempts WHERE marked_at IS NOT NULL AND ended_at IS NULL"
# How many of this database's connections wait for a lock.
WAITING = """
SELECT count(DISTINCT w.pid) FROM pg_locks w JOIN pg_locks o USING (pid) JOIN pg_database d ON d.oid = o.database
WHERE NOT w.granted AND d.datname = current_database()
"""
# A first failure is not tried again before this.
WAITS = """
SELECT d.send_at >= a.ended_at + interval '0.5 seconds' AS waits
FROM messenger.deliveries d JOIN messenger.attempts a ON a.delivery_id = d.id WHERE d.notification_id = $1
"""
NOT_DUE = "UPDATE messenger.deliveries SET send_at = clock_timestamp() + interval '1 hour' WHERE notification_id = $1"
SENDER = "UPDATE shared.channels SET sender = $1 WHERE channel = 'email'"


@asynccontextmanager
async def provider(house: House, answer: bytes, whole: Callable[[bytes], bool]) -> AsyncIterator[tuple[str, list[int]]]:
    """A provider's address, and how many markers another connection saw whenever it held a whole message."""
    seen: list[int] = []
    other = await asyncpg.connect(house.dsn)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = b""
        while piece := await reader.read(65536):
            got += piece
            if whole(got):
                seen.append(await other.fetchval(MARKED))
                writer.write(answer)
                got = b""
            elif answer.startswith(b"250"):
                got, reply = _smtp(got)
                writer.write(reply)
        writer.close()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer.startswith(b"250"):
            writer.write(b"220 provider\r\n")
        await serve(reader, writer)

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
    finally:
        server.close()
        await other.close()


def _smtp(got: bytes) -> tuple[bytes, bytes]:
    """What is left of a mail under way, and the reply to the command that came."""
    if not got.endswith(b"\r\n") or b"\r\n\r\n" in got or got.startswith(b"Date:"):
        return got, b""
    return b"", b"354 go on\r\n" if got.startswith(b"DATA") else b"250 fine\r\n"


def _whole_request(got: bytes) -> bool:
    head, blank, body = got.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"Content-Length" in line), 0)
    return bool(blank) and len(body) >= length


def desk_where_it_is_cut(house: House, words: str) -> Worker:
    """A worker that comes to its marker when a fault for these words has cut the connection, however slow that is."""

    async def cut() -> None:
        await until(lambda: all(words not in fault.match for fault in house.box.sandbox.faults.armed()))

    return worker_where(house, cut)


async def test_the_marker_is_committed_before_telegram_has_the_last_byte(still_house: House, message: str) -> None:
    body = b'{"ok":true,"result":{"message_id":17}}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    async with provider(still_house, answer, _whole_request) as (where, seen):
        told = await in_queue(still_house, message)
        await work(still_house.worker(telegram=TelegramChannel(f"http://{where}", "1:t")))
        assert seen == [1]
        assert (await still_house.delivery(told))["status"] == "sent"


async def test_the_marker_is_committed_before_the_mail_server_has_the_dot(still_house: House, message: str) -> None:
    async with provider(still_house, b"250 queued\r\n", lambda got: got.endswith(b"\r\n.\r\n")) as (where, seen):
        told = await in_queue(still_house, message, channel="email")
        await work(still_house.worker(email=EmailChannel.from_url(f"smtp://{where}")))
        assert seen == [1]
        assert (await still_house.delivery(told))["status"] == "sent"


async def test_a_lease_lost_before_the_marker_sends_nothing_and_another_takes_over(
    still_house: House, message: str
) -> None:
    told = await in_queue(still_house, message)
    await work(worker_where(still_house, lambda: lose_lease(still_house, told)))
    assert still_house.sent(message) == []
    assert await reap(still_house) == 1
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_whoever_slept_past_its_lease_does_not_write_the_last_byte(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)

    async def sleep_long() -> None:
        worker.held.clear()

    worker = worker_where(still_house, sleep_long)
    await work(worker)
    row = await still_house.delivery(told)
    assert (still_house.sent(message), row["status"], row["reason"]) == ([], "queued", "unavailable")
    await still_house.sql.execute(DUE, told)
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


@pytest.mark.parametrize("fault", ["accept_reset", "500_accepted", "garbage"])
async def test_what_may_have_arrived_is_uncertain_and_never_sent_again(
    still_house: House, message: str, fault: str
) -> None:
    told = await in_queue(still_house, message)
    await still_house.fault(message, fault, times=1)
    worker = still_house.worker()
    await work(worker)
    assert (await still_house.delivery(told))["status"] == "uncertain"
    assert await still_house.status(told) == "uncertain"
    await still_house.sql.execute(DUE, told)
    await reap(still_house)
    await work(worker)
    await enqueue(still_house, told)
    await work(worker)
    assert len(still_house.sent(message)) == 1


async def test_no_answer_in_time_is_uncertain_and_never_sent_again(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    await still_house.fault(message, "accept_hang", times=1)
    worker = still_house.worker(telegram=TelegramChannel(still_house.box.url, "1:t", answer_timeout=0.1))
    await work(worker)
    row = await still_house.delivery(told)
    assert (row["status"], row["reason"]) == ("uncertain", "timeout")
    await still_house.sql.execute(DUE, told)
    await work(worker)
    assert len(still_house.sent(message)) == 1


async def test_a_mail_cut_after_its_dot_is_uncertain(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message, channel="email")
    await still_house.fault(message, "accept_reset", stage="dot", times=1)
    await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "uncertain"
    assert len(still_house.sent(message)) == 1


@pytest.mark.parametrize(
    ("fault", "reason"), [("429", "rate_limited"), ("401", "unauthorized"), ("drop_before_body", "unavailable")]
)
async def test_what_is_proved_not_sent_waits_and_goes_out_once(
    still_house: House, message: str, fault: str, reason: str
) -> None:
    told = await in_queue(still_house, message)
    await still_house.fault(message, fault, times=1)
    cut = fault == "drop_before_body"
    worker = desk_where_it_is_cut(still_house, message) if cut else still_house.worker()
    await work(worker)
    row = await still_house.delivery(told)
    assert (row["status"], row["reason"], still_house.sent(message)) == ("queued", reason, [])
    assert (await still_house.row(WAITS, told))["waits"] is True
    assert await still_house.status(told) == "queued"
    await due(still_house, told)
    await work(worker)
    await work(worker)
    assert (await still_house.status(told), len(still_house.sent(message))) == ("ok", 1)


async def test_a_refusal_ends_it_and_gives_the_rule_its_use_back(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message, contact_id=await friend(still_house, max_uses=1))
    await still_house.fault(message, "403", times=1)
    await work(still_house.worker())
    answer = (await still_house.row("SELECT answer FROM shared.notifications WHERE id = $1", told))["answer"]
    assert (answer["error"]["class"], answer["error"]["retryable"]) == ("provider_rejected", False)
    used = await still_house.row("SELECT count(*) AS n FROM shared.rule_uses WHERE notification_id = $1", told)
    assert ((await still_house.delivery(told))["status"], used["n"]) == ("failed", 0)


async def test_bytes_that_changed_before_the_marker_do_not_leave(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message, channel="email")
    try:
        await work(worker_where(still_house, lambda: still_house.sql.execute(SENDER, "new@sandbox.test")))
        assert still_house.sent(message) == []
        await lose_lease(still_house, told)
        await reap(still_house)
        await work(still_house.worker())
    finally:
        await still_house.sql.execute(SENDER, "butlers@sandbox.test")
    assert [line["payload"]["from"] for line in still_house.sent(message)] == ["new@sandbox.test"]  # type: ignore[index]


async def test_bytes_that_the_owner_did_not_approve_are_asked_for_again(still_house: House, message: str) -> None:
    contact = await still_house.contact("Approved", email=f"{uuid4().hex}@example.org")
    told = await admitted(still_house, message, channel="email", contact_id=contact)
    action = await still_house.row(ACTION, told)
    assert (await still_house.decide(action["id"])).code == "approved"
    try:
        await still_house.sql.execute(SENDER, "new@sandbox.test")
        await enqueue(still_house, told)
        await work(still_house.worker())
    finally:
        await still_house.sql.execute(SENDER, "butlers@sandbox.test")
    again = await still_house.row(ACTION, told)
    assert (again["id"], again["status"], again["revision"]) == (action["id"], "pending", 2)
    assert (await still_house.status(told), still_house.sent(message)) == ("pending_approval", [])


async def test_an_approval_of_other_content_parks_again(still_house: House, message: str) -> None:
    contact = await still_house.contact("Moved", telegram=new_chat())
    told = await admitted(still_house, message, contact_id=contact)
    action = await still_house.row(ACTION, told)
    assert (await still_house.decide(action["id"])).code == "approved"
    await still_house.sql.execute(
        "UPDATE shared.contact_info SET value = $2 WHERE contact_id = $1", contact, new_chat()
    )
    await enqueue(still_house, told)
    await work(still_house.worker())
    again = await still_house.row(ACTION, told)
    assert (again["status"], again["revision"], again["wire_shas"]) == ("pending", 2, None)
    assert (await still_house.status(told), still_house.sent(message)) == ("pending_approval", [])


@pytest.mark.parametrize(
    ("change", "status", "answer"),
    [
        ("UPDATE shared.approval_rules SET active = false WHERE id = $1", "parked", "pending_approval"),
        ("UPDATE shared.approval_rules SET effect = 'deny' WHERE id = $1", "refused", "error"),
        ("UPDATE shared.approval_rules SET expires_at = now() WHERE id = $1", "parked", "pending_approval"),
        ("DELETE FROM shared.approval_rules WHERE id = $1", "parked", "pending_approval"),
    ],
)
async def test_what_the_owner_changes_before_the_marker_counts(
    still_house: House, message: str, change: str, status: str, answer: str
) -> None:
    contact = await still_house.contact("Ruled", telegram=new_chat())
    rule = await still_house.rule({"contact_id": contact})
    told = await in_queue(still_house, message, contact_id=contact)
    await work(worker_where(still_house, lambda: still_house.sql.execute(change, rule)))
    assert still_house.sent(message) == []
    assert (await still_house.delivery(told))["status"] == status
    assert await still_house.status(told) == answer


async def test_a_rule_revoked_with_a_hundred_queued_lets_none_of_them_out(still_house: House, message: str) -> None:
    domain = f"{uuid4().hex[:12]}.example.org"
    rule = await still_house.rule({"recipient": {"type": "domain", "value": domain}})
    told = [await in_queue(still_house, message, channel="email", recipient=f"a{n}@{domain}") for n in range(100)]
    await still_house.sql.execute("UPDATE shared.approval_rules SET active = false WHERE id = $1", rule)
    worker = still_house.worker()
    async with asyncio.timeout(LONGEST):
        while {await still_house.status(one) for one in told} != {"pending_approval"}:
            await work(worker)
    assert still_house.sent(message) == []


async def test_an_address_changed_before_the_marker_is_not_written_to(still_house: House, message: str) -> None:
    contact, moved = await friend(still_house), new_chat()
    told = await in_queue(still_house, message, contact_id=contact)
    change = "UPDATE shared.contact_info SET value = $2 WHERE contact_id = $1"
    await work(worker_where(still_house, lambda: still_house.sql.execute(change, contact, moved)))
    assert still_house.sent(message) == []
    await work(still_house.worker())
    assert [line["to"] for line in still_house.sent(message)] == [moved]
    assert await still_house.status(told) == "ok"


async def test_a_rule_with_one_use_left_lets_exactly_one_of_twenty_out(house: House, message: str) -> None:
    domain = f"{uuid4().hex[:12]}.example.org"
    rule = await house.rule({"recipient": {"type": "domain", "value": domain}}, max_uses=1)
    calls = (house.notify(channel="email", message=message, recipient=f"a{n}@{domain}") for n in range(20))
    told = [answer["notification_id"] for answer in await asyncio.gather(*calls)]
    ends = [await house.settled(one, "ok", "pending_approval", "error", "uncertain") for one in told]
    assert Counter(ends) == {"ok": 1, "pending_approval": 19}
    assert len(house.sent(message)) == 1
    assert (await house.row("SELECT count(*) AS n FROM shared.rule_uses WHERE rule_id = $1", rule))["n"] == 1


async def test_two_markers_at_one_rule_count_its_uses_one_after_the_other(still_house: House, message: str) -> None:
    """Both have looked, and found one use left, before either may count."""
    domain = f"{uuid4().hex[:12]}.example.org"
    rule = await still_house.rule({"recipient": {"type": "domain", "value": domain}}, max_uses=1)
    told = [await in_queue(still_house, message, channel="email", recipient=f"a{n}@{domain}") for n in range(2)]
    worker = still_house.worker()
    async with still_house.sql.transaction():
        await still_house.sql.execute("SELECT FROM shared.approval_rules WHERE id = $1 FOR UPDATE", rule)
        await loop.claim_some(worker)
        await eventually(partial(still_house.sql.fetchval, f"SELECT ({WAITING}) = 2"))
    await asyncio.gather(*worker.tasks)
    assert sorted([await still_house.status(one) for one in told]) == ["ok", "pending_approval"]
    assert len(still_house.sent(message)) == 1


async def test_per_address_the_order_is_kept_and_a_retry_keeps_its_place(still_house: House, message: str) -> None:
    contact = await friend(still_house)
    told = [await in_queue(still_house, f"{message} {n}", contact_id=contact) for n in range(3)]
    await still_house.fault(f"{message} 0", "drop_before_body", times=1)
    worker = desk_where_it_is_cut(still_house, message)
    await work(worker)
    row = await still_house.delivery(told[0])
    assert (row["status"], row["attempt"]) == ("queued", 1)
    await still_house.sql.execute(NOT_DUE, told[0])
    await work(worker)
    assert still_house.sent(message) == []
    await due(still_house, told[0])
    for _ in told:
        await work(worker)
    texts = [str(line["payload"]["text"]) for line in still_house.sent(message)]  # type: ignore[index]
    assert texts == [f"{message} {n}" for n in range(3)]


async def test_per_address_one_is_in_flight(still_house: House, message: str) -> None:
    contact = await friend(still_house)
    told = [await in_queue(still_house, f"{message} {n}", contact_id=contact) for n in range(3)]
    async with still_house.context("messenger").db.work() as connection:
        taken = await deliveries.claim(connection, "nobody", {"telegram": 16, "email": 16}, STANDARD)
    assert [one.notification_id for one in taken] == [told[0]]
    await lose_lease(still_house, told[0])
    await reap(still_house)
    for _ in told:
        await work(still_house.worker())
    assert len(still_house.sent(message)) == 3


async def test_two_desks_that_race_deliver_each_once(still_house: House, message: str) -> None:
    told = [await in_queue(still_house, f"{message} {n}") for n in range(20)]
    stopping = asyncio.Event()
    workers = [asyncio.create_task(loop.run(still_house.worker(), stopping)) for _ in range(2)]
    await until(lambda: len(still_house.sent(message)) >= len(told))
    stopping.set()
    await asyncio.gather(*workers)
    assert {await still_house.status(one) for one in told} == {"ok"}
    assert len(still_house.sent(message)) == 20
    attempts = [(await still_house.delivery(one))["attempt"] for one in told]
    assert attempts == [1] * 20


async def test_who_waits_is_woken_with_the_answer_that_is_stored(still_house: House, message: str) -> None:
    told = await admitted(still_house, message, recipient=new_chat())
    await still_house.sql.execute("UPDATE shared.notifications SET owner_text = 'other words' WHERE id = $1", told)
    for code in ("changed", "approved"):
        assert (await still_house.decide((await still_house.row(ACTION, told))["id"])).code == code
    await enqueue(still_house, told)
    ticket = still_house.context("messenger").wakes["settled"].ticket(told)
    await work(still_house.worker())
    stored = await still_house.row("SELECT answer FROM shared.notifications WHERE id = $1", told)
    assert isinstance(ticket.news, NotifyResponse)
    assert wire(ticket.news) == stored["answer"]
    assert ticket.news.note == answers.OWNER_CHANGED + "other words"
