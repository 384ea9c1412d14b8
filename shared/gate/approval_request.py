"""A pending action as the owner is asked it, on every surface: everything is looked up now, by the house.

A butler's process may fill the action's own columns. Of these only what the butler says about itself is shown, as the
butler's words.
"""

from dataclasses import replace
from typing import Final
from uuid import UUID

from shared import answers
from shared.channels import realms
from shared.contracts import NotifyEnvelope
from shared.db.pool import Connection, Record
from shared.display.approval import Asked
from shared.errors import InvalidInput, Misconfigured
from shared.gate.accept import thread_of
from shared.gate.admit import why_asked, why_missing
from shared.gate.decide import decide
from shared.gate.gather import gather
from shared.gate.resolve import action_of, going, resolve
from shared.model import Finding
from shared.storage import notifications
from shared.storage.contacts import MissingIdentifier, Recipient, Target, UnknownContact

# Why this revision was made, if the house or the owner made it: a butler can write in no name but its own.
MADE: Final = """
SELECT reason FROM shared.approval_events
WHERE action_id = $1 AND actor IN ('messenger', 'owner') AND event_type IN ('parked', 'revised')
    AND detail @> jsonb_build_object('revision', $2::int) ORDER BY seq DESC LIMIT 1
"""
# That no rule allows it holds for every question, and a missing address stands in the first line.
OF_COURSE: Final = frozenset({"nothing_allows", "no_identifier"})


async def asked(connection: Connection, action: Record) -> Asked:
    """Return the question of this row (pending_actions.open_action).

    Raises Unreadable or InvalidInput if the row holds nothing that could be asked.
    """
    envelope = notifications.envelope_of(action)
    target = await _target(connection, envelope, action["whom"])
    out = going(envelope, target)
    delivery, missing = out.delivery, isinstance(target, MissingIdentifier)
    findings = await _findings(connection, action, envelope, target)
    reasons = [one.text for one in findings if one.code not in OF_COURSE]
    if action["realm"] == realms.SANDBOX and await realms.is_played(connection, delivery.channel):
        reasons.append(answers.reaches_nobody(delivery.channel))
    said = [one.text for one in findings]
    house = {why_asked(envelope.origin_butler, findings), why_missing(envelope, target.contact_name or "")}
    return Asked(
        origin=envelope.origin_butler,
        admitted_by=action["admitted_by"],
        intent=delivery.intent,
        channel=delivery.channel,
        contact_id=target.contact_id or "",
        name=target.contact_name or "",
        address="" if isinstance(target, MissingIdentifier) else target.address,
        deliverable=not missing and isinstance(target, Target) and target.deliverable,
        subject=delivery.subject or "",
        emoji=delivery.emoji or "",
        thread=thread_of(out) or "",
        findings=(*reasons, *await _made(connection, action, said)),
        summary=action["agent_summary"] if action["revision"] == 1 and action["agent_summary"] not in house else "",
        until=action["expires_at"],
        message=delivery.message,
        content_sha=_content_sha(action, envelope, target),
    )


def _content_sha(action: Record, envelope: NotifyEnvelope, target: Target | MissingIdentifier) -> str | None:
    """Return the hash of what would go out now.

    Only if nothing could go out, return the hash of the row, which a butler may fill.
    """
    if isinstance(target, MissingIdentifier) or not target.deliverable:
        sha: str | None = action["content_sha"]
        return sha
    return action_of(envelope, target, action["realm"], action["admitted_by"]).content_sha


async def _target(connection: Connection, envelope: NotifyEnvelope, whom: str) -> Target | MissingIdentifier:
    """Return whom it is for; if what the owner has on file is of no use, a target that cannot be sent to.

    Raises InvalidInput if the row itself names nobody.
    """
    meant = Recipient.parse(whom)
    try:
        return await resolve(connection, envelope, meant)
    except UnknownContact:
        raise
    except (InvalidInput, Misconfigured):
        return Target("no usable address", deliverable=False)


async def _findings(
    connection: Connection, action: Record, envelope: NotifyEnvelope, target: Target | MissingIdentifier
) -> tuple[Finding, ...]:
    """Return why nothing lets it out unasked, as of now; an answer that was given counts no more."""
    channel = envelope.delivery.channel
    if isinstance(target, MissingIdentifier):
        return (Finding("no_identifier", f"There is no {channel} address on file for {target.contact_name}."),)
    facts = await gather(connection, channel, action["notification_id"], target, asked_at=action["created_at"])
    act = action_of(envelope, target, action["realm"], action["admitted_by"])
    facts = replace(facts, in_time=True, changed=action["owner_text"] is not None)
    return decide(act, facts).findings


async def _made(connection: Connection, action: Record, said: list[str]) -> tuple[str, ...]:
    """Return why this revision was asked, as the house wrote it down, without what is in `said` already."""
    found = await connection.fetchval(MADE, UUID(action["id"]), action["revision"])
    reason = str(found or "").removeprefix(why_asked(action["origin_butler"], ()))
    for sentence in said:
        reason = reason.replace(sentence, "")
    reason = " ".join(reason.split())
    return (reason,) if reason else ()
