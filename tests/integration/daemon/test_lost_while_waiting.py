"""What is admitted is kept: a database that is lost while an outcome is waited for is never told as `error`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest
import pytest_asyncio

from butlers.butler import Arguments, Context, Result, ToolCall
from butlers.daemon.app import LocalClient
from butlers.daemon.assembly import acting
from butlers.tools.notify import tell
from messenger.route_execute import execute
from shared import answers
from shared.auth import keystore
from shared.auth.tokens import Caller
from shared.contracts import ErrorClass, RouteResponse, Timing, failure, route_request, wire
from shared.db import dsn
from shared.db.pool import Database
from shared.db.wake import Ticket, Wake
from shared.errors import ButlersError
from shared.rpc import Answer
from switchboard import daemon as switchboard
from switchboard import sweeper
from switchboard.route import Routes
from tests.integration.daemon.test_switchboard import envelope, inner
from tests.integration.house import House
from tests.integration.workers import OLDER, admitted, enqueue, friend, work
from tests.rig.cutting import cutting
from tests.rig.gate import Gate, server_of
from tests.rig.gate import by_port as gated
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMITTED = "SELECT id::text FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"
QUEUED = """
SELECT id FROM messenger.deliveries
WHERE notification_id = (SELECT id FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1)
"""
REFUSED = """
UPDATE shared.notifications SET answer = answer || '{"status": "error"}', status = 'error' WHERE id = $1
"""
OVER = "UPDATE shared.notifications SET answer = $2, status = 'error' WHERE id = $1"
PAST_ITS_MARKER = "UPDATE messenger.deliveries SET status = 'sending' WHERE notification_id = $1"


class Played(LocalClient):
    """A daemon of this process whose one tool a test plays."""

    def __init__(self, does: Callable[[Answer], Awaitable[Answer]]) -> None:
        self.does = does

    async def call(self, token: str, tool: str, arguments: Answer) -> Answer:
        assert tool.startswith("route"), token
        return await self.does(arguments)


async def answered(does: Callable[[ToolCall], Awaitable[Result]], caller: Caller, arguments: Arguments) -> Answer:
    """The object that a daemon's tool answers this caller with."""
    return (await does(ToolCall(caller, arguments))).answer or {}


class Noted(Wake):
    """A wake that tells when somebody begins to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = asyncio.Event()

    def ticket(self, key: str = "") -> Ticket:
        self.taken.set()
        return super().ticket(key)


@dataclass(frozen=True, slots=True)
class Outage:
    """A house some of whose daemons come to PostgreSQL by a gate only."""

    house: House
    gate: Gate
    database: Database
    # Whom the daemons find without any outage.
    doors: Mapping[str, LocalClient]

    def context(self, name: str) -> Context:
        """What that daemon stands on, its rows behind the gate."""
        return replace(self.house.context(name), db=acting(self.house.assembly.plan, self.database, name))

    def play(self, name: str, does: Callable[[Answer], Awaitable[Answer]]) -> None:
        """Let the others meet this where they look for that daemon."""
        self.house.assembly.local[name] = Played(does)

    def behind_the_gate(self, name: str) -> None:
        """Let that daemon come to its rows by the gate."""
        context = self.context(name)
        if name == "messenger":
            worker = replace(self.house.worker(), context=context)
            self.play(name, partial(answered, partial(execute, worker), Caller("switchboard", "hop", "j")))
        else:
            self.play(
                name,
                partial(
                    answered, partial(switchboard.route, context, Routes(context.db)), Caller("greeter", "hop", "j")
                ),
            )

    def end(self) -> None:
        """Let every daemon be what it was."""
        self.house.assembly.local.update(self.doors)

    async def shut_once_it_waits(self, message: str) -> None:
        """Shut the gate when the message lies in the Messenger's queue."""
        await eventually(partial(self.house.sql.fetchval, QUEUED, message))
        self.gate.shut()

    async def arrives_once(self, message: str) -> None:
        """The outage ends; what was kept goes out, once."""
        self.end()
        told = await self.house.sql.fetchval(ADMITTED, message)
        await self.house.sql.execute(OLDER, told)
        await sweeper.sweep(self.house.context("switchboard"))
        await work(self.house.worker())
        assert (await self.house.status(told), len(self.house.sent(message))) == ("ok", 1)


