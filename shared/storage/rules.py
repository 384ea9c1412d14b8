"""Standing rules, made and revoked by the owner: the only writer of shared.approval_rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from shared.addresses import parse_recipient
from shared.channels import CHANNELS
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput
from shared.hashing import canonical_json
from shared.model import Rule, Verdict
from shared.storage.pending_actions import Event, record

# What became, or would become, of a message, as every surface says it.
VERDICTS: Final[Mapping[Verdict, str]] = {
    "allow": "sent without asking",
    "park": "still need approval",
    "deny": "blocked",
}
_VERBS: Final = {"send": "send to", "reply": "reply to", "react": "react to what comes from"}


@dataclass(frozen=True, slots=True)
class NewRule:
    """A standing rule as the owner words it."""

    effect: Literal["allow", "deny"]
    constraints: Mapping[str, str]
    butler: str | None = None
    max_uses: int | None = None
    max_per_day: int | None = None
    lasts: timedelta | None = None
    # The pending action on whose page it was begun.
    created_from: str | None = None
    # Of a rule about a gated tool: its name; the constraints are then arguments.
    tool: str = "notify"


def arguments_of(where: Sequence[str]) -> dict[str, str]:
    """Return the arguments that a rule about a tool pins, from `name=value`; raise InvalidInput for anything else."""
    found: dict[str, str] = {}
    for one in where:
        name, given, value = one.partition("=")
        if not given or not name.strip() or name in found:
            raise InvalidInput(f"`{one[:60]}` names no argument.", "Write --where NAME=VALUE, each name once.")
        found[name] = value
    return found


def constraints_of(
    *, contact_id: str | None, recipient: str | None, channel: str | None, intent: str | None
) -> dict[str, str]:
    """Return what the rule pins, as stored; raise InvalidInput if it pins nobody or contradicts itself."""
    if (contact_id is None) == (recipient is None):
        raise InvalidInput("A rule needs either a contact or a recipient.", "Give exactly one of them.")
    if channel is not None and channel not in CHANNELS:
        raise InvalidInput(f"Unknown channel `{channel}`.", f"Choose from: {', '.join(CHANNELS)}.")
    if intent not in {None, "send", "reply", "react"}:
        raise InvalidInput(f"Unknown intent `{intent}`.", "Choose from: send, reply, react.")
    if recipient is not None:
        address = parse_recipient(recipient)
        if channel not in {None, address.channel}:
            raise InvalidInput(
                f"{address.value} cannot be reached through {channel}.", f"Its channel is {address.channel}."
            )
        recipient = address.value
    wanted = {"contact_id": contact_id, "recipient": recipient, "channel": channel, "intent": intent}
    return {name: value for name, value in wanted.items() if value is not None}


def _demand_fitting_limits(new: NewRule) -> None:
    if new.effect == "deny" and (new.max_uses or new.max_per_day):
        raise InvalidInput("A rule that blocks cannot have limits.", "Leave the limits out.")


ADD: Final = """
INSERT INTO shared.approval_rules (origin_butler, effect, arg_constraints, description, expires_at, max_uses,
    max_per_day, realm, made_by, created_from, tool_name)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5, $6, $7, $8, $9, (SELECT id FROM shared.pending_actions WHERE id = $10),
    $11)
RETURNING id::text
"""


# Whoever makes rules takes turns, as the insert waits for the authority: of two presses the later sees the first.
MADE_TWICE: Final = """
SELECT EXISTS (SELECT FROM shared.approval_rules own JOIN shared.approval_rules r ON r.id <> own.id
    AND (r.effect, r.origin_butler, r.tool_name, r.arg_constraints, r.max_uses, r.max_per_day, r.realm)
        IS NOT DISTINCT FROM (own.effect, own.origin_butler, own.tool_name, own.arg_constraints, own.max_uses,
            own.max_per_day, own.realm)
    WHERE own.id = $1::text::uuid AND r.active AND r.created_at > own.created_at - interval '10 seconds')
