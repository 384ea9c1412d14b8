"""A database as an earlier program left it: its schema, and ten thousand messages in every state there is.

The rows are told by static SQL and the hashes spelled out here, since what the program of today writes and computes
proves nothing about what one of then did.
"""

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

import asyncpg
from alembic import command
from alembic.config import Config
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from butlers import fleet
from butlers.setup.migrate import VERSIONS, names_of
from shared.audit import BEGINNING, Cover
from shared.auth import keystore
from shared.auth.keypairs import public_key, sign
from shared.storage import audit_seals
from tests.rig.bench import OWNER, OWNER_EMAIL, House

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection as Sync

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
BULK: Final = 10_000
# Of the butler `greeter`, whom no brake stops: what the tests look after.
ASKED, BY_RULE, TO_OWNER, NOT_ROUTED, SETTLED = range(BULK + 1, BULK + 6)
JTI: Final = "0d6fd1a1-61c9-4f6a-8a53-fd4f4bb4b9a7"

# How many were told of each shape: how the notification stands, its delivery, its question, and whether it was for
# somebody else.
TOLD: Final = f"""
CREATE TEMPORARY TABLE told AS
WITH shapes AS (SELECT *, sum(many) OVER (ORDER BY place) AS upto FROM (VALUES
    (1, 60, 'health', 'queued', 'queued', NULL, true),
    (2, 20, 'health', 'queued', 'queued', 'approved', true),
    (3, 10, 'health', 'queued', NULL, 'approved', true),
    (4, 5, 'health', 'queued', 'claimed', 'executing', true),
    (5, 5, 'health', 'queued', 'sending', 'executing', true),
    (6, 100, 'health', 'pending_approval', NULL, 'pending', true),
    (7, 40, 'health', 'pending_approval', 'parked', 'pending', true),
    (8, 50, 'health', 'pending_missing_identifier', NULL, 'pending', true),
    (9, 20, 'health', 'uncertain', 'uncertain', 'uncertain', true),
    (10, 10, 'health', 'uncertain', 'abandoned', NULL, false),
    (11, 1000, 'health', 'ok', 'sent', 'executed', true),
    (12, 2000, 'health', 'ok', 'sent', NULL, true),
    (13, 200, 'health', 'error', 'failed', 'failed', true),
    (14, 200, 'health', 'error', 'refused', NULL, true),
    (15, 200, 'health', 'error', NULL, 'denied', true),
    (16, 200, 'health', 'error', NULL, 'expired', true),
    (17, 100, 'health', 'error', 'cancelled', 'cancelled', true),
    (18, 100, 'health', 'error', 'expired', NULL, true),
    (19, 50, 'health', 'error', 'dead', NULL, false),
    (20, 5, 'health', 'error', 'bounced', NULL, true),
    (21, 5625, 'health', 'ok', 'sent', NULL, false),
    (22, 1, 'greeter', 'pending_approval', NULL, 'pending', true),
    (23, 1, 'greeter', 'queued', 'queued', NULL, true),
    (24, 1, 'greeter', 'queued', 'queued', NULL, false),
    (25, 1, 'greeter', 'queued', NULL, NULL, true),
    (26, 1, 'greeter', 'ok', 'sent', NULL, false)
    ) s (place, many, butler, status, delivery, action, other)),
people AS (SELECT c.id AS contact_id, row_number() OVER (ORDER BY c.name) - 1 AS place, i.id AS entry_id, i.value
    FROM shared.contacts c JOIN shared.contact_info i ON i.contact_id = c.id AND i.type = 'email'
    WHERE c.roles = '{{}}'),
me AS (SELECT c.id AS contact_id, i.id AS entry_id, i.value FROM shared.contacts c
    JOIN shared.contact_info i ON i.contact_id = c.id AND i.type = 'telegram' WHERE 'owner' = ANY (c.roles))
SELECT n, md5('told ' || n)::uuid AS id, md5('asked ' || n)::uuid AS action_id, md5('on its way ' || n)::uuid AS d_id,
    s.butler, s.status, s.delivery, s.action, s.other, 'words ' || n AS words,
    CASE WHEN s.other THEN p.contact_id ELSE me.contact_id END AS contact_id,
    CASE WHEN s.status = 'pending_missing_identifier' THEN NULL WHEN s.other THEN p.entry_id ELSE me.entry_id END
        AS entry_id,
    CASE WHEN s.status = 'pending_missing_identifier' THEN 'telegram' WHEN s.other THEN 'email' ELSE 'telegram' END
        AS channel,
    CASE WHEN s.other THEN p.value ELSE me.value END AS address,
    CASE WHEN s.other THEN 'contact:' || p.contact_id ELSE 'owner' END AS whom,
    CASE WHEN s.status IN ('queued', 'pending_approval', 'pending_missing_identifier')
        THEN clock_timestamp() - interval '5 minutes'
        ELSE clock_timestamp() - interval '1 hour' - n * interval '2 minutes' END AS at
FROM generate_series(1, {SETTLED}) n
JOIN shapes s ON n BETWEEN s.upto - s.many + 1 AND s.upto
JOIN people p ON p.place = n % 1000 CROSS JOIN me;
ALTER TABLE told ADD COLUMN request_sha text, ADD COLUMN content_sha text;
UPDATE told SET
    request_sha = encode(sha256(convert_to(format('["request.v1","%s","send","%s","%s",null,"%s",null]',
        butler, channel, whom, words), 'UTF8')), 'hex'),
    content_sha = CASE WHEN entry_id IS NOT NULL THEN encode(sha256(convert_to(
        format('["content.v1","sandbox","%s","send","%s","%s","%s",null,"%s",null,null]',
        butler, channel, address, entry_id, words), 'UTF8')), 'hex') END;
"""
PEOPLE: Final = f"""
INSERT INTO shared.contacts (name, roles) VALUES ('Owner', ARRAY['owner']);
INSERT INTO shared.contact_info (contact_id, type, value, is_primary)
    SELECT id, unnest(ARRAY['telegram', 'email']), unnest(ARRAY['{OWNER}', '{OWNER_EMAIL}']), true
    FROM shared.contacts;
INSERT INTO shared.contacts (name, preferred_channel)
    SELECT 'Friend ' || lpad(n::text, 4, '0'), CASE WHEN n % 2 = 0 THEN 'email' ELSE 'telegram' END
    FROM generate_series(0, 999) n;
INSERT INTO shared.contact_info (contact_id, type, value, is_primary)
    SELECT id, 'email', lower(replace(name, ' ', '.')) || '@people.test', true FROM shared.contacts
    WHERE roles = '{{}}';
INSERT INTO shared.channels (channel, sender) VALUES ('telegram', ''), ('email', 'butlers@sandbox.test')
    ON CONFLICT (channel) DO UPDATE SET sender = excluded.sender;
INSERT INTO shared.approval_rules (id, arg_constraints)
    SELECT md5('rule ' || id)::uuid, jsonb_build_object('contact_id', id) FROM shared.contacts
    WHERE roles = '{{}}' AND name >= 'Friend 0002' AND name < 'Friend 0900';
INSERT INTO shared.approval_rules (effect, arg_constraints) VALUES ('deny', '{{"recipient": "nobody@people.test"}}');
INSERT INTO shared.approval_rules (arg_constraints, active, max_uses, expires_at)
    VALUES ('{{"recipient": "once@people.test"}}', false, 1, clock_timestamp() - interval '1 day');
INSERT INTO shared.brakes (butler, owner_too) VALUES ('health', true);
INSERT INTO shared.brakes (channel, lifted_at) VALUES ('email', clock_timestamp());
INSERT INTO shared.brakes (contact_id, until) SELECT id, clock_timestamp() + interval '1 day'
    FROM shared.contacts WHERE name = 'Friend 0999';
"""
NOTIFICATIONS: Final = """
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, content_sha,
    envelope, whom, contact_id, contact_info_id, third_party, not_after, status, answer, created_at, updated_at)
SELECT id, butler, butler, 'sandbox', encode(sha256(convert_to(format('["key.v1","%s","request:call %s","%s"]',
        butler, n, request_sha), 'UTF8')), 'hex'), 'request:call ' || n, request_sha, content_sha,
    jsonb_build_object('schema_version', 'notify.v1', 'origin_butler', butler, 'delivery',
        jsonb_build_object('intent', 'send', 'channel', channel, 'message', words)),
    whom, contact_id, entry_id, other, CASE WHEN action = 'pending' THEN NULL ELSE at + interval '24 hours' END, status,
    jsonb_build_object('schema_version', 'notify_response.v1', 'status', status, 'notification_id', id) || CASE status
        WHEN 'ok' THEN jsonb_build_object('delivery', jsonb_build_object('channel', channel, 'delivery_id', n::text))
        WHEN 'queued' THEN jsonb_build_object('message', 'Accepted.')
        WHEN 'pending_approval' THEN jsonb_build_object('action_id', action_id, 'message', 'It waits.')
        WHEN 'pending_missing_identifier' THEN jsonb_build_object('action_id', action_id, 'message', 'None on file.')
        ELSE jsonb_build_object('error', jsonb_build_object('class', 'forbidden', 'message', 'No.', 'retryable', false))
        END,
    at, at FROM told;
INSERT INTO shared.pending_actions (id, origin_butler, tool_args, content_sha, wire_shas, status, agent_summary,
    session_id, notification_id, requested_at, expires_at, decided_by, decided_at)
SELECT action_id, butler, jsonb_build_object('intent', 'send', 'channel', channel, 'message', words,
        'contact_id', contact_id), content_sha,
    CASE WHEN action IN ('approved', 'executing', 'executed') THEN ARRAY[encode(sha256(words::bytea), 'hex')] END,
    action, butler || ' wants to send this.', 'session ' || n, id, at, at + interval '72 hours',
    CASE WHEN action NOT IN ('pending', 'expired', 'cancelled') THEN (SELECT id FROM shared.contacts
        WHERE 'owner' = ANY (roles)) END,
    CASE WHEN action NOT IN ('pending', 'expired', 'cancelled') THEN at + interval '1 minute' END
FROM told WHERE action IS NOT NULL;
INSERT INTO shared.approval_events (at, event_type, action_id, notification_id, actor, detail)
    SELECT at, 'parked', action_id, id, butler, '{"revision": 1}'::jsonb FROM told WHERE action IS NOT NULL
    UNION ALL SELECT at + interval '1 minute', action, action_id, id, 'messenger', '{"revision": 1}'::jsonb
    FROM told WHERE action <> 'pending';
INSERT INTO shared.rule_uses (rule_id, notification_id, at)
    SELECT md5('rule ' || contact_id)::uuid, id, at FROM told
    WHERE other AND action IS NULL AND delivery = 'sent'
        AND md5('rule ' || contact_id)::uuid IN (SELECT id FROM shared.approval_rules);
INSERT INTO shared.withdrawals (notification_id, origin_butler, outcome)
    SELECT id, butler, 'cancelled' FROM told WHERE action = 'cancelled';
"""
DELIVERIES: Final = """
INSERT INTO messenger.deliveries (id, notification_id, class, channel, address, status, reason, attempt, fence,
    claimed_by, lease_until, not_after, origin_butler, lineage, content_sha, created_at, send_at, settled_at)
SELECT d_id, id, CASE WHEN other THEN 'third_party' ELSE 'owner' END, channel, address, delivery,
    CASE WHEN delivery = 'failed' THEN 'provider_rejected' END,
    CASE WHEN delivery IN ('queued', 'parked', 'refused', 'cancelled', 'expired') THEN 0 ELSE 1 END, 1,
    CASE WHEN delivery IN ('claimed', 'sending') THEN 'messenger@then' END,
    CASE WHEN delivery IN ('claimed', 'sending') THEN clock_timestamp() - interval '1 minute' END,
    CASE WHEN delivery <> 'parked' THEN at + interval '24 hours' END, butler, 'request:call ' || n,
    CASE WHEN other AND delivery IN ('sending', 'sent', 'uncertain', 'bounced') THEN content_sha END, at, at,
    CASE WHEN delivery NOT IN ('queued', 'claimed', 'sending', 'parked') THEN at + interval '1 second' END
FROM told WHERE delivery IS NOT NULL;
INSERT INTO messenger.parts (delivery_id, n, wire_sha, status, provider_id)
    SELECT d_id, 1, encode(sha256(words::bytea), 'hex'), CASE delivery WHEN 'claimed' THEN 'queued'
        WHEN 'bounced' THEN 'sent' WHEN 'dead' THEN 'failed' WHEN 'abandoned' THEN 'uncertain' ELSE delivery END,
        CASE WHEN delivery IN ('sent', 'bounced') THEN n::text END
    FROM told WHERE delivery IN ('claimed', 'sending', 'sent', 'bounced', 'dead', 'failed', 'abandoned', 'uncertain');
INSERT INTO messenger.attempts (delivery_id, n, attempt, started_at, marked_at, ended_at, outcome, detail)
    SELECT d_id, 1, 1, at, at, CASE WHEN delivery <> 'sending' THEN at + interval '1 second' END,
        CASE delivery WHEN 'sending' THEN NULL WHEN 'sent' THEN 'sent' WHEN 'bounced' THEN 'sent' ELSE 'refused' END, ''
    FROM told WHERE delivery IN ('sending', 'sent', 'bounced', 'dead', 'failed', 'abandoned', 'uncertain');
INSERT INTO switchboard.routes (request_id, origin_butler, target_butler, tool, notification_id, status, at)
    SELECT 'call ' || n, butler, 'messenger', 'route.execute', id, 'ok', at FROM told WHERE delivery IS NOT NULL;
"""
# A card is told by what it is about; from 0032 on its row says so itself.
CARDS: Final = """
INSERT INTO messenger.deliveries (id, class, channel, address, status, reason, attempt, fence, origin_butler, action_id,
    revision, created_at, settled_at{column})
SELECT md5('card ' || n)::uuid, 'card', 'telegram', (SELECT value FROM shared.contact_info i
        JOIN shared.contacts c ON c.id = i.contact_id WHERE type = 'telegram' AND 'owner' = ANY (roles)),
    'sent', CASE WHEN action <> 'pending' THEN 'closed' END, 1, 1, butler, action_id, 1, at, at{value}
FROM told WHERE action IS NOT NULL;
INSERT INTO messenger.parts (delivery_id, n, wire_sha, status, provider_id)
    SELECT md5('card ' || n)::uuid, 1, encode(sha256(words::bytea), 'hex'), 'sent', (100000 + n)::text
    FROM told WHERE action IS NOT NULL;
INSERT INTO messenger.attempts (delivery_id, n, attempt, started_at, marked_at, ended_at, outcome)
    SELECT md5('card ' || n)::uuid, 1, 1, at, at, at, 'sent' FROM told WHERE action IS NOT NULL;
"""
BESIDE: Final = f"""
INSERT INTO shared.client_tokens (jti, butler, expires_at)
    VALUES ('{JTI}', 'greeter', clock_timestamp() + interval '30 days');
INSERT INTO shared.client_tokens (jti, butler, expires_at)
    SELECT 'token-of-then-' || n, 'health', clock_timestamp() + interval '30 days' FROM generate_series(1, 20) n;
UPDATE shared.client_tokens SET revoked_at = clock_timestamp() WHERE jti = 'token-of-then-1';
INSERT INTO switchboard.inbox (channel, endpoint_identity, external_event_id, thread, sender, contact_id, text,
        routed_to, request_context)
    SELECT 'telegram', '1', n::text, '77:' || n, '77', NULL, 'what came in ' || n,
        CASE WHEN n % 2 = 0 THEN 'health' END, jsonb_build_object('request_id', n::text) FROM generate_series(1, 50) n;
INSERT INTO messenger.updates (bot, update_id, body, handled_at, outcome)
    SELECT '1', -n, '{{}}', clock_timestamp(), 'ignored' FROM generate_series(1, 20) n;
INSERT INTO messenger.pollers VALUES ('1', 'messenger@then', clock_timestamp());
INSERT INTO messenger.pairings (code_sha, expires_at) VALUES ('of then', clock_timestamp());
INSERT INTO console.sessions (id_sha, expires_at, ended_at) VALUES ('of then', now() + interval '1 day', NULL),
    ('ended then', now() + interval '1 day', clock_timestamp());
INSERT INTO console.sign_in_links (code_sha, expires_at) VALUES ('of then', clock_timestamp() + interval '1 minute');
INSERT INTO console.failed_sign_ins DEFAULT VALUES;
INSERT INTO switchboard.butlers (name, url, kind, status)
    VALUES ('health', 'http://127.0.0.1:1', 'butler', 'gone');
"""
# A bounce was told of in the revision after the last attempt.
OTHER_CARDS: Final = """
INSERT INTO messenger.deliveries (class, channel, address, status, reason, revision, digest_id, about,
    settled_at{column})
SELECT 'card', 'telegram', 'x', 'sent', 'closed', revision, digest_id, about, clock_timestamp(){value}
FROM (SELECT 'digest' AS kind, 1 AS revision, md5('digest')::uuid AS digest_id, NULL::uuid AS about
    UNION ALL SELECT 'channel_paused', 1, NULL, NULL
    UNION ALL SELECT 'bounced', 2, NULL, d_id FROM told WHERE delivery = 'bounced'
    UNION ALL SELECT 'uncertain', 1, NULL, d_id FROM told WHERE delivery IN ('uncertain', 'abandoned')) card;
"""
# What each program had beside that, by the names that its tables had then: from which revision, before which.
SINCE: Final = (
    ("0001", "0032", CARDS.format(column="", value="")),
    ("0032", "9999", CARDS.format(column=", card_kind", value=", 'approval'")),
    (
        "0001",
        "0035",
        """
INSERT INTO shared.recent (origin_butler, request_sha, lineage, first_at)
    SELECT butler, request_sha, 'recent:' || id, at FROM told WHERE n % 10 = 0;
""",
    ),
    (
        "0010",
        "0035",
        """
INSERT INTO messenger.rates (key, burst, every, free_at)
    SELECT 'email:of.then.' || n, 1, '1 second', clock_timestamp() FROM generate_series(1, 20) n;
INSERT INTO messenger.pauses (channel, reason, detail) VALUES ('email', 'unreachable', 'once');
""",
    ),
    (
        "0011",
        "9999",
        """
INSERT INTO shared.resolutions (delivery_id, attempt, word, by, surface, handled_at, outcome)
    SELECT d_id, 1, 'leave', (SELECT id FROM shared.contacts WHERE 'owner' = ANY (roles)), 'cli', at, 'done'
    FROM told WHERE delivery = 'abandoned';
""",
    ),
    ("0012", "9999", "INSERT INTO messenger.mailboxes VALUES ('me@there:993', 'messenger@then', now(), 7, 40);"),
    (
        "0014",
        "9999",
        """
INSERT INTO messenger.digests (id, origin_butler) VALUES (md5('digest')::uuid, 'health');
INSERT INTO messenger.digest_items
    SELECT action_id, md5('digest')::uuid FROM told WHERE status = 'pending_missing_identifier';
""",
    ),
    (
        "0018",
        "0035",
        """
INSERT INTO shared.collapsed (origin_butler, key, notification_id)
    SELECT butler, 'said again ' || n, id FROM told WHERE action = 'pending';
""",
    ),
    ("0014", "0032", OTHER_CARDS.format(column="", value="")),
    ("0032", "9999", OTHER_CARDS.format(column=", card_kind", value=", kind")),
    ("0025", "0058", "INSERT INTO messenger.strangers (sender, messages, bytes) VALUES ('8888', 3, 300);"),
    (
        "0058",
        "9999",
        "INSERT INTO messenger.strangers (channel, sender, messages, bytes) VALUES ('telegram', '8888', 3, 300);",
    ),
)