@pytest_asyncio.fixture(loop_scope="module")
async def outage(still_house: House) -> AsyncIterator[Outage]:
    gate = Gate(server_of(still_house.dsn))
    await gate.open()
    async with by_port(still_house, gate.port) as database:
        made = Outage(still_house, gate, database, dict(still_house.assembly.local))
        yield made
        made.end()
    gate.shut()


@asynccontextmanager
async def by_port(house: House, port: int) -> AsyncIterator[Database]:
    """A pool that comes to the house's rows by this port of this computer."""
    password = keystore.read(house.settings.home, keystore.UP).password
    database = await Database.open(dsn.dsn_as(gated(house.dsn, port), keystore.UP, password))
    yield database
    await database.close()


async def carried(house: House, message: str) -> dict[str, object]:
    """The route of a message to a friend that is admitted, and that nobody has carried yet."""
    told = await admitted(house, message, contact_id=await friend(house))
    row = await house.row("SELECT envelope FROM shared.notifications WHERE id = $1", told)
    return route_request({**row["envelope"], "notification_id": told}, "greeter", told)


async def notify(context: Context, message: str) -> Mapping[str, object]:
    return await tell(context, {"channel": "telegram", "message": message})


async def test_the_messenger_says_queued_when_its_database_is_gone_while_it_waits(outage: Outage, message: str) -> None:
    outage.behind_the_gate("messenger")
    route = await carried(outage.house, message)
    asked = asyncio.ensure_future(outage.house.hop("switchboard", "messenger", "route.execute", route))
    await outage.shut_once_it_waits(message)
    told = inner(await asked)
    assert (told["status"], told["message"]) == ("queued", answers.ACCEPTED)
    await outage.arrives_once(message)


async def test_the_messenger_says_what_the_rows_say_when_it_lost_one_connection_only(
    outage: Outage, message: str
) -> None:
    house = outage.house
    route = await carried(house, message)
    told = str(route["request_context"]["request_id"])  # type: ignore[index]  # an object
    await enqueue(house, told)
    await house.sql.execute(PAST_ITS_MARKER, told)
    async with cutting(house.dsn) as cut, by_port(house, cut.port) as database:
        replace(outage, database=database).behind_the_gate("messenger")
        cut.arm("shared.notification_status", counts=False)
        answer = inner(await house.hop("switchboard", "messenger", "route.execute", route))
    assert (cut.cuts, answer["status"], answer["message"]) == (1, "queued", answers.BEING_SENT)


async def test_a_messenger_that_cannot_put_it_in_its_queue_leaves_it_to_the_sweep(outage: Outage, message: str) -> None:
    outage.behind_the_gate("messenger")
    route = await carried(outage.house, message)
    outage.gate.shut()
    answer = await outage.house.hop("greeter", "switchboard", "route", route)
    assert (answer["status"], inner(answer)["status"]) == ("accepted", "queued")
    await outage.arrives_once(message)


async def test_a_switchboard_that_cannot_read_the_rows_says_queued(outage: Outage, message: str) -> None:
    for name in ("messenger", "switchboard"):
        outage.behind_the_gate(name)
    route = await carried(outage.house, message)
    outage.gate.shut()
    answer = await outage.house.hop("greeter", "switchboard", "route", route)
    assert (answer["status"], inner(answer)["message"]) == ("accepted", answers.ACCEPTED)
    await outage.arrives_once(message)


async def test_a_switchboard_tells_nobody_how_anothers_message_stands(outage: Outage, message: str) -> None:
    outage.behind_the_gate("messenger")
    told = await admitted(outage.house, message, "health")
    await outage.house.sql.execute(REFUSED, told)
    outage.gate.shut()
    forged = {**envelope("greeter", message), "notification_id": told}
    answer = await outage.house.hop("greeter", "switchboard", "route", route_request(forged, "greeter", "r1"))
    assert inner(answer)["status"] == "queued", "not what the row of health says"


