"""The life of one delivery as one pure function, `step(delivery, event)`; the rows follow it.

What may have arrived is sent again only on the owner's word, except that a message to the owner is repeated once by
machine, and a card or a reaction, whose repeat does no harm, as often as needed. An answer speaks of its own attempt,
however late it comes. Times are seconds by the database's clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal

from shared.config.timings import STANDARD
from shared.model import PartStatus, Status

# What may happen to a delivery.
What = Literal[
    "claim", "renew", "lease_lost", "prepare_failed", "marked",
    "parked", "refused", "expired", "cancelled", "delayed", "moved", "duplicate_waits", "whole",
    "receipt", "rejected", "not_sent", "unknown", "arrived", "again", "leave", "repeat_due",
    "deadline", "retry", "withdrawn", "released", "answered", "reopened", "bounced", "restored", "started",
]  # fmt: skip
LEASE_SECONDS: Final = STANDARD.lease.total_seconds()
# Kinds whose repeat does no harm: a card is a view of one row, a reaction replaces the last one.
FREELY: Final = frozenset({"card", "reaction"})
HELD: Final[frozenset[Status]] = frozenset({"claimed", "sending"})


class Effect(Enum):
    """What a change of state demands of the caller that makes it."""

    WRITE = "write the committing byte"
    TELL = "tell the owner that it is uncertain"
    ASK = "ask the owner"
    ANSWER = "give the caller its answer"
    GIVE_BACK = "give the caller its answer and the standing rule its use"
    REPEAT = "send it once more, marked as a possible repeat"
    LATE = "tell the owner that a receipt came after all, and that both may have arrived"
    BOUNCED = "tell the owner that it came back"


@dataclass(frozen=True, slots=True)
class Part:
    """One part: `marked` is the last attempt that was marked, `out` are the marked ones whose answer may still come."""

    status: PartStatus = "queued"
    marked: int = 0
    out: tuple[int, ...] = ()
    receipt: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery: kind is owner, third_party, card or reaction; `repeats` counts those after an unknown outcome."""

    kind: str
    parts: tuple[Part, ...] = (Part(),)
    status: Status = "queued"
    attempt: int = 0
    fence: int = 0
    lease_until: float = 0.0
    repeats: int = 0
    # Whether an attempt came to its marker, or ended before it.
    tried: bool = False

    @property
    def begun(self) -> bool:
        """Whether something of it may have left."""
        return self.repeats > 0 or any(part.status in {"sending", "sent", "uncertain"} for part in self.parts)


@dataclass(frozen=True, slots=True)
class Event:
    """What happens, when, and at which part (counted from 1).

    The holder of the lease speaks by its fence, an answer and the owner by attempt. `word` is a receipt's number, or
    the reason why preparing failed.
    """

    what: What
    at: float = 0.0
    fence: int = 0
    n: int = 1
    attempt: int = 0
    word: str = ""


@dataclass(frozen=True, slots=True)
class Stepped:
    """The state after an event, and the effect it demands."""

    delivery: Delivery
    effect: Effect | None = None


_Step = Callable[[Delivery, Event], Stepped | None]


def step(delivery: Delivery, event: Event) -> Stepped | None:
    """Return what the event makes of the delivery; None, changing nothing, where its state does not admit the event."""
    return _STEPS[event.what](delivery, event)


def _with(delivery: Delivery, n: int, part: Part) -> tuple[Part, ...]:
    return (*delivery.parts[: n - 1], part, *delivery.parts[n:])


def _turn(delivery: Delivery, status: Status, old: PartStatus, new: PartStatus) -> Delivery:
    """Return the delivery in this status, with each part that was `old` turned to `new`."""
    parts = (replace(part, status=new) if part.status == old else part for part in delivery.parts)
    return replace(delivery, status=status, parts=tuple(parts))


def _claim(delivery: Delivery, event: Event) -> Stepped | None:
    if delivery.status != "queued":
        return None
    fence, attempt, until = delivery.fence + 1, delivery.attempt + 1, event.at + LEASE_SECONDS
    return Stepped(replace(delivery, status="claimed", fence=fence, attempt=attempt, lease_until=until))


def _lasts(delivery: Delivery, event: Event) -> bool:
    return delivery.status in HELD and delivery.fence == event.fence and event.at < delivery.lease_until


def _renew(delivery: Delivery, event: Event) -> Stepped | None:
    return Stepped(replace(delivery, lease_until=event.at + LEASE_SECONDS)) if _lasts(delivery, event) else None


def _lease_lost(delivery: Delivery, event: Event) -> Stepped | None:
    if delivery.status not in HELD or 0 < delivery.lease_until - event.at <= LEASE_SECONDS:
        return None
    if not any(part.status == "sending" for part in delivery.parts):
        return Stepped(replace(delivery, status="queued"))
    return _unknown(delivery, "sending")


