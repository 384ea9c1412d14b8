"""What became of a message, one word for each fate, the same on cards, in mails, in the console and the CLI. Pure."""

from collections.abc import Mapping
from typing import Final

from shared.model import Status

# A notification, as its butler is answered.
STATUS: Final[Mapping[str, str]] = {
    "ok": "Sent",
    "queued": "Sending",
    "uncertain": "Delivery unconfirmed",
    "pending_approval": "Waiting for approval",
    "pending_missing_identifier": "No address on file",
    "error": "Not delivered",
}
# The house's sentence of an error begins with its fate, where that is more than "not delivered".
ENDED: Final = ("Denied", "Expired", "Cancelled", "Blocked", "Bounced", "Gave up after retrying")
# The owner's approval of it.
ACTION: Final[Mapping[str, str]] = {
    "pending": "Waiting for approval",
    "approved": "Approved, sending",
    "executing": "Approved, sending",
    "executed": "Sent",
    "denied": "Denied",
    "expired": "Expired",
    "cancelled": "Cancelled",
    "failed": "Not delivered",
    "uncertain": "Delivery unconfirmed",
}
# What the owner is told who answers too late.
ANSWERED: Final[Mapping[str, str]] = {
    "approved": "Already approved; it is being sent",
    "executing": "Already approved; it is being sent",
    "executed": "Already approved and sent",
    "denied": "Already denied",
    "expired": "Already expired",
    "cancelled": "Already cancelled",
    "failed": "Already approved, but not delivered",
    "uncertain": "Already approved; delivery unconfirmed",
}
# A call of a gated tool.
CALL: Final[Mapping[str, str]] = {
    "pending": "Waiting for approval",
    "approved": "Approved, about to run",
    "executing": "Running",
    "executed": "Ran",
    "denied": "Denied",
    "expired": "Expired",
    "cancelled": "Cancelled",
    "failed": "Failed",
    "uncertain": "Outcome not known",
}
# Its way to the provider.
DELIVERY: Final[Mapping[Status, str]] = {
    "queued": "Sending",
    "claimed": "Sending",
    "sending": "Sending",
    "sent": "Sent",
    "failed": "Not delivered",
    "uncertain": "Delivery unconfirmed",
    "parked": "Waiting for approval",
    "refused": "Blocked",
    "cancelled": "Cancelled",
    "expired": "Expired",
    "dead": "Gave up after retrying",
    "abandoned": "Delivery unconfirmed, closed",
    "bounced": "Bounced",
}


def fate(status: str, error: str = "") -> str:
    """Return what became of a notification, by its status and the sentence of its error."""
    return next((one for one in ENDED if status == "error" and error.startswith(one)), STATUS[status])
