"""Which butler takes a message: the facts that the choice leans on are gathered, and the classifier is asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from butlers.butler import Context
from butlers.daemon.discovery import kind_of
from shared.db.pool import Connection, Record, savepoint
from shared.display.conversation import Turn, prompt_to_classify
from shared.errors import Away, InvalidInput
from shared.loops import apart
from shared.storage import routing_rules, session_list, sessions
from shared.telemetry.logs import logger
from switchboard.routing import (
    Choice,
    Classification,
    Classifier,
    Incoming,
    RoutingFacts,
    RoutingRule,
    choose,
    classified,
    default_of,
    left_open,
)
from switchboard.storage import inbox, registry

log = logger("switchboard.choice")


@dataclass(frozen=True, slots=True)
class Known:
    """What is the same for all messages taken together: the owner's rules, the butlers, and the classifier.

    Of each butler it is known whether it is the default. It is read as they are taken, and not before.
    """

    rules: Sequence[RoutingRule] = ()
    butlers: Sequence[tuple[str, bool]] = ()
    classifier: Classifier | None = None


async def known_now(connection: Connection) -> Known:
    """Read what is the same for all messages."""
    found = await registry.classifier(connection)
    classifier = Classifier(*found) if found is not None else None
    return Known(await _rules(connection), await registry.butlers(connection), classifier)


async def _rules(connection: Connection) -> list[RoutingRule]:
    return [
        RoutingRule(
            one["id"], one["butler"], one["channel"], one["sender"], one["words"], one["contact_id"], one["may_ask"]
        )
        for one in await routing_rules.routes(connection)
    ]


async def chosen_for(
    context: Context,
    connection: Connection,
    row: Record,
    message: Incoming,
    answered: Record | None,
    known: Known,
) -> Choice | None:
    """Gather the facts about a message and choose; None if it waits for a butler, or for the classifier's answer."""
    thread, wrote = await inbox.thread_butler(connection, row, context.settings.timings.thread_lasts)
    facts = RoutingFacts(
        butlers=[name for name, _ in known.butlers],
        default=default_of(known.butlers),
        answered=answered["butler"] if answered and kind_of(answered["butler"]) == "butler" else None,
        concerns=answered is not None and answered["concerns"] is not None,
        thread=thread,
        wrote=wrote,
        rules=known.rules,
    )
    chosen = choose(message, facts)
    if chosen is None or known.classifier is None or row["routed_to"] or not left_open(message, chosen, known.rules):
        return chosen
    if row["is_played"]:
        return chosen
    return await _by_classifier(context, connection, row, message, chosen, known.classifier)


async def _by_classifier(
    context: Context, connection: Connection, row: Record, message: Incoming, chosen: Choice, classifier: Classifier
) -> Choice | None:
    """Ask the classifier who takes a message, and return the choice with its answer; None while that is waited for.

    Whoever takes the message next goes on from its row, which names the session; one that is too late is stopped.
    """
    asked = None
    if row["asked_in"] is not None:
        within = context.settings.timings.classifier
        found = await session_list.classification(connection, row["asked_in"], classifier.butler, within)
        asked = Classification(**found) if found is not None else Classification("lost")
    choice = classified(chosen, classifier, asked)
    if choice is None and asked is None:
        await _ask(context, connection, row, message, classifier)
    if asked is not None and asked.is_late:
        # INVARIANT: no butler that holds its session's row keeps a message from being done.
        with apart(log, "the classifier is not asked to stop", message=row["id"], through=(Away,)):
            async with savepoint(connection):
                await sessions.ask_to_stop(connection, row["asked_in"])
    return choice


async def _ask(
    context: Context, connection: Connection, row: Record, message: Incoming, classifier: Classifier
) -> None:
    """Begin the session in which the classifier is asked; the message's row names it, so that it is one."""
    cause, butler, at = session_list.CLASSIFY, classifier.butler, row["received_at"]
    session_id = context.new_id()
    if not await inbox.note_asked(connection, row["id"], context.instance, session_id):
        return
    turn = Turn(at, row["channel"], row["text"], is_owner=message.from_owner, is_verified=message.is_proved)
    prompt = prompt_to_classify(turn, classifier.names)
    try:
        await sessions.enqueue(connection, session_id=session_id, butler=butler, cause=cause, prompt=prompt)
    except InvalidInput as unfit:
        log.warning("the classifier is not asked", message=row["id"], why=unfit.message)
