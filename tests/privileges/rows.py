"""Row-level security, tried: of each table that has policies, whose rows a login may touch."""

from collections.abc import Mapping
from typing import Final

import asyncpg

from tests.privileges.matrix import ROLES, Matrix, Rows

OTHER: Final = "health"
# By table: the column (or what is so) that says whose a row is, one that is changed by somebody, and a row of $1's
# making. The rule that concerns somebody has an id of that name.
TABLES: Final = {
    "shared.notifications": (
        "origin_butler",
        "status",
        """INSERT INTO shared.notifications (origin_butler, admitted_by, realm, key, lineage, request_sha, envelope,
            whom, third_party, status, answer)
        VALUES ($1, $1, 'sandbox', gen_random_uuid()::text, 'l', 's',
            jsonb_build_object('origin_butler', $1::text, 'delivery', '{}'::jsonb), 'w', false, 'error', '{}')""",
    ),
    "shared.request_windows": (
        "origin_butler",
        "lineage",
        """INSERT INTO shared.request_windows (origin_butler, request_sha, lineage)
        VALUES ($1, gen_random_uuid()::text, 'l')""",
    ),
    "shared.request_aliases": (
        "origin_butler",
        "key",
        """INSERT INTO shared.request_aliases (origin_butler, key, notification_id)
        VALUES ($1, gen_random_uuid()::text, '00000000-0000-4000-8000-000000000001')""",
    ),
    "shared.pending_actions": (
        "origin_butler",
        "status",
        "INSERT INTO shared.pending_actions (origin_butler, tool_args) VALUES ($1, '{}'), ($1, '{}')",
    ),
    "shared.tool_calls": (
        "origin_butler",
        "result",
        """INSERT INTO shared.tool_calls (id, origin_butler, tool_name, arguments, says, risk, repeatable)
        SELECT a.id, $1, 't', '{}', 's', 'low', false FROM shared.pending_actions a
            LEFT JOIN shared.tool_calls c USING (id) WHERE a.origin_butler = $1 AND c.id IS NULL LIMIT 1""",
    ),
    "shared.approval_rules": (
        "origin_butler",
        "description",
        """INSERT INTO shared.approval_rules (id, origin_butler, arg_constraints)
        VALUES (md5($1)::uuid, $1, '{"recipient": "1"}')""",
    ),
    "shared.rule_uses": (
        "rule_id = md5($1)::uuid",
        "at",
        """INSERT INTO shared.rule_uses (rule_id, notification_id)
        VALUES (md5($1)::uuid, '00000000-0000-4000-8000-000000000001')""",
    ),
    "shared.client_tokens": (
        "butler",
        "revoked_at",
        """INSERT INTO shared.client_tokens (jti, butler, expires_at)
        VALUES (gen_random_uuid()::text, $1, clock_timestamp())""",
    ),
    "shared.approval_events": (
        "actor",
        "detail",
        "INSERT INTO shared.approval_events (event_type, actor) VALUES ('tried', $1)",
    ),
    "shared.sessions": (
        "butler",
        "ended_at",
        "INSERT INTO shared.sessions (id, butler, prompt) VALUES (md5($1)::uuid, $1, 'p')",
    ),
    "shared.session_steps": (
        "butler",
        "status",
        """INSERT INTO shared.session_steps (session_id, butler, seq, tool, arguments_hash)
        SELECT md5($1)::uuid, $1, 1 + (random() * 99999)::int, 't', 'h'""",
    ),
    "shared.notices": (
        "butler",
        "state",
        "INSERT INTO shared.notices (butler, source, kind, text) VALUES ($1, 'x', 'x', 'x')",
    ),
    "shared.attachments": (
        "butler",
        "body",
        """INSERT INTO shared.attachments (message_id, number, piece, butler, body)
        VALUES (gen_random_uuid(), 1, 0, $1, '')""",
    ),
    "shared.schedules": (
        "butler",
        "prompt",
        """INSERT INTO shared.schedules (id, butler, name, source, once_at, next_due_at, zone, prompt, catch_up)
        VALUES (md5($1)::uuid, $1, 'a' || left(md5(random()::text), 20), 'tool', now(), now(), 'UTC', 'x', 'once')""",
    ),
    "shared.occurrences": (
        "butler",
        "outcome",
        """INSERT INTO shared.occurrences (schedule_id, butler, due_at, status, claimed_by, leased_until)
        VALUES (md5($1)::uuid, $1, clock_timestamp(), 'claimed', 'x', clock_timestamp())""",
    ),
    "shared.state": (
        "butler",
        "value",
        "INSERT INTO shared.state (butler, key, value) VALUES ($1, gen_random_uuid()::text, '1')",
    ),
    "shared.questions": (
        "origin_butler",
        "closed_at",
        """INSERT INTO shared.questions (id, origin_butler, title, question, action_label, urgency, expires_at)
        VALUES (gen_random_uuid(), $1, 't', 'q', 'OK', 'low', clock_timestamp())""",
    ),
    "shared.withdrawals": (
        "origin_butler",
        "outcome",
        """INSERT INTO shared.withdrawals (notification_id, origin_butler)
        VALUES ('00000000-0000-4000-8000-000000000001', $1)""",
    ),
}
GUARDED: Final = "SELECT oid::regclass::text FROM pg_class WHERE relrowsecurity AND relkind IN ('r', 'p')"
# What withdrawals speak of: one notification of each, under an id of its own.
ASKED: Final = "UPDATE shared.notifications SET id = '00000000-0000-4000-8000-000000000001' WHERE key = $1"


