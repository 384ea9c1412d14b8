"""The states a delivery can be in, the same for the machine, for the surfaces and for the words they use [pure]."""

from typing import Final, Literal, get_args

Status = Literal[
    "queued", "claimed", "sending", "sent", "failed", "uncertain", "parked",
    "refused", "cancelled", "expired", "dead", "abandoned", "bounced",
]  # fmt: skip
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
