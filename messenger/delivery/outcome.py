"""Stage 10's choice: what an attempt's end makes of part, delivery and answer, and when it is tried again. Pure."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from messenger.channels.base import Receipt, SendFailed
from messenger.retry import wait_after
from shared.display.visible import visible

# Whose repeat does no harm: a card is a view of one row, a reaction replaces the last one.
FREELY: Final = frozenset({"card", "reaction"})


@dataclass(frozen=True, slots=True)
class Next:
    """The next states of part and delivery; `delivery` None means that the next part follows."""

    part: str
    delivery: str | None
    reason: str | None = None
    after: timedelta = timedelta()
    provider_id: str | None = None
    outcome: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """One attempt's end, with what decides about trying again."""

    result: Receipt | SendFailed
    last_part: bool
    kind: str
    attempt: int
    jitter: float


def after(ended: Ended) -> Next:
    """Say what becomes of a part at its marker, and of its delivery, and how long to wait before another try."""
    result = ended.result
    if isinstance(result, Receipt):
        to = "sent" if ended.last_part else None
        return Next("sent", to, provider_id=result.provider_id, outcome="sent", detail=result.detail)
    status, why, said = _status(result, ended.kind), result.reason, visible(result.message)
    wait = wait_after(ended.attempt, ended.jitter, result.retry_after) if status == "queued" else 0.0
    return Next(status, status, why, timedelta(seconds=wait), outcome=why, detail=said)


def _status(result: SendFailed, kind: str) -> str:
    """INVARIANT: what may have arrived is repeated by no machine, but where a repeat does no harm."""
    if result.reason == "provider_rejected":
        return "failed"
    return "queued" if result.proved_not_sent or kind in FREELY else "uncertain"
