"""The Switchboard's rows: who is there, what was routed, what came in; and the console's sign-ins."""

from migrations.raw import execute

revision = "0003"
down_revision = "0002"

SWITCHBOARD = """
CREATE SCHEMA switchboard;

CREATE TABLE switchboard.butlers (
    name text NOT NULL,
    url text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('switchboard', 'messenger', 'console', 'sandbox', 'butler')),
    tools text[] NOT NULL DEFAULT '{}',
    last_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    status text NOT NULL DEFAULT 'ready' CHECK (status IN ('starting', 'ready', 'draining', 'gone')),
    PRIMARY KEY (name, url)
);

CREATE TABLE switchboard.routes (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    request_id text NOT NULL,
    origin_butler text NOT NULL,
    target_butler text NOT NULL,
    tool text NOT NULL,
    notification_id uuid,
    status text NOT NULL,
    error_class text,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    duration_ms double precision
);
CREATE INDEX routes_by_notification ON switchboard.routes (notification_id);

CREATE TABLE switchboard.inbox (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    channel text NOT NULL,
    endpoint_identity text NOT NULL,
    external_event_id text NOT NULL,
    thread text,
    sender text NOT NULL,
    contact_id uuid,
    text text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    routed_to text,
    request_context jsonb NOT NULL,
    UNIQUE (channel, endpoint_identity, external_event_id)
);
CREATE INDEX inbox_by_thread ON switchboard.inbox (channel, thread);
"""

CONSOLE = """
CREATE SCHEMA console;

CREATE TABLE console.sign_in_links (
    code_sha text PRIMARY KEY,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz
);

CREATE TABLE console.sessions (
    id_sha text PRIMARY KEY,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    ended_at timestamptz
);

CREATE TABLE console.failed_sign_ins (
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


def upgrade() -> None:
    """Create the schemas `switchboard` and `console`."""
    execute(SWITCHBOARD)
    execute(CONSOLE)
