"""Why what is allowed waits all the same: the brake. That is no verdict, and it asks the owner nothing. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shared.gate.decide import owner_is_trusted
from shared.model import Action, Brake, Facts

BRAKED: Final = "The owner has put the brake on."
RESTORED: Final = "A backup was restored; the brake is on until the owner lifts it."
SENDING: Final = "Approved. Sending."
NOT_SENT_YET: Final = "Approved. Not sent yet: the brake is on. It is sent when the brake is off, within 24 hours."
NOT_RUN_YET: Final = "Approved. Not run yet: the brake is on. It runs when the brake is off, within 24 hours."


@dataclass(frozen=True, slots=True)
class Delay:
    """A reason to wait, which is no verdict, and its end at most (seconds since 1970; None: until it is lifted)."""

    code: str
    text: str
    until: float | None


def delay(action: Action, facts: Facts) -> Delay | None:
    """Return why an allowed message waits all the same, or None if it does not.

    Cards never come here, so nothing stops a question.
    """
    stopping = [brake for brake in facts.brakes if brake_stops(brake, action)]
    if not stopping:
        return None
    ends = [brake.until for brake in stopping if brake.until is not None]
    until = max(ends) if len(ends) == len(stopping) else None
    by_itself = all(brake.reason == "restored" for brake in stopping)
    said = RESTORED if by_itself else BRAKED
    return Delay("braked", said, until)


def brake_stops(brake: Brake, action: Action) -> bool:
    """Return whether the brake is for this action; messages to the owner it stops only if the owner said so."""
    for wanted, value in (
        (brake.butler, action.origin),
        (brake.contact_id, action.contact_id),
        (brake.channel, action.channel),
    ):
        if wanted not in {None, value}:
            return False
    return brake.owner_too or not owner_is_trusted(action)


def holds_back(brake: Brake, origin: str) -> bool:
    """Return whether the brake is for this butler's calls: it names no contact, no channel, and this butler or none."""
    return brake.contact_id is None and brake.channel is None and brake.butler in {None, origin}


def approved(action: Action, facts: Facts) -> str:
    """Return what the owner reads after a yes to a message: that it leaves now, or that it waits."""
    return SENDING if delay(action, facts) is None else NOT_SENT_YET


def approved_call(origin: str, brakes: Iterable[Brake]) -> str:
    """Return what the owner reads after a yes to a call of this butler's, as these brakes are on."""
    return NOT_RUN_YET if any(holds_back(brake, origin) for brake in brakes) else "Approved. It runs now."
