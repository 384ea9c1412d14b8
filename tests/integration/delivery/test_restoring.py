"""Rows that are behind the witness: the house is restored, once, whoever finds it and however it is told."""

import asyncio
import fcntl
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from messenger.channels.base import Channel, Prepared, Receipt, SendFailed, StillHeld, unconditionally
from messenger.delivery import restored
from messenger.delivery.witness import Witness
from messenger.maintenance.sealer import seal
from shared.auth import keystore
from shared.channels.base import Wire
from shared.db import witness
from shared.db.witness import Seen
from shared.errors import Unavailable
from shared.storage import brakes, contacts, pending_actions
from shared.storage.brakes import HOLD_MARKERS, Scope
from shared.storage.restored import LEAP
from tests.integration.house import House, opened
from tests.integration.workers import admitted, due, enqueue, friend, in_queue, lose_lease, reap, work, worker_where
from tests.rig.cluster import Cluster
from tests.rig.waiting import eventually, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEAT = "SELECT beat FROM messenger.witness"
MARKED = "SELECT count(*) FROM messenger.attempts WHERE marked_at IS NOT NULL AND ended_at IS NULL"
# A marker waits for its lock.
WAITS = "SELECT count(*) FROM pg_locks WHERE relation = 'shared.authority'::regclass AND NOT granted"
PUT_BACK = "UPDATE messenger.witness SET beat = $1"
NO_SEALS = "BEGIN; SET LOCAL session_replication_role = replica; DELETE FROM shared.audit_seals; COMMIT"
BEHIND = "UPDATE messenger.witness SET beat = beat - 1"
RESTORED = "SELECT count(*) FROM shared.brakes WHERE reason = 'restored'"
STANDING = "SELECT count(*) FROM shared.brakes WHERE reason = 'restored' AND lifted_at IS NULL"
ACTION = "SELECT id::text, status, revision, agent_summary FROM shared.pending_actions WHERE notification_id = $1"
A_DAY_AGO = "UPDATE shared.brakes SET made_at = made_at - interval '2 days', lifted_at = lifted_at - interval '1 day'"
PRESSED = """
INSERT INTO messenger.updates (bot, update_id, body) VALUES ('1', $1, '{"callback_query": {}}'), ('1', $2, '{}')
"""
UPDATES = "SELECT outcome FROM messenger.updates WHERE update_id = ANY ($1) ORDER BY update_id"
CARDS = "SELECT channel FROM messenger.deliveries WHERE class = 'card' AND about IS NULL AND action_id IS NULL"
NO_CARDS = """
DELETE FROM messenger.deliveries WHERE class = 'card' AND about IS NULL AND action_id IS NULL AND digest_id IS NULL
"""


@pytest_asyncio.fixture(loop_scope="module")
async def house(cluster: Cluster) -> AsyncIterator[House]:
    """A house of the test's own in which nothing moves by itself."""
    async with opened(cluster, loops=False) as made:
        yield made


def watching(house: House, other: Path | None = None) -> Witness:
    """The witness of one more Messenger of this home."""
    return Witness(witness.places(house.settings.home, "messenger", other))


def seen(house: House) -> Seen:
    found = witness.furthest(witness.places(house.settings.home, "messenger", None))
    assert found is not None
    return found


def bring_back(house: House, what: Seen) -> None:
    """Put the file of another day in its place."""
    (keystore.folder(house.settings.home, "messenger") / "witness").write_text(json.dumps(asdict(what)))