async def found(superuser: Rows, connections: Mapping[str, Rows]) -> Matrix:
    """`rows TABLE`: by role, each verb with `own`, `all` or `none`; verbs that are not granted are left out."""
    guarded = {str(row[0]) for row in await superuser.fetch(GUARDED)}
    assert guarded == set(TABLES), f"rows.py knows nothing of {guarded ^ set(TABLES)}"
    await _furnish(superuser)
    return {
        f"rows {table}": {role: await _touched(connections[role], table, who or "up") for role, who in ROLES.items()}
        for table in TABLES
    }


async def _furnish(superuser: Rows) -> None:
    """A row of everybody's in each table."""
    for table, (_, _, insert) in TABLES.items():
        for whose in {*filter(None, ROLES.values()), OTHER}:
            await superuser.execute(insert, whose)
        if table == "shared.notifications":
            key = await superuser.fetchval("SELECT key FROM shared.notifications LIMIT 1")
            await superuser.execute(ASKED, key)


async def _touched(connection: Rows, table: str, own: str) -> tuple[str, ...]:
    owner, column, insert = TABLES[table]
    whose = owner if "$1" in owner else f"{owner} = $1"
    forms = {
        "select": f"SELECT FROM {table} WHERE {whose}",
        "insert": insert,
        "update": f"UPDATE {table} SET {column} = {column} WHERE {whose}",
        "delete": f"DELETE FROM {table} WHERE {whose}",
    }
    told = []
    for verb, text in forms.items():
        mine, others = [await _touches(connection, text, name) for name in (own, OTHER)]
        if mine is None and others is None:
            continue
        told.append(f"{verb}:{'all' if mine and others else 'own' if mine else 'others' if others else 'none'}")
    return tuple(told)


async def _touches(connection: Rows, text: str, whose: str) -> bool | None:
    """Whether a row of theirs is touched; None where the verb itself is denied, which the policies do not decide."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        return not (await connection.execute(text, whose)).endswith(" 0")
    except asyncpg.InsufficientPrivilegeError as denied:
        return False if "row-level security" in str(denied) else None
    except asyncpg.IntegrityConstraintViolationError:
        return True
    finally:
        await transaction.rollback()
