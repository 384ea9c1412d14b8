"""Standing rules, made and revoked by the owner: the only writer of shared.approval_rules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from shared.addresses import parse_recipient
from shared.approvals import Event, record
from shared.db import Connection, Record
from shared.errors import InvalidInput
from shared.policy import Action, Decision, Facts, Rule, decide, matches

ADD: Final = """
INSERT INTO shared.approval_rules (origin_butler, effect, arg_constraints, description, expires_at, max_uses,
    max_per_day, realm, made_by)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5, $6, $7, $8, $9) RETURNING id::text
"""
REVOKE: Final = "UPDATE shared.approval_rules SET active = false WHERE id = $1 AND active RETURNING id"
LIST: Final = """
SELECT r.id::text, r.effect, r.origin_butler, r.arg_constraints, r.description, r.expires_at, r.max_uses, r.max_per_day,
    r.realm, r.made_by::text, r.created_at, c.name AS contact,
    (SELECT count(*) FROM shared.rule_uses u WHERE u.rule_id = r.id) AS used,
    r.active AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp()) AS active
FROM shared.approval_rules r LEFT JOIN shared.contacts c ON c.id::text = r.arg_constraints ->> 'contact_id'
WHERE r.tool_name = 'notify' ORDER BY r.created_at, r.id
"""
REALMS: Final = "SELECT DISTINCT realm FROM shared.channels WHERE $1::text IS NULL OR channel = $1"
PAST: Final = """
SELECT id::text, envelope, whom, realm, admitted_by, status, created_at FROM shared.notifications
ORDER BY created_at DESC LIMIT 1000
"""
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class NewRule:
    """A standing rule as the owner words it."""

    effect: Literal["allow", "deny"]
    constraints: Mapping[str, str]
    butler: str | None = None
    max_uses: int | None = None
    max_per_day: int | None = None
    lasts: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """A notification of the past, as the action it would be today."""

    notification_id: str
    at: datetime
    status: str
    message: str
    action: Action


def constraints_of(
    *, contact_id: str | None, recipient: str | None, channel: str | None, intent: str | None
) -> dict[str, str]:
    """What the rule pins, as stored; raises InvalidInput where it pins nobody or contradicts itself."""
    if (contact_id is None) == (recipient is None):
        raise InvalidInput("A rule is for one contact or one recipient.", "Give --contact-id or --recipient.")
    if channel not in {None, "telegram", "email"}:
        raise InvalidInput(f"There is no channel `{channel}`.", "Known are: telegram, email.")
    if intent not in {None, "send", "reply", "react"}:
        raise InvalidInput(f"There is no intent `{intent}`.", "Known are: send, reply, react.")
    if recipient is not None:
        address = parse_recipient(recipient)
        if channel not in {None, address.channel}:
            raise InvalidInput(f"{address.value} cannot be reached by {channel}.", f"Use --channel {address.channel}.")
        recipient = address.value
    wanted = {"contact_id": contact_id, "recipient": recipient, "channel": channel, "intent": intent}
    return {name: value for name, value in wanted.items() if value is not None}


async def add(connection: Connection, new: NewRule, by: str) -> str:
    """The new rule's id; it holds in the realm its channel is configured for now."""
    realm = await _realm(connection, new.constraints)
    args = (new.effect, new.constraints, describe(new), new.lasts, new.max_uses, new.max_per_day, realm, UUID(by))
    rule_id = str(await connection.fetchval(ADD, new.butler, *args))
    await record(connection, Event("rule_made", "owner", rule_id=rule_id, reason=describe(new)), contact=by)
    return rule_id


async def _realm(connection: Connection, constraints: Mapping[str, str]) -> str:
    channel = constraints.get("channel")
    if channel is None and "recipient" in constraints:
        channel = parse_recipient(constraints["recipient"]).channel
    realms = [row["realm"] for row in await connection.fetch(REALMS, channel)]
    if len(realms) > 1:
        raise InvalidInput("Telegram and e-mail are not both live or both in the sandbox.", "Say --channel.")
    return realms[0] if realms else "sandbox"


def describe(new: NewRule) -> str:
    """The rule in one sentence."""
    may = "may" if new.effect == "allow" else "may never"
    said = [f"{new.butler or 'every butler'} {may} {new.constraints.get('intent', 'write')} to"]
    said.append(new.constraints.get("contact_id") or new.constraints.get("recipient") or "nobody")
    if "channel" in new.constraints:
        said.append(f"by {new.constraints['channel']}")
    return " ".join(said)


async def revoke(connection: Connection, rule_id: str, by: str) -> bool:
    """Whether this call ended it; from the commit on it counts for no marker."""
    if await connection.fetchval(REVOKE, UUID(rule_id)) is None:
        return False
    await record(connection, Event("rule_revoked", "owner", rule_id=rule_id), contact=by)
    return True


async def list_rules(connection: Connection) -> list[Record]:
    """Every rule with its uses, oldest first; `active` is false for what is revoked or over."""
    return list(await connection.fetch(LIST))


async def past(connection: Connection) -> list[Record]:
    """The last thousand notifications, newest first."""
    return list(await connection.fetch(PAST))


def rule_of(row: Record) -> Rule:
    """The row as policy judges it, without any use."""
    bounded = any(row[name] is not None for name in ("max_uses", "max_per_day", "expires_at"))
    return Rule(
        id=row["id"],
        effect=row["effect"],
        constraints=row["arg_constraints"],
        origin_butler=row["origin_butler"],
        max_uses=row["max_uses"],
        max_per_day=row["max_per_day"],
        bounded=bounded,
        realm=row["realm"],
    )


def would_have(rule: Rule, actions: Iterable[Past]) -> Iterator[tuple[Past, Decision]]:
    """What this rule alone, unused at first, would have made of those it speaks of; `actions` oldest first. Pure."""
    uses: list[datetime] = []
    for one in actions:
        if not matches(rule, one.action):
            continue
        today = sum(at > one.at - DAY for at in uses)
        alone = Facts(realm=one.action.realm, rules=(replace(rule, used=len(uses), used_today=today),))
        decision = decide(one.action, alone)
        if decision.verdict == "allow" and decision.rule_id == rule.id:
            uses.append(one.at)
        yield one, decision
