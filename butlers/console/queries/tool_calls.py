"""What the page of a gated tool's call shows, read by SELECT only; every word of others is shown as data."""

from dataclasses import dataclass
from uuid import UUID

from butlers.console.labels import CALL_HEADLINES, moment
from butlers.console.queries.approvals import EVENTS, Step, left_out, step
from shared.db.pool import Connection
from shared.display.fates import CALL
from shared.display.tool_call import HIGH_RISK, named_values, wants_to_run
from shared.display.visible import in_line, visible
from shared.gate.tool_call import asked_call
from shared.hashing import short
from shared.storage import tool_calls


@dataclass(frozen=True, slots=True)
class CallQuestion:
    """One call that waits or was decided, as its page shows it."""

    id: str
    revision: int
    butler: str
    tool: str
    title: str
    says: str
    values: str
    risk: str
    findings: tuple[str, ...]
    status: str
    words: str
    open: bool
    moving: bool
    uncertain: bool
    attempt: int
    shown: str
    hash: str
    reason: str
    result: str
    asked: str
    expires_at: str
    trouble: str
    history: tuple[Step, ...]


async def call_question(connection: Connection, call_id: str) -> CallQuestion | None:
    """Read the call with everything the owner should see before saying yes; None if there is none."""
    row = await tool_calls.one(connection, call_id)
    if row is None:
        return None
    status = "expired" if row["status"] == "pending" and not row["open"] else row["status"]
    changed = tool_calls.sha_of(row) != row["content_sha"]
    events = await connection.fetch(EVENTS, UUID(call_id), UUID(call_id))
    return CallQuestion(
        id=row["id"],
        revision=row["revision"],
        butler=visible(row["origin_butler"]),
        tool=in_line(row["tool_name"]),
        title=wants_to_run(row["origin_butler"], row["tool_name"]),
        says=visible(row["says"]),
        values=visible(named_values(row["arguments"])),
        risk=HIGH_RISK if row["risk"] == "high" else "",
        findings=tuple(map(in_line, (await asked_call(connection, row)).findings)) if row["open"] else (),
        status=status,
        words=CALL[status],
        open=row["open"],
        moving=status in {"approved", "executing"},
        uncertain=status == "uncertain",
        attempt=row["attempt"],
        shown=tool_calls.sha_of(row),
        hash=short(row["content_sha"]),
        reason=visible(row["decision_reason"] or ""),
        result=visible(row["result"] or ""),
        asked=moment(row["requested_at"]),
        expires_at=moment(row["expires_at"]),
        trouble="The stored call was changed after it was asked." if changed and row["open"] else "",
        history=(*left_out(events), *[step(one, CALL_HEADLINES) for one in events]),
    )
