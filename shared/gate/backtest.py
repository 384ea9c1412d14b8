"""What a standing rule would have done with the messages of the past, as the actions they would be today."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pydantic import ValidationError

from shared.contracts import NotifyEnvelope
from shared.db.pool import Connection
from shared.errors import InvalidInput, Misconfigured
from shared.gate.decide import decide, matches
from shared.gate.resolve import action_of, resolve
from shared.model import Action, Decision, Facts, Rule, Verdict
from shared.storage import notifications, rules
from shared.storage.contacts import MissingIdentifier, Recipient
from shared.storage.rules import VERDICTS

DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Past:
    """A notification of the past, as the action it would be today."""

    notification_id: str
    at: datetime
    status: str
    message: str
    action: Action


async def actions(connection: Connection) -> list[Past]:
    """Return the last thousand notifications, oldest first, without those for nobody now or that cannot be read."""
    found = []
    for notification_id in reversed(await rules.past(connection)):
        row = await notifications.one(connection, notification_id)  # each by itself: all at once may not fit
        if row is None:
            continue
        try:
            envelope = NotifyEnvelope.model_validate(row["envelope"])
            target = await resolve(connection, envelope, Recipient.parse(row["whom"]))
        except (InvalidInput, Misconfigured, ValidationError):
            continue
        if not isinstance(target, MissingIdentifier):
            action = action_of(envelope, target, row["realm"], row["admitted_by"])
            found.append(Past(row["id"], row["created_at"], row["status"], envelope.delivery.message, action))
    return found


def would_have(rule: Rule, actions: Iterable[Past]) -> Iterator[tuple[Past, Decision]]:
    """Yield what this rule alone, unused at first, would have made of the actions it speaks of, oldest first. Pure."""
    uses: list[datetime] = []
    for one in actions:
        if not matches(rule, one.action):
            continue
        today = sum(at > one.at - DAY for at in uses)
        alone = Facts(realm=one.action.realm, rules=(replace(rule, used=len(uses), used_today=today),))
        decision = decide(one.action, alone)
        if decision.verdict == "allow" and decision.rule_id == rule.id:
            uses.append(one.at)
        yield one, decision


def tally(found: Sequence[tuple[Past, Decision]]) -> dict[Verdict, int]:
    """How many of what `would_have` found ended by each verdict."""
    counts = Counter(decision.verdict for _, decision in found)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def tallied(found: Sequence[tuple[Past, Decision]]) -> str:
    """Say the same counts for a person, such as `3 sent without asking, 0 asked all the same, 1 forbidden`."""
    return ", ".join(f"{count} {VERDICTS[verdict]}" for verdict, count in tally(found).items())
