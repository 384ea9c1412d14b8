"""Cards that show and ask the owner about a pending action, made from its row and only from it.

Its buttons bind id, revision, verb and content.
"""

from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind, Press, Presser
from messenger.storage import cards, queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.auth.mac import tag, tag_matches
from shared.channels import CHANNELS, realms
from shared.channels.base import Wire
from shared.channels.telegram import Button
from shared.db.pool import Connection, Record
from shared.display import approval, decided
from shared.display.approval import Asked
from shared.display.owner import Sheet
from shared.errors import ButlersError
from shared.gate.approval_request import asked
from shared.gate.delays import SENDING, approved
from shared.gate.evaluate import Evaluation, evaluate
from shared.gate.owner_decision import OwnerDecision, apply
from shared.model import Decision, Finding
from shared.storage import deliveries, pending_actions, standing
from shared.storage.pending_actions import Revision, Why

VERBS: Final = frozenset({"ok", "no"})
ASKED_ANEW: Final = "Changed. A new approval request replaces this one."
HAD_ARRIVED: Final = "Sent. It had arrived before you answered."
SAID: Final = {
    "executing": SENDING,
    "executed": "Approved. Sent.",
    "failed": "Approved. Not delivered.",
    "uncertain": "Approved. Delivery unconfirmed.",
    "expired": "Expired.",
    "cancelled": "Cancelled.",
}
# The answer says which: nobody answered in time, or nobody could send it in time after a yes.
TOLD_BY_ITS_ANSWER: Final = frozenset({"cancelled", "expired"})


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the card's wires as long as its action waits in this revision, else where the card goes instead."""
    action = await pending_actions.open_action(connection, str(claimed.action_id))
    if action is None or action["status"] != "pending" or action["revision"] != claimed.revision:
        return Blocked("cancelled", (Finding("answered", "Already answered."),))
    stopped = await base.elsewhere(connection, claimed, action["realm"], context)
    if stopped is not None:
        return stopped
    question = await asked(connection, action)
    # What lacked an address binds nothing yet: its identifier, once added, is asked about anew.
    if action["content_sha"] not in {None, question.content_sha}:
        return await _ask_anew(connection, action, question, context)
    wires = await _wires(connection, claimed, action, question, context)
    return Authorized(wires, Decision("allow", (Finding("card", "A question to the owner."),)))


async def _ask_anew(connection: Connection, action: Record, question: Asked, context: Context) -> Blocked:
    """Ask the question in a new revision and cancel this card.

    INVARIANT: a button binds what its card shows, and not a hash that somebody else wrote beside the question.
    """
    why, ttl = "The message is no longer the one you were asked about.", context.settings.approval_ttl
    kept, said = action["tool_args"], action["agent_summary"]
    anew = Revision(action["id"], action["revision"], question.content_sha, kept, ttl, said)
    await pending_actions.revise(connection, anew, Why("messenger", why))
    return Blocked("cancelled", (Finding("changed", why),))


def sheet(question: Asked, action_id: str, context: Context) -> Sheet:
    """Return the question as a message: what is asked above and below the words that would go out."""
    head, links = approval.head(question), list[str]()
    if not question.deliverable:
        unknown = not question.address
        where = base.link(context, *(("contacts", question.contact_id) if unknown else ("approvals", action_id)))
        head += [f"{'Add an address' if unknown else 'Edit or deny it'}: {where}", *base.near(where)]
        links.append(where)
    return Sheet("\n".join(head), approval.quotes(question), "\n".join(approval.foot(question)), tuple(links))


async def _wires(
    connection: Connection, claimed: Claimed, action: Record, question: Asked, context: Context
) -> tuple[Wire, ...]:
    shown = sheet(question, action["id"], context)
    if not CHANNELS[claimed.channel].has_buttons:
        subject = f"{approval.titled(question.origin)} needs your approval"
        where = base.link(context, "approvals", action["id"])
        return await base.mailed(connection, claimed, subject, shown, "Approve or deny", where)
    wires = await base.told(connection, claimed, "", shown)
    opens = base.opens(context, "approvals", action["id"])
    return base.with_keyboard(wires, [*buttons(context.secret, action, can_approve=question.deliverable), *opens])


def buttons(secret: bytes, action: Record, *, can_approve: bool) -> list[list[Button]]:
    """Return the buttons Approve and Deny; only Deny where nothing could be delivered."""
    row = [Button("Approve", data(secret, action, "ok"))] if can_approve else []
    return [[*row, Button("Deny", data(secret, action, "no"))]]


def data(secret: bytes, action: Record, verb: str) -> str:
    """Return a button's data, `a1:<id22>:<verb>:<tag22>`, at most 64 bytes."""
    return base.packed(action["id"], verb, tag(secret, *_bound(action, verb)))


def genuine(secret: bytes, action: Record, press: Press) -> bool:
    """Return whether this button was made for this action as it stands now."""
    return tag_matches(secret, press.tag, *_bound(action, press.verb))


def _bound(action: Record, verb: str) -> tuple[str, ...]:
    return "card", action["id"], str(action["revision"]), verb, action["content_sha"] or ""


async def pressed(connection: Connection, press: Press, presser: Presser, context: Context) -> tuple[str, str]:
    """Carry out the owner's word on an action; its card shows the outcome as soon as that is committed."""
    action = await pending_actions.open_action(connection, press.about)
    if action is None or not genuine(context.secret, action, press):
        return base.STALE, base.NOT_VALID
    lasts, realm = context.settings.approval_ttl, realms.realm_of(context.settings, "telegram")
    decision = OwnerDecision(press.about, press.verb == "ok", presser.contact_id, "telegram", lasts, realm=realm)
    decided = await apply(connection, decision)
    if decided.code != base.NOT_HERE:
        await cards.adopt(connection, KIND.name, press.about, action["revision"], presser.message_id)
    return decided.code, decided.text


async def outcome(connection: Connection, card: Record) -> str:
    """Return what became of the question that a card asked."""
    if card["status"] == "pending":
        return ASKED_ANEW
    if card["status"] == "approved":
        return await _on_its_way(connection, card["notification_id"])
    if card["status"] == "denied":
        return decided.denied(begun=await deliveries.begun(connection, card["notification_id"]))
    if card["status"] in TOLD_BY_ITS_ANSWER:
        answer = await standing.status(connection, card["notification_id"])
        if answer is not None and answer.error is not None:
            return answer.error.message
        if card["status"] == "cancelled" and answer is not None and answer.status == "ok" and not answer.duplicate:
            return HAD_ARRIVED
    return SAID[card["status"]]


async def _on_its_way(connection: Connection, notification_id: str) -> str:
    try:
        judged = await evaluate(connection, notification_id, lock=False)
    except ButlersError:
        return SENDING
    return approved(judged.action, judged.facts) if isinstance(judged, Evaluation) else SENDING


KIND: Final = CardKind(
    "approval", authorize, cards.ask_approvals, VERBS, pressed, over=queries.approvals_over, outcome=outcome
)
