"""Rows that nothing can be made of end where they are met, with an answer and a line; all others go on."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from messenger.cards import closing, digest, kinds, updater
from messenger.channels.base import Channel, Prepared, Receipt, SendFailed, StillHeld, unconditionally
from messenger.channels.telegram import TelegramChannel
from messenger.delivery.lease import Worker
from messenger.maintenance import rechecker
from messenger.poison import CODE, SAID
from shared.channels.base import Wire
from shared.channels.realms import SANDBOX_TOKEN
from shared.config.timings import STANDARD
from shared.db.pool import BRIEFLY, Connection, Database, savepoint
from shared.errors import ButlersError
from shared.gate.tool_call import Declared, admit_call
from shared.rpc import Answer
from shared.storage import contacts
from shared.storage.tool_calls import NewCall
from switchboard import sweeper
from tests.integration.daemon.test_switchboard import envelope, inner, route
from tests.integration.house import House, button_data, opened
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import ACTION, OLDER, admitted, friend, in_queue, new_chat, work, worker_where
from tests.rig.cluster import Cluster
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

BURST = 2
BREAK = "UPDATE shared.notifications SET envelope = $2 WHERE id = $1"
NAMES = "UPDATE shared.notifications SET whom = $2 WHERE id = $1"
# A number of so many digits, which PostgreSQL holds and Python does not.
LARGE = """
UPDATE shared.notifications SET envelope = envelope || jsonb_build_object('n', repeat('1', $2)::numeric) WHERE id = $1
"""
HOW = "SELECT status, answer FROM shared.notifications WHERE id = $1"
LINES = """
SELECT event_type, reason FROM shared.approval_events WHERE notification_id = $1 AND event_type <> 'parked' ORDER BY seq
"""
SPOIL = """
UPDATE shared.contact_info i SET value = 'nobody at all' FROM shared.notifications n
WHERE n.id = $1 AND i.contact_id = n.contact_id
"""
CARD = "SELECT status, reason FROM messenger.deliveries WHERE class = 'card' AND action_id = $1"
MAY_HAVE_RUN = "UPDATE shared.pending_actions SET status = 'uncertain' WHERE id = $1"
HOLD = "SELECT FROM shared.pending_actions WHERE id = $1 FOR UPDATE"
ASKED_LONG_AGO = "UPDATE shared.pending_actions SET requested_at = requested_at - interval '6 seconds'"
# And not due for long, however slow the machine is.
MADE_LONG_AGO = """
UPDATE messenger.deliveries SET created_at = created_at - interval '2 minutes', send_at = send_at + interval '1 hour'
WHERE id = $1
"""
# By the half second after a first try, counted from a moment before it.
PUT_OFF = """
SELECT status, reason, send_at >= $2::timestamptz + make_interval(secs => $3) AS later
FROM messenger.deliveries WHERE id = $1
"""
NOW = "SELECT clock_timestamp()"
REFUSALS = """
SELECT count(*) FROM shared.approval_events WHERE event_type = 'refused' AND detail ->> 'caller' = 'switchboard'
"""
# So many like this one, each under an id and a key of its own, admitted before it.
MANY = """
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
    third_party, status, answer, created_at)
SELECT gen_random_uuid(), origin_butler, admitted_by, realm, key || n, lineage || n, request_sha || n, $2, whom,
    third_party, 'queued', answer, created_at - interval '1 minute'
