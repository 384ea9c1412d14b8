"""The Messenger's rows: deliveries with their parts and attempts, inbound updates, pairing."""

from migrations.raw import execute

revision = "0002"
down_revision = "0001"

DELIVERIES = """
CREATE SCHEMA messenger;

CREATE TABLE messenger.deliveries (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    notification_id uuid UNIQUE REFERENCES shared.notifications,
    class text NOT NULL CHECK (class IN ('owner', 'third_party', 'card')),
    channel text NOT NULL,
    address text NOT NULL,
    realm text NOT NULL DEFAULT 'sandbox',
    status text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'claimed', 'sending', 'sent', 'failed',
        'uncertain', 'parked', 'refused', 'cancelled', 'expired', 'dead', 'abandoned', 'bounced')),
    reason text,
    send_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt integer NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    claimed_by text,
    lease_until timestamptz,
    not_after timestamptz,
    origin_butler text,
    lineage text,
    content_sha text,
    action_id uuid REFERENCES shared.pending_actions,
    revision integer,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at timestamptz,
    CHECK ((class = 'card') = (notification_id IS NULL))
);
-- Per address one delivery is in flight; whoever comes second waits for its turn.
CREATE UNIQUE INDEX one_in_flight ON messenger.deliveries (channel, address)
    WHERE status IN ('claimed', 'sending');
-- Who is next at an address is looked up for each that is due.
CREATE INDEX deliveries_in_line ON messenger.deliveries (channel, address, (class <> 'card'), created_at, id)
    WHERE status = 'queued';
CREATE INDEX deliveries_due ON messenger.deliveries (send_at) WHERE status = 'queued';
CREATE INDEX deliveries_open ON messenger.deliveries (created_at)
    WHERE status IN ('queued', 'claimed', 'sending', 'parked', 'uncertain');
CREATE UNIQUE INDEX one_card ON messenger.deliveries (action_id, revision, channel) WHERE class = 'card';
-- The second fence again, filled at the marker.
CREATE UNIQUE INDEX one_content_per_lineage ON messenger.deliveries (origin_butler, lineage, content_sha)
    WHERE class = 'third_party' AND content_sha IS NOT NULL;

CREATE TABLE messenger.parts (
    delivery_id uuid NOT NULL REFERENCES messenger.deliveries ON DELETE CASCADE,
    n integer NOT NULL,
    wire_sha text NOT NULL,
    status text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'sending', 'sent', 'failed', 'uncertain')),
    provider_id text,
    PRIMARY KEY (delivery_id, n)
);
CREATE INDEX parts_by_provider ON messenger.parts (provider_id) WHERE provider_id IS NOT NULL;

CREATE TABLE messenger.attempts (
    delivery_id uuid NOT NULL REFERENCES messenger.deliveries ON DELETE CASCADE,
    n integer NOT NULL,
    attempt integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    marked_at timestamptz,
    ended_at timestamptz,
    outcome text,
    detail text,
    PRIMARY KEY (delivery_id, n, attempt)
);

CREATE TABLE messenger.pollers (
    bot text PRIMARY KEY,
    holder text NOT NULL,
    lease_until timestamptz NOT NULL
);

CREATE TABLE messenger.updates (
    bot text NOT NULL,
    update_id bigint NOT NULL,
    body jsonb NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    handled_at timestamptz,
    outcome text,
    PRIMARY KEY (bot, update_id)
);
CREATE INDEX updates_waiting ON messenger.updates (bot, update_id) WHERE handled_at IS NULL;

CREATE TABLE messenger.pairings (
    code_sha text PRIMARY KEY,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz
);
"""


def upgrade() -> None:
    """Create the schema `messenger`."""
    execute(DELIVERIES)
