"""Stage 10's choice: what an attempt's end makes of part, delivery and answer, and when it is tried again. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from messenger.channels.base import Receipt, SendFailed
from messenger.delivery.states import Delivery, Event, Part, step
from messenger.retry import retry_at
from shared.display.visible import visible
from shared.model import What

_ZERO: Final = datetime(2000, 1, 1, tzinfo=UTC)
_AT_ITS_MARKER: Final = Part("sending", 1, (1,))


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
    """Return the next states of a part at its marker, by `states.step`, with the wait before another try."""
    result = ended.result
    parts = (_AT_ITS_MARKER,) if ended.last_part else (_AT_ITS_MARKER, Part())
    stepped = step(Delivery(ended.kind, parts, "sending", attempt=1), Event(_what(result), attempt=1))
    assert stepped is not None  # noqa: S101  # a part at its marker admits every end
    part, status = stepped.delivery.parts[0].status, stepped.delivery.status
    if isinstance(result, Receipt):
        to = "sent" if status == "sent" else None
        return Next(part, to, provider_id=result.provider_id, outcome="sent", detail=result.detail)
    why, said = result.reason, visible(result.message)
    wait = _wait(ended, result) if status == "queued" else timedelta()
    return Next(part, status, why, wait, outcome=why, detail=said)


def _what(result: Receipt | SendFailed) -> What:
    if isinstance(result, Receipt):
        return "receipt"
    if result.reason == "provider_rejected":
        return "rejected"
    return "not_sent" if result.proved_not_sent else "unknown"


def _wait(ended: Ended, result: SendFailed) -> timedelta:
    return retry_at(_ZERO, ended.attempt, ended.jitter, result.retry_after) - _ZERO