@contextmanager
def standing_still(house: House) -> Iterator[None]:
    """Another Messenger of this home stands still while it writes the file."""
    with (keystore.folder(house.settings.home, "messenger") / ".witness.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(slots=True)
class Looking:
    """A way out of which somebody looks at everything right before the last byte."""

    inner: Channel
    look: Callable[[], Awaitable[None]]
    name: str = "looking"

    async def prepare(self, wire: Wire) -> Prepared | SendFailed:
        prepared = await self.inner.prepare(wire)
        return prepared if isinstance(prepared, SendFailed) else Last(prepared, self.look)

    async def probe(self) -> SendFailed | None:
        return await self.inner.probe()

    async def close(self) -> None:
        await self.inner.close()


@dataclass(slots=True)
class Last:
    """What such a way out has prepared."""

    inner: Prepared
    look: Callable[[], Awaitable[None]]

    async def finish(self, still_held: StillHeld = unconditionally) -> Receipt | SendFailed:
        await self.look()
        return await self.inner.finish(still_held)

    async def abandon(self) -> None:
        await self.inner.abandon()


async def found_restored(house: House) -> None:
    """A Messenger starts on rows that are behind."""
    await watching(house).open(house.context("messenger"))
    await house.sql.execute(BEHIND)
    await watching(house).open(house.context("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def lifted(house: House) -> None:
    owner = await contacts.owner(house.sql)
    assert owner is not None
    await brakes.lift(house.sql, Scope(), str(owner["id"]))


async def test_a_first_start_writes_it_and_a_second_finds_it(house: House) -> None:
    for _ in range(2):
        await watching(house).open(house.context("messenger"))
        assert seen(house).beat == await house.sql.fetchval(BEAT)
    assert await house.sql.fetchval(RESTORED) == 0
    assert seen(house).system.isdecimal()


async def test_a_marker_to_others_moves_it_and_one_to_the_owner_does_not(house: House, message: str) -> None:
    worker = house.worker()
    await worker.witness.open(house.context("messenger"))
    told = await admitted(house, message)
    await enqueue(house, told)
    await work(worker)
    assert await house.status(told) == "ok"
    assert await house.sql.fetchval(BEAT) == 1
    for beat in (2, 3):
        await in_queue(house, message)
        await work(worker)
        assert (await house.sql.fetchval(BEAT), seen(house).beat) == (beat, beat)


async def test_before_the_last_byte_the_file_knows_the_marker(house: House, message: str) -> None:
    async def look() -> None:
        assert (seen(house).beat, await house.sql.fetchval(MARKED)) == (await house.sql.fetchval(BEAT), 1)
        said.append(seen(house).beat)

    said: list[int] = []
    worker = house.worker(telegram=Looking(house.worker().channels["telegram"], look))
    await worker.witness.open(house.context("messenger"))
    await in_queue(house, message)
    await work(worker)
    assert said == [2]


async def test_rows_of_a_moment_before_the_marker_are_behind(house: House, message: str) -> None:
    worker = house.worker()
    await worker.witness.open(house.context("messenger"))
    await in_queue(house, message)
    async with asyncpg.create_pool(house.dsn, min_size=1, max_size=1) as pool, pool.acquire() as holder:
        async with holder.transaction():
            await holder.execute(HOLD_MARKERS)
            sending = asyncio.create_task(work(worker))
            await eventually(lambda: house.sql.fetchval(WAITS))
            kept = await house.sql.fetchval(BEAT)
        await sending
    assert len(house.sent(message)) == 1
    await house.sql.execute(PUT_BACK, kept)
    await watching(house).open(house.context("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def test_where_nobody_knows_of_the_marker_its_byte_stays(house: House, message: str) -> None:
    async def lost() -> None:
        worker.witness.paths = (house.settings.home / "nowhere" / "witness",)

    worker = worker_where(house, lost)
    await worker.witness.open(house.context("messenger"))
    there = worker.witness.paths
    told = await in_queue(house, message)
    await work(worker)
    row = await house.delivery(told)
    assert (row["status"], row["reason"], house.sent(message)) == ("queued", "unavailable", [])
    assert "cannot be written" in worker.witness.trouble
    worker.witness.paths = there
    await due(house, told)
    await house.worker().witness.open(house.context("messenger"))
    assert await house.sql.fetchval(RESTORED) == 0
    held = house.worker()
    await work(held)
    assert (await house.status(told), len(house.sent(message))) == ("ok", 1)


async def test_markers_of_the_same_moment_share_what_is_written(house: House) -> None:
    context, held = house.context("messenger"), watching(house)
    await held.open(context)

    async def marked() -> int:
        async with context.db.work() as connection:
            moved = await held.move(connection)
        await held.keep(moved)
        return seen(house).beat - moved.beat

    said: set[int] = set()
    with standing_still(house):
        markers = [asyncio.ensure_future(marked()) for _ in range(20)]
        while await house.sql.fetchval(BEAT) < 21:
            await asyncio.sleep(0.01)
    while not all(one.done() for one in markers):
        said.add(await asyncio.to_thread(lambda: seen(house).beat))
    assert min(one.result() for one in markers) >= 0
    assert seen(house).beat == 21
    assert len(said - {1, 21}) <= 1  # the first writes for itself, the next for all


async def test_it_never_goes_back_whoever_writes(house: House) -> None:
    context, late = house.context("messenger"), watching(house)
    await late.open(context)
    async with context.db.work() as connection:
        moved = await late.move(connection)
    await watching(house).open(context)
    await late.keep(moved)
    assert moved.beat + 1 == seen(house).beat == await house.sql.fetchval(BEAT)


async def test_one_who_stands_still_while_it_writes_is_not_waited_for(house: House, message: str) -> None:
    worker = house.worker()
    await worker.witness.open(house.context("messenger"))
    told = await in_queue(house, message)
    with standing_still(house):
        await work(worker)
    assert (house.sent(message), (await house.delivery(told))["status"]) == ([], "queued")
    assert "another process" in worker.witness.trouble


async def test_an_idle_messengers_file_follows_what_others_do(house: House) -> None:
    context, idle = house.context("messenger"), watching(house)
    await idle.open(context)
    await house.sql.execute("UPDATE messenger.witness SET beat = beat + 5")
    stopping = asyncio.Event()
    following = asyncio.create_task(idle.follow(context, stopping))
    await until(lambda: seen(house).beat == 6)
    stopping.set()
    await following


async def test_what_was_only_sealed_since_the_last_marker_is_known_too(house: House) -> None:
    """Such as a rule that the owner took back, while nothing was sent to others."""
    context, idle, stopping = house.context("messenger"), watching(house), asyncio.Event()
    await idle.open(context)
    following = asyncio.create_task(idle.follow(context, stopping))
    await friend(house)
    made = await seal(house.context("messenger", seal=0.0))
    assert made is not None
    await until(lambda: seen(house).seal == made.n)
    stopping.set()
    await following
    await house.sql.execute(NO_SEALS)
    await watching(house).open(context)
    assert await house.sql.fetchval(STANDING) == 1


async def test_what_waits_for_others_is_uncertain_and_what_waits_for_the_owner_goes(house: House, message: str) -> None:
    contact = await friend(house)
    routed = await in_queue(house, f"{message} routed", contact_id=contact)
    unrouted = await admitted(house, f"{message} unrouted", contact_id=contact)
    own = await admitted(house, f"{message} own")
    approved = await admitted(house, f"{message} approved", contact_id=await house.contact("Anna"))
    await house.decide((await house.row(ACTION, approved))["id"])
    await found_restored(house)
    for one in (routed, unrouted, approved):
        assert await house.status(one) == "uncertain"
        row = await house.delivery(one)
        assert (row["status"], row["reason"], row["attempt"]) == ("uncertain", "restored", 1)
    assert (await house.row(ACTION, approved))["status"] == "uncertain"
    await enqueue(house, own)
    while await house.status(own) == "queued":
        await work(house.worker())  # the word about the backup goes first
    assert await house.status(own) == "ok"
    assert house.sent(f"{message} routed") == []


async def test_what_its_butler_calls_the_owners_is_uncertain_all_the_same(house: House, message: str) -> None:
    told = await in_queue(house, message, contact_id=await friend(house))
    brought = await admitted(house, f"{message} unrouted", contact_id=await friend(house))
    await house.sql.execute("UPDATE shared.notifications SET third_party = false")
    await found_restored(house)
    assert (await house.status(told), await house.status(brought)) == ("uncertain", "uncertain")


async def test_what_is_asked_is_asked_anew_and_no_press_from_before_counts(house: House, message: str) -> None:
    asked = await admitted(house, message, contact_id=await house.contact("Anna"))
    await house.sql.execute(PRESSED, 1, 2)
    await found_restored(house)
    row = await house.row(ACTION, asked)
    assert (row["status"], row["revision"]) == ("pending", 2)
    assert restored.ASKED_BEFORE in row["agent_summary"]
    assert [one["outcome"] for one in await house.sql.fetch(UPDATES, [1, 2])] == ["restored", None]


async def test_the_owner_is_told_by_every_channel_until_the_brake_is_lifted(house: House) -> None:
    await house.sql.execute(NO_CARDS)
    await found_restored(house)
    assert {row["channel"] for row in await house.sql.fetch(CARDS)} == {"telegram", "email"}
    await work(house.worker())
    [told] = [line for line in house.sent("restored backup", "sendMessage") if line["channel"] == "telegram"]
    assert "butlers brake off" in str(told["payload"])


async def test_a_rule_from_before_is_asked_about_until_a_day_after_the_brake(house: House, message: str) -> None:
    contact = await friend(house)
    await found_restored(house)
    braked = await admitted(house, f"{message} braked", contact_id=contact)
    assert await house.status(braked) == "pending_approval"
    await lifted(house)
    soon = await admitted(house, f"{message} soon", contact_id=contact)
    assert await house.status(soon) == "pending_approval"
    other = await house.contact("New")
    await house.rule({"contact_id": other})
    assert await house.status(await admitted(house, f"{message} new rule", contact_id=other)) == "queued"
    await house.sql.execute(A_DAY_AGO)
    assert await house.status(await admitted(house, f"{message} later", contact_id=contact)) == "queued"


async def test_a_home_without_a_witness_fits_only_rows_nobody_has_sent_from(house: House) -> None:
    await watching(house).open(house.context("messenger"))
    (keystore.folder(house.settings.home, "messenger") / "witness").unlink()
    await watching(house).open(house.context("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def test_one_that_cannot_be_read_is_none(house: House) -> None:
    await watching(house).open(house.context("messenger"))
    (keystore.folder(house.settings.home, "messenger") / "witness").write_text("{")
    await watching(house).open(house.context("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def test_one_that_may_not_be_read_is_no_sign_of_anything(house: House) -> None:
    await watching(house).open(house.context("messenger"))
    place = keystore.folder(house.settings.home, "messenger") / "witness"
    place.rename(place.with_name("kept"))
    place.mkdir()
    held = watching(house)
    await held.open(house.context("messenger"))
    assert "cannot be read" in held.trouble
    assert await house.sql.fetchval(STANDING) == 0


async def test_a_second_one_that_is_gone_keeps_everything_from_leaving(house: House, tmp_path: Path) -> None:
    other = tmp_path / "witness"
    await watching(house, other).open(house.context("messenger"))
    other.unlink()
    with pytest.raises(Unavailable, match="is missing"):
        await watching(house, other).ready(house.context("messenger"))
    assert not other.exists()
    await watching(house).open(house.context("messenger"))
    await watching(house, other).ready(house.context("messenger"))
    assert other.exists()


async def test_a_seal_that_is_gone_tells_too(house: House) -> None:
    await watching(house).open(house.context("messenger"))
    bring_back(house, replace(seen(house), seal=1, seal_hash="0" * 64))
    await watching(house).open(house.context("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def test_the_second_place_tells_where_the_first_came_back(house: House, tmp_path: Path) -> None:
    await watching(house, tmp_path / "far").open(house.context("messenger"))
    first = seen(house)
    await watching(house, tmp_path / "far").open(house.context("messenger"))
    bring_back(house, first)
    await house.sql.execute(BEHIND)
    await watching(house, tmp_path / "far").open(house.context("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def test_of_two_messengers_one_finds_it_and_the_other_does_not_find_it_again(house: House) -> None:
    context, two = house.context("messenger"), [watching(house), watching(house)]
    for one in two:
        await one.open(context)
    last = seen(house)
    await house.sql.execute("UPDATE messenger.witness SET beat = 0")
    await asyncio.gather(*(one.open(context) for one in (watching(house), watching(house))))
    assert await house.sql.fetchval(RESTORED) == 1
    assert await house.sql.fetchval(BEAT) >= last.beat + LEAP
    bring_back(house, replace(last, seal=7, seal_hash="x"))
    await watching(house).open(context)
    assert await house.sql.fetchval(RESTORED) == 1


async def test_restored_twice_is_found_twice(house: House) -> None:
    await found_restored(house)
    await lifted(house)
    await house.sql.execute("UPDATE messenger.witness SET beat = 0")
    await watching(house).open(house.context("messenger"))
    assert (await house.sql.fetchval(RESTORED), await house.sql.fetchval(STANDING)) == (2, 1)


async def test_it_is_found_at_the_next_marker_of_a_messenger_that_runs_on(house: House, message: str) -> None:
    told = [await in_queue(house, f"{message} {n}") for n in range(6)]
    context, workers = house.context("messenger"), [house.worker(), house.worker()]
    for worker in workers:
        await worker.witness.open(context)
    await house.sql.execute("UPDATE messenger.witness SET beat = 0")
    async with asyncio.timeout(10):
        await asyncio.gather(*map(work, workers))
    assert house.sent(message) == []
    assert {await house.status(one) for one in told} == {"uncertain"}
    assert (await house.sql.fetchval(RESTORED), await house.sql.fetchval(MARKED)) == (1, 0)


async def test_who_finds_it_waits_for_the_markers_before_it_holds_their_last_row(house: House) -> None:
    context = house.context("messenger")
    await watching(house).open(context)
    await house.sql.execute("UPDATE messenger.witness SET beat = 0")
    async with context.db.work(pending_actions.LOCK_AUTHORITY) as marker:
        finding = asyncio.create_task(watching(house).look(context))
        await eventually(lambda: house.sql.fetchval(WAITS))
        await marker.execute("SELECT beat FROM messenger.witness FOR UPDATE NOWAIT")
    await finding
    assert await house.sql.fetchval(RESTORED) == 1


async def test_the_owners_word_does_the_same(house: House, message: str) -> None:
    told = await in_queue(house, message)
    owner = await contacts.owner(house.sql)
    assert owner is not None
    assert await brakes.restored(house.sql, "owner", owner["id"]) is not None
    assert await brakes.restored(house.sql, "owner", owner["id"]) is None
    await lifted(house)  # nobody has carried it out: it holds although it was lifted
    late = await in_queue(house, f"{message} late")
    await restored.look(house.context("messenger"))
    await work(house.worker())
    assert (await house.status(told), await house.status(late)) == ("uncertain", "uncertain")
    assert house.sent(message) == []


async def test_where_it_cannot_be_written_nothing_leaves_for_others(house: House, message: str) -> None:
    told = await in_queue(house, message)
    worker = house.worker()
    worker.witness.paths = (house.settings.home / "nowhere" / "witness",)
    await worker.witness.open(house.context("messenger"))
    await work(worker)
    assert (house.sent(message), (await house.delivery(told))["status"]) == ([], "claimed")
    assert "cannot be written" in worker.witness.trouble
    await lose_lease(house, told)
    await reap(house)
    assert await house.sql.fetchval(RESTORED) == 0
    await due(house, told)
    await work(house.worker())
    assert len(house.sent(message)) == 1


async def test_it_is_written_whatever_the_threads_of_others_do(house: House) -> None:
    over = threading.Event()
    calls = asyncio.gather(*(asyncio.to_thread(over.wait, 5) for _ in range(40)))
    await asyncio.wait_for(watching(house).look(house.context("messenger")), 4)
    over.set()
    await calls