def _unknown(delivery: Delivery, old: PartStatus) -> Stepped:
    """Leave it unknown whether the part that was `old` arrived: repeat a card or a reaction, else it is uncertain."""
    if delivery.kind in FREELY:
        return _repeated(_turn(delivery, delivery.status, old, "uncertain"), None)
    effect = Effect.TELL if delivery.status == "sending" else None
    return Stepped(_turn(delivery, "uncertain", old, "uncertain"), effect)


def _marked(delivery: Delivery, event: Event) -> Stepped | None:
    """Mark a part, in its order: from here on, without an answer, its outcome is unknown."""
    if not _lasts(delivery, event) or any(part.status != "sent" for part in delivery.parts[: event.n - 1]):
        return None
    if delivery.parts[event.n - 1].status not in {"queued", "failed"}:
        return None
    part = delivery.parts[event.n - 1]
    parts = _with(delivery, event.n, Part("sending", delivery.attempt, (*part.out, delivery.attempt)))
    until = event.at + LEASE_SECONDS
    return Stepped(replace(delivery, status="sending", parts=parts, lease_until=until, tried=True), Effect.WRITE)


def _between(delivery: Delivery, event: Event) -> bool:
    """Return whether the event comes from the delivery's holder while no part is on its way."""
    held = delivery.status in HELD and delivery.fence == event.fence
    return held and not any(part.status == "sending" for part in delivery.parts)


def _stopped(to: Status, effect: Effect | None = None) -> _Step:
    def stop(delivery: Delivery, event: Event) -> Stepped | None:
        return Stepped(replace(delivery, status=to), effect) if _between(delivery, event) else None

    return stop


def _moved(delivery: Delivery, event: Event) -> Stepped | None:
    """Queue the delivery again for its new address; fail one of which something may have left.

    What may have left in part goes to nobody else. A card begins anew at the new address.
    """
    ends = delivery.begun and delivery.kind != "card"
    return _stopped("failed", Effect.ANSWER)(delivery, event) if ends else _stopped("queued")(delivery, event)


def _delayed(delivery: Delivery, event: Event) -> Stepped | None:
    """Queue the delivery again and take its attempt back: a delay is no attempt."""
    back = _stopped("queued")(delivery, event)
    return back and Stepped(replace(back.delivery, attempt=delivery.attempt - 1))


def _prepare_failed(delivery: Delivery, event: Event) -> Stepped | None:
    tried = replace(delivery, tried=True)
    if not _between(delivery, event):
        return Stepped(tried)
    return _failed(tried) if event.word == "provider_rejected" else Stepped(replace(tried, status="queued"))


def _failed(delivery: Delivery, to: Status = "failed") -> Stepped:
    """End the delivery without success; give the standing rule its use back only if nothing can have left."""
    return Stepped(replace(delivery, status=to), Effect.ANSWER if delivery.begun else Effect.GIVE_BACK)


def _ended(delivery: Delivery, event: Event) -> Stepped | None:
    """End an attempt; its end decides about its part unless the part has gone on meanwhile."""
    part = delivery.parts[event.n - 1]
    if event.attempt not in part.out:
        return None
    out = tuple(attempt for attempt in part.out if attempt != event.attempt)
    noted = replace(delivery, parts=_with(delivery, event.n, replace(part, out=out)))
    is_newest = part.marked == event.attempt and part.status in {"sending", "uncertain"}
    if event.what != "receipt":
        return _without(noted, event) if is_newest else Stepped(noted)
    # A receipt ends the doubt about a later attempt, and stops a third party's repeat that has not begun.
    waits = delivery.status in {"queued", "claimed", "parked"} and delivery.kind == "third_party"
    spares = (waits and part.status == "queued") or delivery.status == part.status == "uncertain"
    if not is_newest and not spares:
        return Stepped(noted, Effect.LATE)
    return _arrived(replace(noted, parts=_with(noted, event.n, Part("sent", part.marked, out, event.word))))


def _arrived(delivery: Delivery) -> Stepped:
    """Set the delivery to sent if every part has its receipt, whatever it waits for.

    Else it goes on with the parts that nobody has tried.
    """
    if all(part.status == "sent" for part in delivery.parts):
        return Stepped(replace(delivery, status="sent"), Effect.ANSWER)
    return Stepped(replace(delivery, status="queued") if delivery.status in {"uncertain", "claimed"} else delivery)


