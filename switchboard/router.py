"""The router, which says of each received message to which butler it goes, and hands it over if it starts work."""

import asyncio
from dataclasses import dataclass
from typing import Final

from butlers.butler import Context
from shared.channels import CHANNELS, realms
from shared.db.pool import Connection, Record
from shared.loops import apart
from shared.storage import notices, routing_rules, sessions
from shared.storage.notices import Notice
from shared.telemetry.logs import logger
from switchboard.routing import AUTOMATIC, OWN_WORDS, Choice, Incoming, RoutingFacts, RoutingRule, choose, default_of
from switchboard.storage import inbox, registry

log = logger("switchboard.router")
AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Routed:
    """A message of the owner's that is work for a butler: which one, why, and how it may be answered."""

    message_id: str
    butler: str
    because: str
    text: str
    request_context: dict[str, object]


async def hand_over(context: Context, message: Routed) -> None:
    """Let what the owner wrote begin a session of its butler, if something thinks for it.

    It is called while the lease of the message lasts, and again if the process ended meanwhile; a message is one
    session, because the session has the message's id.
    """
    async with context.db.work() as connection:
        reads = await registry.has_runtime(connection, message.butler) and not await realms.is_played(
            connection, str(message.request_context["source_channel"])
        )
        if reads:
            await sessions.enqueue_message(
                connection, message.message_id, message.butler, message.text, message.request_context
            )
            # A session that runs is told it at once; where none is, its own begins. Its row says which, so never both.
            words = Notice(
                "owner", sessions.MESSAGE, message.text, trust="owner", priority="high", id=message.message_id
            )
            await notices.add(connection, message.butler, words)
    log.info("routed", message=message.message_id, to=message.butler, why=message.because, read=reads)


async def route_waiting(context: Context) -> int:
    """Route what waits, at most one message of each conversation; return how many were taken."""
    lease = context.settings.timings.route_lease
    async with context.db.work() as connection:
        rows = await inbox.claim(connection, context.instance, lease, AT_ONCE)
    taken = 0
    for row in rows:
        with apart(log, "not routed", message=row["id"]):
            taken += await _route_one(context, row)
    return taken


async def _route_one(context: Context, row: Record) -> bool:
    """Write where one message goes, hand it over, and let the next of its conversation be taken; return if it went."""
    async with context.db.work() as connection:
        answered = await inbox.ours_answered(connection, row) if row["kind"] != AUTOMATIC else None
        chosen = await _choice(context, connection, row, answered)
        if chosen is None:
            log.info("no butler is known to route to", message=row["id"])
            return False
        what = chosen.butler, chosen.because
        answers = answered["id"] if answered else None
        held, butler = await inbox.route(connection, row["id"], context.instance, what, answers)
        is_work = butler is not None and is_owners_own(row) and is_written(row)
        if held and not is_work:
            await inbox.done(connection, row["id"], context.instance)
    if held and butler is not None and is_work:
        routed = Routed(row["id"], butler, row["routed_because"] or chosen.because, row["text"], row["request_context"])
        await hand_over(context, routed)
        async with context.db.work() as connection:
            await inbox.done(connection, row["id"], context.instance)
    return held


async def _choice(context: Context, connection: Connection, row: Record, answered: Record | None) -> Choice | None:
    """Gather the facts about a message and choose."""
    there = await registry.butlers(connection)
    facts = RoutingFacts(
        butlers=[name for name, _ in there],
        default=default_of(there),
        answered=answered["butler"] if answered else None,
        thread=await inbox.thread_butler(connection, row, context.settings.timings.thread_lasts),
        rules=[
            RoutingRule(one["id"], one["butler"], one["channel"], one["sender"], one["words"])
            for one in await routing_rules.routes(connection)
        ],
    )
    message = Incoming(row["channel"], row["sender"], row["kind"], row["text"], is_owners_own(row))
    return choose(message, facts)


def is_owners_own(row: Record) -> bool:
    """Return whether a message is proved to be the owner's: sent by the owner in the chat that is the owner's alone.

    Where a thread does not say its place, as by e-mail, the sender is what anybody can write: it counts only if the
    owner's own mail server vouches for it.
    """
    if not row["from_owner"]:
        return False
    place = CHANNELS[row["channel"]].thread.address
    return bool(row["verified"] if place is None else row["conversation"] == row["sender"])


def is_written(row: Record) -> bool:
    """Return whether a message has words of its sender's own: not only a file, and not what somebody else wrote."""
    return row["kind"] == OWN_WORDS and bool(row["text"].strip())


async def route_for_ever(context: Context, stopping: asyncio.Event) -> None:
    """Route what comes in, at once and at each tick, until `stopping`; log a lost database, and try again."""
    while not stopping.is_set():
        ticket = context.wakes["inbox"].ticket()
        with apart(log, "routing not done"):
            while await route_waiting(context) and not stopping.is_set():
                pass
        waiting = [asyncio.ensure_future(ticket.wait()), asyncio.ensure_future(stopping.wait())]
        # What comes in wakes this loop; a tick finds only what another process left behind.
        await asyncio.wait(waiting, timeout=context.settings.timings.unhurried, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