FROM shared.notifications, generate_series(1, $3) n WHERE id = $1
"""
WANTED_BACK = """
INSERT INTO shared.withdrawals (notification_id, origin_butler)
SELECT id, origin_butler FROM shared.notifications WHERE id = $1
"""
BREAK_STRANGERS = "ALTER TABLE switchboard.inbox RENAME COLUMN stranger TO unknown"
MEND_STRANGERS = "ALTER TABLE switchboard.inbox RENAME COLUMN unknown TO stranger"
LEFT = "SELECT count(*) FROM shared.notifications WHERE envelope = $1 AND status = 'queued'"
HOLLOW = {"origin_butler": "greeter"}
ODD: Mapping[str, object] = {
    "hollow": HOLLOW,
    "an unknown channel": {"origin_butler": "greeter", "delivery": {"channel": "pigeon", "message": "x"}},
}


@pytest_asyncio.fixture(loop_scope="module")
async def quiet(cluster: Cluster) -> AsyncIterator[House]:
    """A house of its own in which nothing moves by itself."""
    async with opened(cluster, loops=False, BUTLERS_CARD_BURST=str(BURST)) as made:
        yield made


async def asked(house: House, message: str) -> tuple[str, str]:
    """The ids of a notification that waits for the owner and of its question, asked a while ago."""
    contact = await house.contact("Zoe", telegram=new_chat())
    told = await admitted(house, message, contact_id=contact)
    await house.sql.execute(ASKED_LONG_AGO)
    return told, str((await house.row(ACTION, told))["id"])


async def write(house: House) -> int:
    async with house.context("messenger").db.work(BRIEFLY) as connection:
        return await kinds.write_missing(connection, BURST, STANDARD)


async def ended(house: House, told: str) -> list[str]:
    """What the audit says of a message that ended unread; its answer says why."""
    row = await house.row(HOW, told)
    assert (row["status"], row["answer"]["error"]["class"]) == ("error", "validation_error"), dict(row)
    return [line["event_type"] for line in await house.sql.fetch(LINES, told)]


def telegram(house: House) -> TelegramChannel:
    return TelegramChannel(house.box.url, SANDBOX_TOKEN)


async def look_again(house: House, database: Database | None = None) -> None:
    context = house.context("messenger")
    await rechecker.look_again(replace(context, db=database or context.db))


async def show(house: House) -> None:
    channel = telegram(house)
    await updater.show(house.context("messenger"), channel)
    await channel.close()


async def test_what_breaks_one_kind_of_card_keeps_no_other_kind_waiting(quiet: House, message: str) -> None:
    told, action = await asked(quiet, message)
    await quiet.sql.execute(BREAK_STRANGERS)
    try:
        assert await write(quiet) == 1, told
    finally:
        await quiet.sql.execute(MEND_STRANGERS)
    assert (await quiet.row(CARD, action))["status"] == "queued"


async def test_a_call_that_its_butler_holds_keeps_no_card_waiting(quiet: House, message: str) -> None:
    _, action = await asked(quiet, message)
    call = NewCall(str(uuid4()), "greeter", f"tool {message}", "{}", "Call it.", "low", repeatable=False)
    async with quiet.context("greeter").db.work() as connection:
        await admit_call(connection, call, Declared("rules", "low"), timedelta(hours=72))
    await quiet.sql.execute(MAY_HAVE_RUN, call.id)
    async with quiet.context("greeter").db.work() as holding:
        await holding.execute(HOLD, call.id)
        assert await write(quiet) == 2
        async with quiet.context("messenger").db.work("SET LOCAL lock_timeout = '50ms'") as connection:
            with pytest.raises(ButlersError, match="LockNotAvailable"):
                async with savepoint(connection):
                    await connection.execute(HOLD, call.id)
            assert await connection.fetchval(CARD, action) == "queued"


@pytest.mark.parametrize("odd", [*ODD, "whom", "a number"])
async def test_a_question_that_cannot_be_shown_ends_and_the_next_one_is_asked(
    quiet: House, message: str, odd: str
) -> None:
    told, action = await asked(quiet, f"{message} odd")
    statement = {"whom": NAMES, "a number": LARGE}.get(odd, BREAK)
    await quiet.sql.execute(statement, told, {"whom": "contact:x", "a number": 5000, **ODD}[odd])
    await asked(quiet, f"{message} next")
    assert await write(quiet) == 2
    worker = quiet.worker()
    for _ in range(2):
        await work(worker)
    assert len(quiet.cards(f"{message} next")) == 1
    assert tuple(await quiet.row(CARD, action)) == ("refused", CODE)
    assert (await quiet.row(ACTION, told))["status"] == "cancelled"
    assert await ended(quiet, told) == ["cancelled"]
    assert await write(quiet) == 0


async def test_an_entry_that_is_no_address_is_shown_and_can_only_be_denied(quiet: House, message: str) -> None:
    told, action = await asked(quiet, message)
    await quiet.sql.execute(SPOIL, told)
    await write(quiet)
    await work(quiet.worker())
    [card] = quiet.cards(message)
    assert "no usable address" in str(card["payload"])
    assert [data.split(":")[2] for data in button_data(card)] == ["no"]
    assert (await quiet.decide(action, approve=False)).code == "denied"


async def test_a_message_that_cannot_be_read_ends_and_the_next_one_goes(quiet: House, message: str) -> None:
    contact = await friend(quiet)
    odd = await in_queue(quiet, f"{message} odd", contact_id=contact)
    told = await in_queue(quiet, f"{message} next", contact_id=contact)
    await quiet.sql.execute(BREAK, odd, ODD["hollow"])
    worker = quiet.worker()
    for _ in range(2):
        await work(worker)
    assert await quiet.status(told) == "ok"
    found = await quiet.delivery(odd)
    assert (found["status"], found["reason"], await quiet.status(odd)) == ("refused", CODE, "error")
    assert [tuple(line) for line in await quiet.sql.fetch(LINES, odd)] == [("refused", SAID)]


async def test_what_breaks_by_a_mistake_is_put_off_and_others_pass(quiet: House, message: str) -> None:
    contact = await friend(quiet)
    first = await in_queue(quiet, f"{message} first", contact_id=contact)
    told = await in_queue(quiet, f"{message} next", contact_id=contact)
    delivery = (await quiet.delivery(first))["id"]
    # Its fifth attempt waits longer than a busy machine takes.
    await quiet.sql.execute("UPDATE messenger.deliveries SET attempt = 4 WHERE id = $1", delivery)

    broken_at = list[object]()

    async def broken() -> None:
        broken_at.append(await quiet.sql.fetchval(NOW))
        raise RuntimeError("a mistake of ours")

    await work(worker_where(quiet, broken))
    assert tuple(await quiet.row(PUT_OFF, delivery, *broken_at, 8)) == ("queued", "broken", True)
    await quiet.sql.execute(MADE_LONG_AGO, delivery)
    await work(quiet.worker())
    assert await quiet.status(told) == "ok"


@dataclass(slots=True)
class Breaking:
    """A way out whose answers cannot be read, by a mistake of ours."""

    inner: Channel
    name: str = "breaking"

    async def prepare(self, wire: Wire) -> Prepared | SendFailed:
        prepared = await self.inner.prepare(wire)
        return prepared if isinstance(prepared, SendFailed) else Unfinished(prepared)

    async def probe(self) -> SendFailed | None:
        return await self.inner.probe()

    async def close(self) -> None:
        await self.inner.close()


@dataclass(slots=True)
class Unfinished:
    inner: Prepared

    async def finish(self, still_held: StillHeld = unconditionally) -> Receipt | SendFailed:
        await self.inner.finish(still_held)
        raise RuntimeError("a mistake of ours")

    async def abandon(self) -> None:
        await self.inner.abandon()


def breaking_desk(house: House) -> Worker:
    return house.worker(telegram=Breaking(telegram(house)))


async def test_a_mistake_past_the_marker_is_an_answer_that_nobody_could_read(quiet: House, message: str) -> None:
    told = await in_queue(quiet, message)
    await work(breaking_desk(quiet))
    assert await quiet.status(told) == "uncertain"
    await quiet.sql.execute(MADE_LONG_AGO, (await quiet.delivery(told))["id"])


async def test_a_card_that_breaks_past_its_marker_is_put_off_too(quiet: House, message: str) -> None:
    _, action = await asked(quiet, message)
    assert await write(quiet) == 1
    before = await quiet.sql.fetchval(NOW)
    await work(breaking_desk(quiet))
    card = await quiet.row("SELECT id FROM messenger.deliveries WHERE action_id = $1", action)
    found = await quiet.row(PUT_OFF, card["id"], before, 0.5)
    assert (found["status"], found["later"]) == ("queued", True)


async def test_a_digest_lists_what_can_be_read(quiet: House, message: str) -> None:
    told = [(await asked(quiet, f"{message} n{n}"))[0] for n in range(BURST + 3)]
    await quiet.sql.execute(BREAK, told[BURST], ODD["hollow"])
    async with quiet.context("messenger").db.work() as connection:
        listed = [row["notification_id"] for row in await digest.all_waiting(connection, "telegram")]
    assert (set(told) & set(listed)) == set(told) - {told[BURST]}
    assert await write(quiet) == BURST + 1
    worker = quiet.worker()
    for _ in range(BURST + 1):
        await work(worker)
    [card] = quiet.cards("more message")
    assert "Greeter needs your approval for 2 more messages" in str(card["payload"])
    assert len(button_data(card)) == 2
    assert await ended(quiet, told[BURST]) == ["cancelled"]

    await quiet.sql.execute(BREAK, told[BURST + 1], ODD["hollow"])
    await quiet.sql.execute("UPDATE messenger.digests SET shown_at = shown_at - interval '10 seconds'")
    await show(quiet)
    assert [
        line for line in quiet.box.sandbox.lines if "needs your approval for 1 more message:" in str(line["payload"])
    ]
    assert await ended(quiet, told[BURST + 1]) == ["cancelled"]


async def test_a_card_whose_outcome_cannot_be_read_loses_its_buttons(quiet: House, message: str) -> None:
    told, action = await asked(quiet, message)
    await write(quiet)
    await work(quiet.worker())
    await quiet.decide(action, approve=False)
    await quiet.sql.execute("UPDATE shared.pending_actions SET status = 'cancelled' WHERE id = $1", action)
    await quiet.sql.execute("UPDATE shared.notifications SET answer = '{}' WHERE id = $1", told)
    channel = telegram(quiet)
    assert await closing.close(quiet.context("messenger"), channel) == 1
    assert await closing.close(quiet.context("messenger"), channel) == 0
    await channel.close()
    methods = [str(line["payload"]["method"]) for line in quiet.box.sandbox.lines]  # type: ignore[index]
    assert methods.count("editMessageReplyMarkup") == 1


async def short(house: House, message: str) -> str:
    """The id of a notification that was short of an identifier, which is there now."""
    contact = await house.contact("Bo", email=f"{uuid4().hex}@example.org")
    told = await admitted(house, message, contact_id=contact)
    await contacts.add_address(house.sql, contact, "telegram", new_chat())
    return told


async def test_an_identifier_that_comes_for_what_cannot_be_read_ends_it(quiet: House, message: str) -> None:
    odd, told = await short(quiet, f"{message} odd"), await short(quiet, f"{message} next")
    await quiet.sql.execute(BREAK, odd, {**HOLLOW, "delivery": {"channel": "telegram", "intent": "shout"}})
    await look_again(quiet)
    assert await quiet.status(told) == "pending_approval"
    assert await ended(quiet, odd) == ["cancelled"]


@dataclass(slots=True)
class BrokenOnce:
    """A database whose second unit of work breaks by a mistake: the first finds out which steps there are."""

    inner: Database
    units: int = 0

    @asynccontextmanager
    async def work(self) -> AsyncIterator[Connection]:
        self.units += 1
        if self.units == 2:
            raise RuntimeError("a mistake of ours")
        async with self.inner.work() as connection:
            yield connection


async def test_where_nothing_is_to_be_done_a_look_is_one_unit_of_work(quiet: House) -> None:
    await look_again(quiet)
    counted = BrokenOnce(quiet.context("messenger").db)
    await look_again(quiet, counted)  # type: ignore[arg-type]  # it does as one
    assert counted.units == 1


async def test_a_step_that_breaks_keeps_none_of_the_others(quiet: House, message: str) -> None:
    told, back = await short(quiet, message), await short(quiet, f"{message} back")
    await quiet.sql.execute(WANTED_BACK, back)
    broken = BrokenOnce(quiet.context("messenger").db)
    await look_again(quiet, broken)  # type: ignore[arg-type]  # it does as one
    assert await quiet.status(told) == "pending_approval"


async def test_what_cannot_be_forwarded_of_one_butler_never_keeps_what_another_sends(
    quiet: House, message: str
) -> None:
    odd = {"origin_butler": "greeter", "mark": message}
    first = await admitted(quiet, f"{message} first", contact_id=await friend(quiet))
    await quiet.sql.execute(MANY, first, odd, 130)
    told = await admitted(quiet, f"{message} next", "health", contact_id=await friend(quiet))
    await quiet.sql.execute(OLDER, told)
    switchboard = quiet.context("switchboard")
    assert await sweeper.sweep(switchboard) == 100
    assert (await quiet.delivery(told))["status"] == "queued"
    while await sweeper.sweep(switchboard):
        pass
    assert await quiet.sql.fetchval(LEFT, odd) == 0


NOT_CANONICAL: Mapping[str, Callable[[Answer], Answer]] = {
    "no version": lambda row: {name: value for name, value in row.items() if name != "schema_version"},
    "a null": lambda row: {**row, "delivery": {**row["delivery"], "subject": None}},  # type: ignore[dict-item]
}


@pytest.mark.parametrize("how", NOT_CANONICAL)
async def test_an_envelope_that_changes_when_it_is_carried_is_refused_once(
    quiet: House, message: str, how: str
) -> None:
    told = await admitted(quiet, message, contact_id=await friend(quiet))
    stored = (await quiet.row("SELECT envelope FROM shared.notifications WHERE id = $1", told))["envelope"]
    await quiet.sql.execute(BREAK, told, NOT_CANONICAL[how](stored))
    await quiet.sql.execute(OLDER, told)
    switchboard = quiet.context("switchboard")
    assert [await sweeper.sweep(switchboard) for _ in range(2)] == [1, 0]
    assert await ended(quiet, told) == ["refused"]
    assert await quiet.sql.fetchval(REFUSALS) == 1


async def test_the_same_refusal_again_and_again_leaves_one_line(quiet: House, message: str) -> None:
    told = await admitted(quiet, message, contact_id=await friend(quiet))
    for n in range(5):
        brought = envelope("greeter", f"{message} {n}", notification_id=told)
        assert (await route(quiet, "switchboard", brought, "messenger"))["status"] == "error"
    assert await quiet.sql.fetchval(REFUSALS) == 1
    assert await quiet.status(told) == "queued", "what can be carried is not ended by what somebody brings"


async def test_what_the_switchboard_admitted_says_so_to_the_owner(house: House, message: str) -> None:
    mark = "Submitted by switchboard on behalf of greeter."
    told = inner(await route(house, "greeter", envelope("greeter", message)))
    assert told["status"] == "ok"
    [line] = house.sent(message)
    assert str(line["payload"]["text"]) == f"\u25a3 {mark}\ngreeter:\n{message}"  # type: ignore[index]
    contact = await house.contact("Zoe", telegram=(chat := new_chat()))
    asked_for = envelope("greeter", f"{message} for Zoe", recipient=chat)
    assert inner(await route(house, "greeter", asked_for))["status"] == "pending_approval", contact
    [card] = await until(lambda: house.cards(f"{message} for Zoe"))
    assert mark in str(card["payload"])
    await house.press(card)
    [sent] = await until(lambda: [one for one in house.sent(f"{message} for Zoe") if str(one["to"]) == chat])
    assert "Submitted by" not in str(sent["payload"])


async def test_what_a_butler_admitted_itself_bears_no_mark(house: House, message: str) -> None:
    assert (await house.notify(message=message))["status"] == "ok"
    [line] = house.sent(message)
    assert (line["to"], str(line["payload"]["text"])) == (str(OWNER), f"greeter:\n{message}")  # type: ignore[index]
