"""The answers a caller may get, each worded in one place so that no model takes it for a failure. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final

from shared.channels import CHANNELS
from shared.contracts import Delivered, ErrorClass, Failure, NotifyResponse, failure, wire
from shared.display.visible import said
from shared.errors import ButlersError

ASKED: Final = frozenset({"pending_approval", "pending_missing_identifier"})
"""As what a message waits for the owner; in any other state no word on a question moves it."""

ACCEPTED: Final = "Accepted. It will be delivered; do not send it again."
BEING_SENT: Final = "Being sent; the outcome is not known yet. Do not send it again."
BRAKED: Final = "The owner has put the brake on. It will be delivered when the brake is lifted; do not send it again."
PAUSED: Final = (
    "This channel is not working at the moment. It will be delivered when it works again; do not send it again."
)
WAITS_FOR_YES: Final = (
    "Waiting for the owner's approval. It will be sent automatically once approved; do not send it again."
)
SAME_WORDS: Final = (
    "The same message to the same address was already sent in this request. To repeat it on purpose, use a new "
    "request_context.idempotency_key."
)
WAITS_ALREADY: Final = (
    "The same request is already waiting for the owner; this is its status. To request it again on purpose, use a new "
    "request_context.idempotency_key."
)
ALREADY_BEING_SENT: Final = "It is already being sent and can no longer be withdrawn. Do not send it again."
WITHDRAWAL_NOTED: Final = "The withdrawal is recorded; whether it came in time is not known yet."
NEW_MESSAGE: Final = "The conversation could not be verified, so this is treated as a new message, not as a reply."
UNSEEN_MESSAGE: Final = "The message you react to could not be verified, so this reaction needs the owner's approval."
OWNER_CHANGED: Final = "The owner edited the text: "
UNKNOWN: Final = "Delivery unconfirmed: it may have arrived. Do not send it again."
EARLIER: Final = "An earlier attempt may have arrived. Do not send it again."
LEFT: Final = "Delivery unconfirmed: it may have arrived, and the owner closed it. Do not send it again."
TWICE: Final = "It was sent again after an unconfirmed attempt and may have arrived twice."
WIPED: Final = (
    "It was not delivered, and its text is no longer stored. To send it again, use a new "
    "request_context.idempotency_key."
)
BY_OWNER: Final = "The owner confirmed that it arrived; the provider gave no receipt."


def queued(notification_id: str, message: str = ACCEPTED) -> NotifyResponse:
    """Return the answer for a notification that is on its way."""
    return NotifyResponse(status="queued", notification_id=notification_id, message=message)


def is_delayed(answer: NotifyResponse) -> bool:
    """Return whether the owner wants the notification later, so that waiting for its end is pointless."""
    return answer.status == "queued" and answer.message == BRAKED


def waiting(notification_id: str, action_id: str) -> NotifyResponse:
    """Return the answer for a notification that waits for the owner."""
    return NotifyResponse(
        status="pending_approval", notification_id=notification_id, action_id=action_id, message=WAITS_FOR_YES
    )


def missing(notification_id: str, action_id: str, channel: str) -> NotifyResponse:
    """Return the answer for a notification that waits for an identifier.

    Its words are the contract's (seed 001, Missing Channel Identifier Fallback).
    """
    return NotifyResponse(
        status="pending_missing_identifier",
        notification_id=notification_id,
        action_id=action_id,
        message=f"Cannot deliver {channel} notification -- no {channel} identifier on file.",
    )


def failed(
    notification_id: str | None, error_class: ErrorClass, message: str, *, retryable: bool | None = None
) -> NotifyResponse:
    """Return the answer for a notification that did not and will not go out as asked."""
    return NotifyResponse(
        status="error",
        notification_id=notification_id,
        error=failure(error_class, message, retryable=retryable),
    )


def refusal(wrote: str) -> str:
    """Say that the provider refused it, and quote what the provider wrote, or what a far end wrote through it."""
    return f"The provider rejected it: {said(wrote)}"


def bounced(notification_id: str, status: str, wrote: str) -> NotifyResponse:
    """Return the answer for a mail that was taken and came back; quote what the far end wrote after its code."""
    words = f" The other mail server wrote: {said(wrote)}" if wrote else ""
    return failed(notification_id, "provider_rejected", f"Bounced: {status}.{words}")


def uncertain(notification_id: str, error_class: ErrorClass, message: str = UNKNOWN) -> NotifyResponse:
    """Return the answer for a notification whose outcome nobody can know.

    The answer says so and does not look like something to try again.
    """
    return NotifyResponse(
        status="uncertain",
        notification_id=notification_id,
        error=failure(error_class, message, retryable=False),
        message=message,
    )


def about_thread(intent: str) -> str:
    """Return what a butler is told if nothing proves its thread; `intent` is the one the message goes out with."""
    return UNSEEN_MESSAGE if intent == "react" else NEW_MESSAGE


def reaches_nobody(channel: str) -> str:
    """Return what is said of a message by a channel that is the sandbox while another is live: "Sent" would mislead."""
    return f"Nothing is live {CHANNELS[channel].via}: it goes into the sandbox and reaches nobody."


def withdrawn(butler: str) -> str:
    """Return what is said of a message that its own butler withdrew."""
    return f"Cancelled by {butler}. Not sent."


def may_reopen(answer: NotifyResponse) -> bool:
    """Return whether asking for the same thing again may begin it anew.

    The Messenger checks how it really ended.
    """
    if answer.error is None or answer.error.message == WIPED:
        return False
    return answer.error.error_class in {"provider_rejected", "timeout"}


def delivered(channel: str, receipt: str, parts: int, realm: str) -> Delivered:
    """Return where it went, by the receipt of its first part; that it has several, or was played, is said where so."""
    several, played = parts if parts > 1 else None, True if realm == "sandbox" else None
    return Delivered(channel=channel, delivery_id=receipt, parts=several, sandbox=played)


def sent(notification_id: str, delivered: Delivered, note: str | None = None) -> NotifyResponse:
    """Return the answer for a notification that arrived.

    That is known by the provider's own receipt, or by the owner's word, which `note` then says.
    """
    return NotifyResponse(status="ok", notification_id=notification_id, delivery=delivered, note=note)


def as_tool_answer(answer: NotifyResponse) -> dict[str, object]:
    """Return the object the tool returns.

    For a missing identifier it has exactly the contract's three keys, and `duplicate` and `note` where they are set.
    """
    whole = wire(answer)
    if answer.status != "pending_missing_identifier":
        return whole
    return {name: whole[name] for name in ("status", "action_id", "message", "duplicate", "note") if name in whole}


CALL_WAITS: Final = (
    "Waiting for the owner's approval. It runs automatically once approved; do not call it again. "
    "`notification_status` with this action_id tells how it stands."
)
CALL_RUNS: Final = "It was let through and runs; the outcome is not known yet. Do not call it again."
CALL_LATE_AGAIN: Final = "Expired before it could run again. An earlier attempt may have run; do not call it again."
# Of what the owner left, and of what is so old that its result is not kept.
CALL_LEFT: Final = "Its outcome is not known, and the owner closed it. Do not call it again."
CALL_UNCERTAIN: Final = "It may have run; nobody knows. Do not call it again unless the owner says so."


def call_refused(why: str) -> dict[str, object]:
    """Return the answer for a tool call that a rule or the owner's noes refuse."""
    return {"status": "error", "error": wire(failure("forbidden", f"{why} Nothing was done.", retryable=False))}


