"""A delivery's states and each change of them there is: for the machine, the surfaces and their words [pure]."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

Status = Literal[
    "queued", "claimed", "sending", "sent", "failed", "uncertain", "parked",
    "refused", "cancelled", "expired", "dead", "abandoned", "bounced",
]  # fmt: skip
PartStatus = Literal["queued", "sending", "sent", "failed", "uncertain"]
# What may happen to one.
What = Literal[
    "claim", "renew", "lease_lost", "prepare_failed", "marked",
    "parked", "refused", "expired", "cancelled", "delayed", "moved", "duplicate_waits", "whole",
    "receipt", "rejected", "not_sent", "unknown", "arrived", "again", "leave", "repeat_due",
    "deadline", "retry", "withdrawn", "released", "answered", "reopened", "bounced", "restored",
]  # fmt: skip
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
_WAYS: Final[Mapping[Status, tuple[Status, ...]]] = {
    "queued": ("claimed", "sent", "uncertain", "cancelled", "expired", "dead"),
    "claimed": ("sending", "sent", "uncertain", "queued", "parked", "refused", "cancelled", "expired", "failed"),
    "sending": ("sent", "failed", "uncertain", "queued", "parked", "refused", "cancelled", "expired"),
    "uncertain": ("sent", "queued", "failed", "abandoned"),
    "parked": ("queued", "sent", "cancelled", "expired"),
    "failed": ("parked",),
    "expired": ("parked",),
    "cancelled": ("parked",),
    "dead": ("parked",),
    "abandoned": ("sent",),
    "sent": ("bounced",),
}
# Every change of a delivery's status there is, as (from, to).
LEGAL: Final[frozenset[tuple[Status, Status]]] = frozenset((old, new) for old, ways in _WAYS.items() for new in ways)