# What a later program calls otherwise, and what it changes on purpose.
RENAMED: Final = {
    "shared.recent": "shared.request_windows",
    "shared.collapsed": "shared.request_aliases",
    "messenger.rates": "messenger.rate_limits",
    "messenger.pauses": "messenger.circuit_breakers",
}
CHANGED: Final = {
    "public.schema_version.version_num",
    # Nobody knows whose a session was before 0027.
    "console.sessions.ended_at",
    # 0032 says the kind of a card here, and calls a bounce by the attempt that came back.
    "messenger.deliveries.notice",
    "messenger.deliveries.revision",
}
WAITS: Final = """
SELECT a.id, a.content_sha, a.requested_at AS at FROM shared.pending_actions a
JOIN shared.notifications n ON n.id = a.notification_id WHERE n.envelope #>> '{delivery,message}' = $1
"""
TOLD_TO: Final = """
SELECT n.id, n.answer ->> 'action_id' AS action_id, i.value AS address FROM shared.notifications n
JOIN shared.contact_info i ON i.id = n.contact_info_id WHERE n.envelope #>> '{delivery,message}' = $1
"""
COLUMNS: Final = """
SELECT format('%s.%s', table_schema, table_name) AS name,
    array_agg(column_name::text ORDER BY ordinal_position) AS columns
FROM information_schema.columns JOIN pg_tables ON schemaname = table_schema AND tablename = table_name
WHERE table_schema IN ('shared', 'messenger', 'switchboard', 'console', 'public') GROUP BY 1 ORDER BY 1
"""
HASHED: Final = """count(*), md5(coalesce(string_agg(said, E'\\n' ORDER BY said COLLATE "C"), ''))"""


