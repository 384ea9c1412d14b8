"""The card about a tool call that may or may not have run: what is known, and three answers to it.

Of the owner's words on one attempt the first counts. Its buttons bind the call, the attempt, its content and the word.
"""

from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind, Press, Presser
from messenger.cards.calls import outcome, request
from messenger.storage import cards
from messenger.storage.deliveries import Claimed
from messenger.storage.kinds import tool_call_cards
from messenger.verdict import Authorized, Blocked
from shared.auth.mac import tag, tag_matches
from shared.channels import CHANNELS, realms
from shared.channels.telegram import Button
from shared.db.pool import Connection, Record
from shared.display.owner import Sheet
from shared.gate.tool_call import CallWord, Resolve, resolve_call
from shared.model import Decision, Finding
from shared.storage import tool_calls

_VERBS: Final[dict[str, CallWord]] = {"cr": "ran", "ca": "again", "cl": "leave"}
_LABELS: Final = (("It ran", "cr"), ("Run again", "ca"), ("Leave it", "cl"))


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the card's wires as long as nobody knows what became of this attempt."""
    call = await tool_calls.one(connection, str(claimed.action_id))
    if call is None or call["status"] != "uncertain" or call["attempt"] + 1 != claimed.revision:
        return Blocked("cancelled", (Finding("over", "Its outcome is known."),))
    stopped = await base.elsewhere(connection, claimed, call["realm"], context)
    if stopped is not None:
        return stopped
    title, shown = outcome.words(call)
    where = base.link(context, "approvals", call["id"])
    if not CHANNELS[claimed.channel].has_buttons:
        foot = "\n".join([f"Say what became of it: {where}", *base.near(where)])
        wires = await base.told(connection, claimed, title, Sheet(shown.head, shown.quotes, foot, (where,)))
    else:
        keys = [*_buttons(context.secret, call), *base.opens(context, "approvals", call["id"])]
        wires = base.with_keyboard(await base.told(connection, claimed, "", shown), keys)
    return Authorized(wires, Decision("allow", (Finding("card", "A question to the owner."),)))


def _bound(call: Record, verb: str) -> tuple[str, ...]:
    return "call_uncertain", call["id"], str(call["attempt"]), verb, tool_calls.sha_of(call)


def _buttons(secret: bytes, call: Record) -> list[list[Button]]:
    made = [Button(name, base.packed(call["id"], verb, tag(secret, *_bound(call, verb)))) for name, verb in _LABELS]
    return [made[:2], made[2:]]


async def _pressed(connection: Connection, press: Press, presser: Presser, context: Context) -> tuple[str, str]:
    """Carry out the owner's word; the card shows the outcome as soon as that is committed."""
    call = await tool_calls.one(connection, press.about)
    if call is None or not tag_matches(context.secret, press.tag, *_bound(call, press.verb)):
        return base.STALE, base.NOT_VALID
    realm = realms.realm_of(context.settings, "telegram")
    word = Resolve(call["id"], call["attempt"], _VERBS[press.verb], presser.contact_id, "telegram", realm)
    found = await resolve_call(connection, word)
    if found.code != base.NOT_HERE:
        await cards.adopt(connection, KIND.name, call["id"], call["attempt"] + 1, presser.message_id)
    return found.code, found.text


# Its cards are queued with those about calls that failed.
KIND: Final = CardKind(
    "call_uncertain",
    authorize,
    None,
    _VERBS,
    _pressed,
    over=tool_call_cards.uncertain_over,
    outcome=request.outcome,
)