def _without(delivery: Delivery, event: Event) -> Stepped:
    """End the newest attempt at a part without a receipt; what the owner left abandoned stays abandoned."""
    old, before = delivery.parts[event.n - 1].status, delivery.status
    if event.what == "unknown":
        after = _unknown(delivery, old)
    elif event.what == "rejected":
        after = _failed(_turn(delivery, before, old, "failed"))
    else:
        after = Stepped(_turn(delivery, "queued", old, "queued"))
    return Stepped(replace(after.delivery, status=before)) if before == "abandoned" else after


def _owner_says(delivery: Delivery, event: Event) -> Stepped | None:
    """Apply the owner's word to the uncertainty it was asked about; it does not count for a later one."""
    if delivery.status != "uncertain" or event.attempt != delivery.attempt:
        return None
    if event.what == "again":
        return _repeated(delivery, None)
    if event.what == "leave":
        return Stepped(replace(delivery, status="abandoned"), Effect.ANSWER)
    return _arrived(_turn(delivery, "uncertain", "uncertain", "sent"))


def _repeat_due(delivery: Delivery, _event: Event) -> Stepped | None:
    once = (delivery.status, delivery.kind, delivery.repeats) == ("uncertain", "owner", 0)
    return _repeated(delivery, Effect.REPEAT) if once else None


def _repeated(delivery: Delivery, effect: Effect | None) -> Stepped:
    """Queue it once more; repeat what goes to the owner whole: the words that mark it move the ends of its parts."""
    queued = _turn(delivery, "queued", "uncertain", "queued")
    if delivery.kind == "owner":
        queued = _turn(queued, "queued", "sent", "queued")
    return Stepped(replace(queued, repeats=delivery.repeats + 1), effect)


def _deadline(delivery: Delivery, _event: Event) -> Stepped | None:
    """End a delivery whose time is over: as a dead letter if it was queued and tried in vain, else as expired."""
    if delivery.status not in {"queued", "parked"}:
        return None
    return _failed(delivery, "dead" if delivery.tried and delivery.status == "queued" else "expired")


def _restored(delivery: Delivery, _event: Event) -> Stepped | None:
    """Make uncertain what waited for a third party when a backup was put back, whoever holds it.

    It may have left since the backup was made.
    """
    if delivery.kind not in {"third_party", "reaction"} or delivery.status not in {"queued", *HELD}:
        return None
    parts = tuple(replace(p, status="sent" if p.status == "sent" else "uncertain", out=()) for p in delivery.parts)
    return Stepped(replace(delivery, status="uncertain", attempt=delivery.attempt + 1, parts=parts), Effect.TELL)


def _unheld(
    to: Status, *come_from: Status, effect: Effect | None = None, only_unbegun: bool = False, attempts: int = 0
) -> _Step:
    def move(delivery: Delivery, _event: Event) -> Stepped | None:
        if delivery.status not in come_from or (only_unbegun and delivery.begun):
            return None
        return Stepped(replace(delivery, status=to, attempt=delivery.attempt + attempts), effect)

    return move


def _started(delivery: Delivery, _event: Event) -> Stepped | None:
    """The owner starts the bot that a card was refused by."""
    if delivery.kind != "card" or delivery.status != "failed":
        return None
    return Stepped(replace(delivery, status="queued"))


_STEPS: Final[Mapping[What, _Step]] = {
    "claim": _claim,
    "renew": _renew,
    "lease_lost": _lease_lost,
    "prepare_failed": _prepare_failed,
    "marked": _marked,
    "parked": _stopped("parked", Effect.ASK),
    "refused": _stopped("refused", Effect.ANSWER),
    "expired": _stopped("expired", Effect.ANSWER),
    "cancelled": _stopped("cancelled", Effect.ANSWER),
    "delayed": _delayed,
    "moved": _moved,
    "duplicate_waits": _stopped("queued"),
    "whole": _stopped("sent", Effect.ANSWER),
    "receipt": _ended,
    "rejected": _ended,
    "not_sent": _ended,
    "unknown": _ended,
    "arrived": _owner_says,
    "again": _owner_says,
    "leave": _owner_says,
    "repeat_due": _repeat_due,
    "deadline": _deadline,
    "retry": _unheld("parked", "failed", "expired", "dead", only_unbegun=True, attempts=1),
    "withdrawn": _unheld("cancelled", "queued", "parked", effect=Effect.ANSWER, only_unbegun=True),
    "released": _unheld("queued", "parked"),
    "answered": _unheld("cancelled", "parked", effect=Effect.ANSWER),
    "reopened": _unheld("parked", "failed", "expired", "dead", "cancelled", "parked", only_unbegun=True, attempts=1),
    "bounced": _unheld("bounced", "sent", effect=Effect.BOUNCED),
    "restored": _restored,
    "started": _started,
}