"""


async def add(connection: Connection, new: NewRule, by: str, surface: str = "cli", *, realm: str | None = None) -> str:
    """Add a rule and return its id; one that allows holds in the realm its channel has now, or the one named.

    Raises InvalidInput if the same was made a moment ago, as by a double click: each would have the whole bound.
    """
    _demand_fitting_limits(new)
    origin, said = UUID(new.created_from) if new.created_from else None, describe(new)
    # A tool is no channel, so that a rule about one holds whatever the channels are.
    realm = None if new.tool != "notify" else realm or await _realm(connection, new)
    args = (new.effect, new.constraints, said, new.lasts, new.max_uses, new.max_per_day, realm, UUID(by))
    rule_id = str(await connection.fetchval(ADD, new.butler, *args, origin, new.tool))
    if await connection.fetchval(MADE_TWICE, rule_id):
        raise InvalidInput("The same rule was made a moment ago.", "It stands in the list of rules.")
    await record(connection, Event("rule_made", "owner", rule_id=rule_id, reason=said), contact=by, surface=surface)
    return rule_id


async def trial(connection: Connection, new: NewRule) -> Rule:
    """Return the rule as policy would judge it if it were made now; store nothing."""
    _demand_fitting_limits(new)
    realm, bounded = await _realm(connection, new), bool(new.max_uses or new.max_per_day or new.lasts)
    return Rule(
        "new",
        new.effect,
        new.constraints,
        new.butler,
        max_uses=new.max_uses,
        max_per_day=new.max_per_day,
        bounded=bounded,
        realm=realm,
    )


ENDS: Final = "SELECT clock_timestamp() + $1::interval"


async def ends(connection: Connection, new: NewRule) -> datetime | None:
    """Return when the rule would end if it were made now; None if it holds until it is revoked."""
    found: datetime | None = await connection.fetchval(ENDS, new.lasts) if new.lasts else None
    return found


REALMS: Final = "SELECT DISTINCT realm FROM shared.channels WHERE $1::text IS NULL OR channel = $1"


async def _realm(connection: Connection, new: NewRule) -> str | None:
    if new.effect == "deny":
        return None
    channel = new.constraints.get("channel")
    if channel is None and "recipient" in new.constraints:
        channel = parse_recipient(new.constraints["recipient"]).channel
    realms = [row["realm"] for row in await connection.fetch(REALMS, channel)]
    if len(realms) > 1:
        raise InvalidInput("A rule that allows is for one bot or mail account.", "Choose a channel.")
    return realms[0] if realms else "sandbox"


def describe(new: NewRule) -> str:
    """Say the rule in one sentence."""
    if new.tool != "notify":
        return tool_scope(new.effect, new.butler, new.tool, new.constraints)
    return scope(new.effect, new.butler, new.constraints)


def scope(effect: str, butler: str | None, constraints: Mapping[str, object], contact: str | None = None) -> str:
    """Say in words who may write what to whom; `contact` is the name behind a contact_id. Pure."""
    pinned = dict(constraints)
    whom = [_said(pinned.pop(name)) for name in ("contact_id", "recipient") if name in pinned]
    if contact and whom:
        whom[0] = contact
    intent = pinned.pop("intent", None)
    verb = "write to" if intent is None else _VERBS.get(str(intent), f"{_said(intent)} to")
    said = [butler or "every butler", "may" if effect == "allow" else "may never", verb, " at ".join(whom) or "nobody"]
    if "channel" in pinned:
        said.append(f"by {_said(pinned.pop('channel'))}")
    said += [f"where {name} is {_said(value)}" for name, value in sorted(pinned.items())]
    return " ".join(said)


def tool_scope(effect: str, butler: str | None, tool: str, constraints: Mapping[str, object]) -> str:
    """Say in words who may call which tool with what. Pure."""
    may = "may" if effect == "allow" else "may never"
    where = [f"where {name} is {_said(value)}" for name, value in sorted(constraints.items())]
    return " ".join([butler or "every butler", may, "call", tool, " and ".join(where)]).strip()


def _said(constraint: object) -> str:
    match constraint:
        case str(value) | {"type": "exact", "value": str(value)}:
            return value
        case {"type": "one_of", "value": [*values]}:
            return " or ".join(map(str, values))
        case {"type": "domain", "value": str(value)}:
            return f"anybody at {value}"
        case {"type": "max_length", "value": int(value)}:
            return f"at most {value} characters long with its subject"
    return f"{canonical_json(constraint)}, which nothing ever is,"


REVOKE: Final = "UPDATE shared.approval_rules SET active = false WHERE id = $1 AND active RETURNING id"


async def revoke(connection: Connection, rule_id: str, by: str, surface: str = "cli") -> bool:
    """End the rule, and return whether this call did; from the commit on it counts for no marker."""
    if await connection.fetchval(REVOKE, UUID(rule_id)) is None:
        return False
    await record(connection, Event("rule_revoked", "owner", rule_id=rule_id), contact=by, surface=surface)
    return True


# A ban that comes to life again when the clock is put back lets nothing out; marked by a clock that is ahead for a
# moment, it would be gone for good.
EXPIRING: Final = """
SELECT id::text FROM shared.approval_rules
WHERE active AND effect = 'allow' AND expired_at IS NULL AND expires_at <= clock_timestamp()
"""


async def expiring(connection: Connection) -> list[str]:
    """Return the ids of the rules that allow and whose time is over, and which nobody has marked."""
    return [row["id"] for row in await connection.fetch(EXPIRING)]


EXPIRE: Final = """
UPDATE shared.approval_rules SET expired_at = clock_timestamp() WHERE id = $1 AND expired_at IS NULL RETURNING id
"""


async def expire_overdue(connection: Connection, by: str) -> None:
    """Mark the rules that allow and whose time is over, for good.

    It takes the authority's lock where there is any, so the caller's transaction holds no other before.
    """
    for rule_id in await expiring(connection):
        if await connection.fetchval(EXPIRE, UUID(rule_id)) is not None:
            await record(connection, Event("rule_expired", by, rule_id=rule_id, reason="Expired."))


ROWS: Final = """
SELECT r.id::text, r.effect, r.origin_butler, r.arg_constraints, r.description, r.expires_at, r.max_uses, r.max_per_day,
    r.realm, r.tool_name, r.made_by::text, r.created_from::text, r.created_at, c.name AS contact, w.name AS maker,
    (SELECT count(*) FROM shared.rule_uses u WHERE u.rule_id = r.id) AS used,
    r.active AND r.expired_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp()) AS active,
    NOT r.active AS revoked, r.effect = 'allow' AND r.realm IS NOT NULL
        AND NOT EXISTS (SELECT FROM shared.channels h WHERE h.realm = r.realm
            AND h.channel = coalesce(r.arg_constraints ->> 'channel', h.channel)) AS elsewhere
FROM shared.approval_rules r LEFT JOIN shared.contacts c ON c.id::text = r.arg_constraints ->> 'contact_id'
    LEFT JOIN shared.contacts w ON w.id = r.made_by
"""
LIST: Final = f"{ROWS} ORDER BY r.created_at, r.id"


async def list_rules(connection: Connection) -> list[Record]:
    """Return every rule with its uses, oldest first; `active` is false for what is revoked or over.

    `elsewhere` is true for what allows something by the sandbox, or an account, that no channel has now.
    """
    return list(await connection.fetch(LIST))


ONE: Final = f"{ROWS} WHERE r.id = $1"


async def one(connection: Connection, rule_id: str) -> Record | None:
    """Return the row of one rule, as in the list."""
    return await connection.fetchrow(ONE, UUID(rule_id))


PAST: Final = """
SELECT id::text FROM shared.notifications WHERE wiped_at IS NULL ORDER BY created_at DESC LIMIT 1000
"""


async def past(connection: Connection) -> list[str]:
    """Return the ids of the last thousand notifications that are not wiped, newest first."""
    return [row["id"] for row in await connection.fetch(PAST)]


def rule_of(row: Record) -> Rule:
    """Return the row's rule as policy judges it, without any use."""
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