async def columns_of(connection: Rows) -> dict[str, list[str]]:
    """Every table with its columns, those aside that a later program changes on purpose."""
    rows = await connection.fetch(COLUMNS)
    return {row["name"]: [one for one in row["columns"] if f"{row['name']}.{one}" not in CHANGED] for row in rows}


async def contents(
    connection: Rows, columns: Mapping[str, Sequence[str]], renamed: Mapping[str, str]
) -> dict[str, tuple[int, str]]:
    """How many rows each table has, and a hash over these columns of all of them, by its name of then."""
    found = {}
    for table, names in columns.items():
        text = f"SELECT ROW({', '.join(names)})::text AS said FROM {renamed.get(table, table)}"
        row = await connection.fetchrow(f"SELECT {HASHED} FROM ({text}) t")
        assert row is not None
        found[table] = (int(row[0]), str(row[1]))
    return found


async def emptied(house: House) -> None:
    """Make the house's database anew, with nothing in it."""
    server = await asyncpg.connect(house.dsn, database="postgres")
    try:
        await server.execute(f"DROP DATABASE {house.name} WITH (FORCE)")
        await server.execute(f"CREATE DATABASE {house.name} TEMPLATE template0")
    finally:
        await server.close()


async def show_card(connection: Rows, house: House) -> None:
    """Put the card that waits into the owner's chat, as the sandbox keeps it."""
    row = await connection.fetchrow(WAITS, f"words {ASKED}")
    assert row is not None
    secret = keystore.read(house.home, "messenger").secret
    data = button(secret, str(row["id"]), "ok", row["content_sha"])
    payload = {
        "method": "sendMessage",
        "chat_id": OWNER,
        "text": "greeter wants to send",
        "reply_markup": {"inline_keyboard": [[{"text": "Approve", "callback_data": data}]]},
    }
    line = {"n": 1, "at": row["at"].isoformat(), "channel": "telegram", "token_id": "1", "to": str(OWNER)}
    journal = house.home / "sandbox" / "journal.jsonl"
    journal.parent.mkdir(mode=0o700)
    journal.write_text(json.dumps({**line, "payload": payload, "provider_id": str(100_000 + ASKED)}) + "\n")


