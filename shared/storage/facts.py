"""The facts a decision leans on, by SELECT only: realm, standing rules, brakes, and the owner's yes."""

from datetime import datetime
from typing import Final
from uuid import UUID

from shared.config.timings import STANDARD
from shared.db.pool import Connection, Record

# A rule as the policy takes it, with its uses by others than what is asked about ($2), and which rules are in force.
RULE: Final = """jsonb_build_object(
        'id', r.id, 'effect', r.effect, 'constraints', r.arg_constraints, 'origin_butler', r.origin_butler,
        'max_uses', r.max_uses, 'max_per_day', r.max_per_day, 'realm', r.realm,
        'bounded', r.max_uses IS NOT NULL OR r.max_per_day IS NOT NULL OR r.expires_at IS NOT NULL,
        'created', extract(epoch FROM r.created_at),
        'used', (SELECT count(*) FROM shared.rule_uses u WHERE u.rule_id = r.id AND u.notification_id <> $2),
        'used_today', (SELECT count(*) FROM shared.rule_uses u WHERE u.rule_id = r.id AND u.notification_id <> $2
            AND u.at > clock_timestamp() - interval '1 day'))"""
IN_FORCE: Final = """FROM shared.approval_rules r WHERE r.active AND r.expired_at IS NULL
            AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp())"""
BRAKES: Final = """coalesce((SELECT jsonb_agg(jsonb_build_object('butler', b.butler, 'contact_id', b.contact_id,
        'channel', b.channel, 'owner_too', b.owner_too, 'until', extract(epoch FROM b.until), 'reason', b.reason))
        FROM shared.brakes b WHERE (b.lifted_at IS NULL AND (b.until IS NULL OR b.until > clock_timestamp()))
            OR (b.reason = 'restored' AND b.handled_at IS NULL)), '[]') AS brakes"""
# A rule that names another contact or address alone cannot match, so it is no fact here: a thousand rules for others
# cost next to nothing. The spelling is `shared.addresses.folded`, which folds the letters of ASCII alone, as "C" does.
FACTS = f"""
SELECT
    (SELECT realm FROM shared.channels WHERE channel = $1) AS realm,
    (SELECT sender FROM shared.channels WHERE channel = $1) AS sender,
    (SELECT bool_or(channel = $1 AND realm = 'sandbox') AND bool_or(realm <> 'sandbox')
        FROM shared.channels) AS is_played,
    coalesce((SELECT jsonb_agg({RULE}) {IN_FORCE} AND r.tool_name = 'notify'
            AND (jsonb_typeof(r.arg_constraints -> 'contact_id') IS DISTINCT FROM 'string'
                OR lower(r.arg_constraints ->> 'contact_id' COLLATE "C") = $5)
            AND (jsonb_typeof(r.arg_constraints -> 'recipient') IS DISTINCT FROM 'string'
                OR lower(r.arg_constraints ->> 'recipient' COLLATE "C") = $6)), '[]') AS rules,
    {BRAKES},
    (SELECT extract(epoch FROM max(b.made_at))::float8 FROM shared.brakes b WHERE b.reason = 'restored'
        AND (b.lifted_at IS NULL OR b.handled_at IS NULL
            OR coalesce($3, clock_timestamp()) < b.lifted_at + $4::interval)) AS restored
"""
# Of what is admitted, by those who may read it. What a rule let go is nobody's yes.
ABOUT = f"""{FACTS},
    (SELECT jsonb_build_object('id', a.id, 'content_sha', a.content_sha, 'wire_shas', a.wire_shas)
        FROM shared.pending_actions a WHERE a.notification_id = $2 AND a.status IN ('approved', 'executing')
            AND a.decided_by IS NOT NULL) AS yes,
    EXISTS (SELECT FROM shared.withdrawals w JOIN shared.notifications n
        ON n.id = w.notification_id AND n.origin_butler = w.origin_butler WHERE w.notification_id = $2) AS wanted_back
"""


async def facts(
    connection: Connection,
    channel: str,
    notification_id: str,
    asked_at: datetime | None,
    whom: tuple[str | None, str | None],
    *,
    approval: bool,
) -> Record | None:
    """Return realm, sender, is_played, rules, brakes and restored, in one view of the database.

    Only rules come that may speak of `whom`, a contact and an address, both folded; each with its uses by other
    notifications. If asked for, also `yes`, the owner's that stands (id,
    content_sha, wire_shas), and `wanted_back`, whether its own butler has withdrawn it.
    """
    statement = ABOUT if approval else FACTS
    return await connection.fetchrow(
        statement, channel, UUID(notification_id), asked_at, STANDARD.restored_mistrusted, *whom
    )