def call_stands(row: Mapping[str, Any]) -> dict[str, object]:
    """Return how a call of a gated tool stands, in the words of a message's answer."""
    status, about = row["status"], {"action_id": row["id"], "tool": row["tool_name"]}
    came: dict[str, object] = json.loads(row["result"] or "{}")
    match status:
        case "pending":
            return {"status": "pending_approval", **about, "message": CALL_WAITS}
        case "approved" | "executing":
            return {"status": "queued", **about, "message": CALL_RUNS}
        case "executed":
            return {"status": "ok", **about, **came}
        case "uncertain":
            return {"status": "uncertain", **about, "message": CALL_UNCERTAIN}
        case "denied":
            why = f" Reason: {row['decision_reason']}" if row["decision_reason"] else ""
            said, of_class = f"Denied by the owner.{why} Nothing was done.", "forbidden"
        case "expired":
            said = CALL_LATE_AGAIN if row["attempt"] else "Expired before it could run."
            of_class = "timeout"
        case "cancelled":
            said, of_class = str(came.get("error", "Cancelled. Nothing was done.")), "forbidden"
        case _:
            said, of_class = str(came.get("error", CALL_LEFT)), "internal_error"
    return {"status": "error", **about, "error": {"class": of_class, "message": said, "retryable": False}}


def failure_of(error: ButlersError) -> Failure:
    """Make the error object of an error of ours; a code that callers do not know is internal to them."""
    known = {"validation_error", "forbidden", "idempotency_conflict", "target_unavailable"}
    code = error.code if error.code in known else "internal_error"
    return failure(code, str(error))  # type: ignore[arg-type]  # one of the names above
