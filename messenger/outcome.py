"""Stage 10's choice: what an attempt's end makes of part, delivery and answer. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from messenger.channels import Receipt, SendFailed
from messenger.timing import retry_at
from shared.render.telegram import visible

PAUSED_SECONDS: Final = 60.0
_ZERO: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Next:
    """Where part and delivery go; `delivery` None means that the next part follows."""

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
    """The next states; only what is proved not sent is ever queued again, cards excepted."""
    result = ended.result
    if isinstance(result, Receipt):
        to = "sent" if ended.last_part else None
        return Next("sent", to, provider_id=result.provider_id, outcome="sent", detail=result.detail)
    why, said = result.reason, visible(result.message)
    if result.reason == "provider_rejected":
        return Next("failed", "failed", why, outcome=why, detail=said)
    if result.proved_not_sent or ended.kind == "card":
        return Next("queued", "queued", why, _wait(ended, result), outcome=why, detail=said)
    return Next("uncertain", "uncertain", why, outcome=why, detail=said)


def _wait(ended: Ended, result: SendFailed) -> timedelta:
    if result.reason == "unauthorized":
        return timedelta(seconds=PAUSED_SECONDS)
    return retry_at(_ZERO, ended.attempt, ended.jitter, result.retry_after) - _ZERO
