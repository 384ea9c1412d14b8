"""The card that asks the owner whether a gated tool may run, made from the call's row and only from it.

Its buttons bind id, revision, verb and the hash of exactly what would run.
"""

from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind, Press, Presser
from messenger.storage import cards
from messenger.storage.deliveries import Claimed
from messenger.storage.kinds import tool_call_cards
from messenger.verdict import Authorized, Blocked
from shared.auth.mac import tag, tag_matches
from shared.channels import CHANNELS, realms
from shared.channels.telegram import Button
from shared.db.pool import Connection, Record
from shared.display.approval import titled
from shared.display.fates import CALL
from shared.display.owner import Sheet
from shared.display.tool_call import call_foot, call_head, call_quotes
from shared.gate.owner_decision import OwnerDecision, apply
from shared.gate.tool_call import asked_call
from shared.model import Decision, Finding
from shared.storage import tool_calls

RUN: Final = "ry"
NOT: Final = "rn"
CHANGED: Final = "The stored call was changed after it was asked."


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the card's wires as long as its call waits and is what was asked, else where the card goes instead."""
    call = await tool_calls.one(connection, str(claimed.action_id))
    if call is None or not call["open"]:
        return Blocked("cancelled", (Finding("answered", "Already answered."),))
    if tool_calls.sha_of(call) != call["content_sha"]:
        return Blocked("cancelled", (Finding("changed", CHANGED),))
    stopped = await base.elsewhere(connection, claimed, call["realm"], context)
    if stopped is not None:
        return stopped
    question = await asked_call(connection, call)
    shown = Sheet("\n".join(call_head(question)), call_quotes(question), "\n".join(call_foot(question)))
    where = base.link(context, "approvals", call["id"])
    if not CHANNELS[claimed.channel].has_buttons:
        subject = f"{titled(question.origin)} needs your approval"
        wires = await base.mailed(connection, claimed, subject, shown, "Approve or deny", where)
    else:
        keys = [*buttons(context.secret, call), *base.opens(context, "approvals", call["id"])]
        wires = base.with_keyboard(await base.told(connection, claimed, "", shown), keys)
    return Authorized(wires, Decision("allow", (Finding("card", "A question to the owner."),)))


def buttons(secret: bytes, call: Record) -> list[list[Button]]:
    """Return the buttons Approve and Deny."""
    made = [(label, base.packed(call["id"], verb, tag(secret, *_bound(call, verb)))) for label, verb in _LABELS]
    return [[Button(label, data) for label, data in made]]


_LABELS: Final = (("Approve", RUN), ("Deny", NOT))


def _bound(call: Record, verb: str) -> tuple[str, ...]:
    return "tool_call", call["id"], str(call["revision"]), verb, tool_calls.sha_of(call)


async def pressed(connection: Connection, press: Press, presser: Presser, context: Context) -> tuple[str, str]:
    """Carry out the owner's word on a call; its card shows the outcome as soon as that is committed."""
    call = await tool_calls.one(connection, press.about)
    if call is None or not tag_matches(context.secret, press.tag, *_bound(call, press.verb)):
        return base.STALE, base.NOT_VALID
    lasts, realm = context.settings.approval_ttl, realms.realm_of(context.settings, "telegram")
    decided = await apply(
        connection, OwnerDecision(press.about, press.verb == RUN, presser.contact_id, "telegram", lasts, realm=realm)
    )
    if decided.code != base.NOT_HERE:
        await cards.adopt(connection, KIND.name, press.about, call["revision"], presser.message_id)
    return decided.code, decided.text


async def outcome(connection: Connection, card: Record) -> str:
    """Return what became of the call that a card asked about."""
    call = await tool_calls.one(connection, card["action_id"])
    return "" if call is None else f"{CALL[call['status']]}."


KIND: Final = CardKind(
    "tool_call",
    authorize,
    tool_call_cards.ask_calls,
    {RUN, NOT},
    pressed,
    over=tool_call_cards.calls_over,
    outcome=outcome,
)