def button(secret: bytes, action_id: str, verb: str, content_sha: str) -> str:
    """What the button of a card of the first revision sends back, as each program so far wrote it."""
    mac = hmac.new(secret, digestmod=hashlib.sha256)
    for word in ("card", action_id, "1", verb, content_sha):
        mac.update(len(word).to_bytes(8, "big") + word.encode())
    about, tag = (urlsafe_b64encode(raw).decode().rstrip("=") for raw in (UUID(action_id).bytes, mac.digest()[:16]))
    return f"a1:{about}:{verb}:{tag}"


async def made(house: House, revision: str) -> None:
    """Make this house's database anew as the program of that revision left it, with the keys of the house's home."""
    await emptied(house)
    await brought_to(house.dsn, revision)
    connection = await asyncpg.connect(house.dsn)
    try:
        async with connection.transaction():
            await filled(connection, house, revision)
        await show_card(connection, house)
    finally:
        await connection.close()


async def brought_to(dsn: str, revision: str) -> None:
    """Run the chain of migrations up to this one."""
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=partial(asyncpg.connect, dsn), poolclass=NullPool
    )

    def run(sync: "Sync") -> None:
        config = Config()
        config.set_main_option("script_location", str(VERSIONS.parent))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = sync
        command.upgrade(config, revision)

    try:
        async with engine.begin() as connection:
            await connection.run_sync(run)
    finally:
        await engine.dispose()


async def filled(connection: Rows, house: House, revision: str) -> None:
    """Fill the empty schema of that revision."""
    for name in names_of(fleet.load(house.settings.fleet)):
        key = public_key(keystore.read(house.home, name).private_pem)
        await connection.execute("INSERT INTO shared.keyring (name, public_key) VALUES ($1, $2)", name, key)
    for script in (PEOPLE, TOLD, NOTIFICATIONS, DELIVERIES, *beside(revision)):
        await connection.execute(script)
    if revision >= "0013":
        await sealed(connection, house)
    await connection.execute("DROP TABLE told")


def beside(revision: str) -> Iterator[str]:
    """What that program had beside messages."""
    yield BESIDE
    for first, end, script in SINCE:
        if first <= revision < end:
            yield script


async def sealed(connection: Rows, house: House) -> None:
    """Seal all lines that there are, as the Messenger does."""
    cover = Cover()
    async for line in audit_seals.unsealed(connection, audit_seals.Last()):
        cover.add(line)
    signed = partial(sign, keystore.read(house.home, "messenger").private_pem)
    seal = cover.sealed(1, BEGINNING, await audit_seals.now(connection), signed)
    assert seal is not None
    assert await audit_seals.append(connection, seal)