@pytest.mark.parametrize("error_class", ["target_unavailable", "internal_error"])
async def test_what_a_hop_says_of_itself_is_no_failure_of_the_message(
    outage: Outage, message: str, error_class: ErrorClass
) -> None:
    async def cannot(route: Answer) -> Answer:
        return wire(
            RouteResponse(
                request_context=route["request_context"],  # type: ignore[arg-type]  # an object
                status="error",
                error=failure(error_class, "It cannot."),
                timing=Timing(duration_ms=1),
            )
        )

    outage.play("switchboard", cannot)
    answer = await notify(outage.house.context("greeter"), message)
    assert answer["status"] == "queued", answer
    await outage.arrives_once(message)


async def test_a_hop_that_breaks_while_the_database_is_away_is_no_error(outage: Outage, message: str) -> None:
    async def breaks(_: Answer) -> Answer:
        outage.gate.shut()
        raise ButlersError("It lost its database.")

    outage.play("switchboard", breaks)
    answer = await notify(outage.context("greeter"), message)
    assert (answer["status"], answer["message"]) == ("queued", answers.ACCEPTED)
    await outage.arrives_once(message)


async def test_a_caller_whose_whole_fleet_loses_the_database_is_told_queued(outage: Outage, message: str) -> None:
    for name in ("messenger", "switchboard"):
        outage.behind_the_gate(name)
    asked = asyncio.ensure_future(notify(outage.context("greeter"), message))
    await outage.shut_once_it_waits(message)
    answer = await asked
    assert (answer["status"], answer["message"]) == ("queued", answers.ACCEPTED)
    await outage.arrives_once(message)


async def test_a_caller_that_waits_for_anothers_call_is_told_queued(outage: Outage, message: str) -> None:
    carries, context, settled = asyncio.Event(), outage.context("greeter"), Noted()

    async def waits(_: Answer) -> Answer:
        await carries.wait()
        raise ButlersError("It carried nothing.")

    outage.play("switchboard", waits)
    first = asyncio.ensure_future(notify(outage.house.context("greeter"), message))
    await eventually(partial(outage.house.sql.fetchval, ADMITTED, message))
    waiter = replace(context, wakes={**context.wakes, "settled": settled})
    second = asyncio.ensure_future(notify(waiter, message))
    await settled.taken.wait()
    outage.gate.shut()
    answer = await second
    assert (answer["status"], answer["message"]) == ("queued", answers.ACCEPTED)
    carries.set()
    await first
    await outage.arrives_once(message)


async def test_what_was_over_and_is_asked_again_is_not_called_kept_where_nobody_can_read_it(
    outage: Outage, message: str
) -> None:
    async def breaks(_: Answer) -> Answer:
        outage.gate.shut()
        raise ButlersError("It lost its database.")

    outage.play("switchboard", breaks)
    context = outage.context("greeter")
    await notify(context, message)
    await outage.gate.open()
    told = await outage.house.sql.fetchval(ADMITTED, message)
    over = answers.failed(told, "provider_rejected", "The provider rejected it: no.")
    await outage.house.sql.execute(OVER, told, wire(over))
    answer = await notify(context, message)
    assert (answer["status"], answer["error"]) == ("error", wire(over)["error"])


async def test_a_switchboard_that_cannot_read_what_is_asked_again_says_so(outage: Outage, message: str) -> None:
    for name in ("messenger", "switchboard"):
        outage.behind_the_gate(name)
    route = await carried(outage.house, message)
    route["input"]["context"]["again"] = True  # type: ignore[index]  # objects
    outage.gate.shut()
    answer = await outage.house.hop("greeter", "switchboard", "route", route)
    assert (answer["status"], answer["error"]["class"]) == ("error", "target_unavailable")  # type: ignore[index]
