"""One look at an admitted notification: resolve it again, gather, decide, and render what would go out now.

Used wherever a decision about stored words is made: at the Messenger's marker, at the press of a button, in the
console and on the command line. Everything is read afresh; nothing a mover brought counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from shared.channels import CHANNELS
from shared.channels.base import Message, Wire
from shared.contracts import NotifyEnvelope
from shared.db.pool import Connection, Record
from shared.display import owner
from shared.display.approval import marking
from shared.errors import ButlersError
from shared.gate.accept import thread_of
from shared.gate.decide import decide
from shared.gate.gather import gather
from shared.gate.resolve import action_of, going, resolve
from shared.model import Action, Decision, Facts
from shared.storage import cooldown, notifications
from shared.storage.contacts import MissingIdentifier, Recipient, Target

NO_ADDRESS: Final = "There is no address to send it to."


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything one look at a notification brings together."""

    row: Record
    envelope: NotifyEnvelope
    target: Target
    facts: Facts
    action: Action
    decision: Decision
    # What the house has to say about it, if it goes to the owner.
    notes: tuple[str, ...] = ()

    @property
    def impossible(self) -> str | None:
        """Why it could not leave even by the owner's yes, if it could not."""
        if not self.target.deliverable:
            return NO_ADDRESS
        decision = afresh(self)
        return f"It cannot be sent: {decision.findings[0].text}" if decision.verdict == "deny" else None

    def wires(self) -> tuple[Wire, ...]:
        """Render what would go out now."""
        return render(self.row, self.envelope, self.target, self.facts.sender, self.notes)


@dataclass(frozen=True, slots=True)
class Held:
    """A notification's row that a transaction holds, and whom it has found it to go to, if to anybody."""

    row: Record
    target: Target | None


async def evaluate(
    connection: Connection, notification_id: str, *, lock: bool, held: Held | None = None
) -> Evaluation | MissingIdentifier:
    """Resolve the notification again, gather and decide; hold its row if `lock` is set.

    What this transaction has read and holds is not read again. Raises ButlersError if the facts cannot be read.
    """
    read = notifications.locked if lock else notifications.one
    row = held.row if held is not None else await read(connection, notification_id)
    if row is None:
        raise ButlersError("The notification does not exist.")
    envelope = notifications.envelope_of(row)
    # A thread must be proved each time.
    known = held.target if held is not None and envelope.delivery.intent == "send" else None
    target = known or await resolve(connection, envelope, Recipient.parse(row["whom"]))
    if isinstance(target, MissingIdentifier):
        return target
    channel, asked_at = envelope.delivery.channel, row["created_at"]
    facts = await gather(connection, channel, notification_id, target, approval=True, asked_at=asked_at)
    facts = replace(facts, in_time=row["too_late"] is not True, changed=row["owner_text"] is not None)
    action = action_of(envelope, target, row["realm"], row["admitted_by"])
    facts, decision = await weigh(connection, action, facts)
    return Evaluation(row, envelope, target, facts, action, decision)


async def weigh(connection: Connection, action: Action, facts: Facts) -> tuple[Facts, Decision]:
    """Decide, and return the facts together with the decision.

    If the owner would have to be asked, what the owner said there lately is a fact too.
    """
    decision = decide(action, facts)
    if decision.verdict != "park":
        return facts, decision
    until = await cooldown.cools_until(connection, action.origin, action.realm, action.contact_id, action.address)
    facts = replace(facts, cools_until=until)
    return facts, decide(action, facts)


def afresh(judged: Evaluation) -> Decision:
    """Decide again about a message that waited.

    Its time begins when authority is given, an earlier yes counts no more, and what waits outlasts a cool-down.
    """
    return decide(judged.action, replace(judged.facts, in_time=True, approval=None, cools_until=None))


def render(
    row: Record, asked: NotifyEnvelope, target: Target, sender: str, notes: Sequence[str] = ()
) -> tuple[Wire, ...]:
    """Render the wires of one notification to one address; the same rows give the same wires.

    Others get the words as they are; the owner is told whose they are, and can press nothing in them.
    """
    envelope = going(asked, target)
    delivery = envelope.delivery
    message = Message(
        notification_id=row["id"],
        channel=delivery.channel,
        intent=delivery.intent,
        address=target.address,
        text=delivery.message,
        subject=delivery.subject,
        emoji=delivery.emoji,
        thread=thread_of(envelope),
        sender=sender,
        created_at=row["created_at"],
        # The owner deletes messages and is still told; to others an answer that answers nothing may mean another thing.
        alone_if_gone=target.is_owner,
    )
    if target.is_owner:
        mark = marking(envelope.origin_butler, row["admitted_by"])
        return owner.by_butler(message, envelope.origin_butler, [*notes, *([mark] if mark else [])])
    return CHANNELS[delivery.channel].render(message)
