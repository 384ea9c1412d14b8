"""The decision whether a claimed delivery may leave now, and exactly which bytes.

It is made before preparing and at the marker. Everything is read afresh: the row, the address, the rules, the owner's
yes. Nothing that the Switchboard brought counts.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from messenger.storage import queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import NO_IDENTIFIER, Authorized, Blocked
from shared import answers
from shared.channels.base import shas
from shared.db.pool import Connection
from shared.errors import ButlersError, InvalidInput, Misconfigured
from shared.gate.decide import NOT_AS_APPROVED, decide
from shared.gate.delays import delay
from shared.gate.evaluate import Evaluation, Held, evaluate, weigh
from shared.hashing import reference
from shared.model import Finding
from shared.storage import deliveries, notifications, pending_actions
from shared.storage.contacts import MissingIdentifier

# Where a delivery goes that is denied for such a reason; for any other reason it is refused.
_DENIED: Final[Mapping[str, Literal["late", "expired"]]] = {"too_late": "late", "other_realm": "expired"}


async def authorize(
    connection: Connection, claimed: Claimed, realm: str, *, marker: bool, held_here: Held | None = None
) -> Authorized | Blocked:
    """Decide about a claimed notification; at the marker under the authority lock, with the rule's uses held.

    `realm` is the one in which this very Messenger works on that channel; `held_here` is what the caller's transaction
    has read and holds, never at the marker.
    """
    if claimed.notification_id is None:
        raise ButlersError("A card is checked by its action.")
    try:
        judged = await evaluate(connection, claimed.notification_id, lock=marker, held=held_here)
    except (InvalidInput, Misconfigured) as gone:
        row = await notifications.one(connection, claimed.notification_id)
        return Blocked("parked", (Finding("nobody_there", gone.message),), row)
    if marker and isinstance(judged, Evaluation) and await _taken_back(connection, judged):
        said = answers.withdrawn(judged.row["origin_butler"])
        return Blocked("cancelled", (Finding("withdrawn", said),))
    held: str | None = None
    while marker and isinstance(judged, Evaluation) and judged.decision.rule_id not in {None, held}:
        held = judged.decision.rule_id
        await pending_actions.lock_rule(connection, str(held))
        judged = await evaluate(connection, claimed.notification_id, lock=marker)
    if isinstance(judged, MissingIdentifier):
        row = await notifications.one(connection, claimed.notification_id)
        return Blocked("parked", (NO_IDENTIFIER,), row, missing=True)
    judged = _here(await _beside_others(connection, judged, claimed), realm)
    return _now_or_later(_verdict(judged, claimed), judged)


async def _beside_others(connection: Connection, judged: Evaluation, claimed: Claimed) -> Evaluation:
    """Judge anew by what only the Messenger can know.

    That is: a similar message to this third party may have arrived, unless the owner had this very one sent again.
    """
    if judged.action.is_owner:
        return judged
    to, sha = judged.target.address, judged.action.content_sha
    found = None if claimed.repeated else await queries.similar(connection, judged.row, claimed.channel, to, sha)
    restored = None if claimed.repeated else judged.facts.restored
    if found is None and restored == judged.facts.restored:
        return judged
    facts = replace(judged.facts, similar=reference(found) if found else None, restored=restored)
    facts, decision = await weigh(connection, judged.action, facts)
    return replace(judged, facts=facts, decision=decision)


def _here(judged: Evaluation, realm: str) -> Evaluation:
    """Deny what was asked for another realm than this Messenger sends in, whatever the rows say is set up.

    INVARIANT: what was asked for the sandbox, where anybody can say yes, never leaves by a live channel.
    """
    if judged.action.realm == realm:
        return judged
    facts = replace(judged.facts, realm=realm)
    return replace(judged, facts=facts, decision=decide(judged.action, facts))


async def _taken_back(connection: Connection, judged: Evaluation) -> bool:
    """Return whether its butler has withdrawn it and no part is past its marker."""
    return judged.facts.wanted_back and not await deliveries.begun(connection, judged.row["id"])


def _now_or_later(verdict: Authorized | Blocked, judged: Evaluation) -> Authorized | Blocked:
    """Delay what may leave as long as the owner delays it."""
    later = delay(judged.action, judged.facts) if isinstance(verdict, Authorized) else None
    if later is None:
        return verdict
    return Blocked("delayed", (Finding(later.code, later.text),), judged.row, until=later.until)


def _marked(judged: Evaluation, claimed: Claimed) -> Evaluation:
    """Make a message that goes to the owner once more after an unknown outcome say so at its beginning."""
    if claimed.kind != "owner" or not claimed.repeated:
        return judged
    return replace(judged, notes=(f"Possibly a repeat (ref {reference(claimed.id)})",))


def _verdict(judged: Evaluation, claimed: Claimed) -> Authorized | Blocked:
    decision, row, sha = judged.decision, judged.row, judged.action.content_sha
    now = (judged.target.address, "owner" if judged.action.is_owner else "third_party")
    elsewhere = now if now != (claimed.address, claimed.kind) else ("", "")
    if decision.verdict == "deny":
        return Blocked(_DENIED.get(decision.findings[0].code, "refused"), decision.findings, row, sha)
    if decision.verdict == "park":
        return Blocked("parked", decision.findings, row, sha, *elsewhere)
    try:
        wires = _marked(judged, claimed).wires()
    except InvalidInput as unfit:
        return Blocked("refused", (Finding("cannot_be_rendered", unfit.message),), row, sha)
    approval = judged.facts.approval
    if decision.approval_id is not None and approval is not None and tuple(shas(wires)) != approval.wire_shas:
        return Blocked("parked", (NOT_AS_APPROVED,), row, sha, *elsewhere)
    if any(elsewhere):
        moved = Finding("address_changed", "The recipient's address changed while it was waiting.")
        return Blocked("moved", (moved,), row, sha, *elsewhere)
    return Authorized(wires, decision, judged.action)
