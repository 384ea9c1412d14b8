"""Rows that are behind the witness: the house is restored, once, whoever finds it and however it is told."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from messenger import restoring
from messenger.witness import LEAP, Witness
from shared import brakes, home, identity, witness
from shared.brakes import Scope
from shared.errors import Unavailable
from shared.witness import Seen
from tests.integration.desks import admitted, due, enqueue, friend, in_queue, lose_lease, reap, work
from tests.integration.house import House, Site, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEAT = "SELECT beat FROM messenger.witness"
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
async def house(site: Site) -> AsyncIterator[House]:
    """A house of the test's own in which nothing moves by itself."""
    async with opened(site, loops=False) as made:
        yield made


def watching(house: House, other: Path | None = None) -> Witness:
    """The witness of one more Messenger of this home."""
    return Witness(witness.places(house.settings.home, "messenger", other), uuid4().hex)


def seen(house: House) -> Seen:
    found = witness.read(witness.places(house.settings.home, "messenger", None))
    assert found is not None
    return found


async def found_restored(house: House) -> None:
    """A Messenger starts on rows that are behind."""
    await watching(house).open(house.ground("messenger"))
    await house.sql.execute(BEHIND)
    await watching(house).open(house.ground("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def lifted(house: House) -> None:
    owner = await identity.owner(house.sql)
    assert owner is not None
    await brakes.lift(house.sql, Scope(), str(owner["id"]))


async def test_a_first_start_writes_it_and_a_second_finds_it(house: House) -> None:
    for _ in range(2):
        await watching(house).open(house.ground("messenger"))
        assert seen(house).beat == await house.sql.fetchval(BEAT)
    assert await house.sql.fetchval(RESTORED) == 0
    assert seen(house).system.isdecimal()


async def test_a_marker_to_others_moves_it_before_and_one_to_the_owner_does_not(house: House, message: str) -> None:
    told = await admitted(house, message)
    await enqueue(house, told)
    await work(house.desk())
    assert await house.status(told) == "ok"
    assert await house.sql.fetchval(BEAT) == 0
    await in_queue(house, message)
    await work(house.desk())
    assert (await house.sql.fetchval(BEAT), seen(house).beat) == (1, 1)


async def test_it_moves_once_a_second_and_once_more_after_the_last(house: House) -> None:
    ground, held = house.ground("messenger"), watching(house)
    for _ in range(5):
        async with held.cover(ground):
            pass
    assert seen(house).beat == 1
    stopping = asyncio.Event()
    stopping.set()
    await held.follow(ground, stopping)
    await asyncio.wait_for(_followed(held, house), 10)
    assert seen(house).beat == 2


async def test_it_moves_after_a_marker_that_waited_for_long(house: House) -> None:
    ground, held, stopping = house.ground("messenger"), watching(house), asyncio.Event()
    following = asyncio.create_task(held.follow(ground, stopping))
    async with held.cover(ground):
        await asyncio.sleep(1.5)
        before = seen(house).beat
    await asyncio.wait_for(_moved_past(house, before), 10)
    stopping.set()
    await following


async def _moved_past(house: House, beat: int) -> None:
    while seen(house).beat <= beat:
        await asyncio.sleep(0.05)


async def _followed(held: Witness, house: House) -> None:
    stopping = asyncio.Event()
    task = asyncio.ensure_future(held.follow(house.ground("messenger"), stopping))
    while seen(house).beat < 2:
        await asyncio.sleep(0.05)
    stopping.set()
    await task


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
        await work(house.desk())  # the word about the backup goes first
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
    assert restoring.ASKED_BEFORE in row["agent_summary"]
    assert [one["outcome"] for one in await house.sql.fetch(UPDATES, [1, 2])] == ["restored", None]


async def test_the_owner_is_told_by_every_channel_until_the_brake_is_lifted(house: House) -> None:
    await house.sql.execute(NO_CARDS)
    await found_restored(house)
    assert {row["channel"] for row in await house.sql.fetch(CARDS)} == {"telegram", "email"}
    await work(house.desk())
    [told] = [line for line in house.sent("put back", "sendMessage") if line["channel"] == "telegram"]
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
    await watching(house).open(house.ground("messenger"))
    (home.folder(house.settings.home, "messenger") / "witness").unlink()
    await watching(house).open(house.ground("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def test_one_that_cannot_be_read_is_none(house: House) -> None:
    await watching(house).open(house.ground("messenger"))
    (home.folder(house.settings.home, "messenger") / "witness").write_text("{")
    await watching(house).open(house.ground("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def test_one_that_may_not_be_read_is_no_sign_of_anything(house: House) -> None:
    await watching(house).open(house.ground("messenger"))
    place = home.folder(house.settings.home, "messenger") / "witness"
    place.rename(place.with_name("kept"))
    place.mkdir()
    held = watching(house)
    await held.open(house.ground("messenger"))
    assert "cannot be read" in held.trouble
    assert await house.sql.fetchval(STANDING) == 0


async def test_a_second_one_that_is_gone_keeps_everything_from_leaving(house: House, tmp_path: Path) -> None:
    other = tmp_path / "witness"
    await watching(house, other).open(house.ground("messenger"))
    other.unlink()
    held = watching(house, other)
    with pytest.raises(Unavailable, match="is not there"):
        async with held.cover(house.ground("messenger")):
            pass
    assert not other.exists()
    await watching(house).open(house.ground("messenger"))
    async with watching(house, other).cover(house.ground("messenger")):
        pass
    assert other.exists()


async def test_a_seal_that_is_gone_tells_too(house: House) -> None:
    await watching(house).open(house.ground("messenger"))
    places = witness.places(house.settings.home, "messenger", None)
    witness.write(places, replace(seen(house), seal=1, seal_hash="0" * 64), "test")
    await watching(house).open(house.ground("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def test_the_second_place_tells_where_the_first_came_back(house: House, tmp_path: Path) -> None:
    await watching(house, tmp_path / "far").open(house.ground("messenger"))
    first = seen(house)
    await watching(house, tmp_path / "far").open(house.ground("messenger"))
    witness.write(witness.places(house.settings.home, "messenger", None), first, "test")
    await house.sql.execute(BEHIND)
    await watching(house, tmp_path / "far").open(house.ground("messenger"))
    assert await house.sql.fetchval(STANDING) == 1


async def test_of_two_messengers_one_finds_it_and_the_other_does_not_find_it_again(house: House) -> None:
    ground, two = house.ground("messenger"), [watching(house), watching(house)]
    for one in two:
        await one.open(ground)
    last = seen(house)
    await house.sql.execute("UPDATE messenger.witness SET beat = 0")
    await asyncio.gather(*(one.open(ground) for one in (watching(house), watching(house))))
    assert await house.sql.fetchval(RESTORED) == 1
    assert await house.sql.fetchval(BEAT) >= last.beat + LEAP
    witness.write(witness.places(house.settings.home, "messenger", None), replace(last, seal=7, seal_hash="x"), "test")
    await watching(house).open(ground)
    assert await house.sql.fetchval(RESTORED) == 1


async def test_restored_twice_is_found_twice(house: House) -> None:
    await found_restored(house)
    await lifted(house)
    await house.sql.execute("UPDATE messenger.witness SET beat = 0")
    await watching(house).open(house.ground("messenger"))
    assert (await house.sql.fetchval(RESTORED), await house.sql.fetchval(STANDING)) == (2, 1)


async def test_it_is_found_while_a_messenger_runs_on(house: House, message: str) -> None:
    told = await in_queue(house, message)
    ground, desk = house.ground("messenger"), house.desk()
    await desk.witness.open(ground)
    await watching(house).open(ground)
    await house.sql.execute("UPDATE messenger.witness SET beat = 0")
    await asyncio.sleep(1.1)
    await work(desk)
    assert house.sent(message) == []
    assert await house.status(told) == "uncertain"


async def test_the_owners_word_does_the_same(house: House, message: str) -> None:
    told = await in_queue(house, message)
    owner = await identity.owner(house.sql)
    assert owner is not None
    assert await brakes.restored(house.sql, "owner", owner["id"]) is not None
    assert await brakes.restored(house.sql, "owner", owner["id"]) is None
    await lifted(house)  # nobody has carried it out: it holds although it was lifted
    late = await in_queue(house, f"{message} late")
    await restoring.look(house.ground("messenger"))
    await work(house.desk())
    assert (await house.status(told), await house.status(late)) == ("uncertain", "uncertain")
    assert house.sent(message) == []


async def test_where_it_cannot_be_written_nothing_leaves_for_others(house: House, message: str) -> None:
    told = await in_queue(house, message)
    desk = house.desk()
    desk.witness.paths = (house.settings.home / "nowhere" / "witness",)
    await desk.witness.open(house.ground("messenger"))
    with pytest.raises(Unavailable):
        async with desk.witness.cover(house.ground("messenger")):
            pass
    await work(desk)
    assert house.sent(message) == []
    assert "cannot be written" in desk.witness.trouble
    await lose_lease(house, told)
    await reap(house)
    assert await house.sql.fetchval(RESTORED) == 0
    await due(house, told)
    await work(house.desk())
    assert len(house.sent(message)) == 1
