"""How fast the Messenger may send, and which channel has paused itself."""

from migrations.raw import execute

revision = "0010"
down_revision = "0009"

LIMITS = """
CREATE TABLE messenger.rates (
    -- A channel, one of its addresses, or one of its spans: `telegram`, `telegram:<chat>`, `email:minute`, `email:day`.
    key text PRIMARY KEY,
    -- So many at once, and one more per span; both are those of whoever spent last.
    burst integer NOT NULL DEFAULT 1,
    every interval NOT NULL DEFAULT '0',
    -- From when on the next may leave.
    free_at timestamptz NOT NULL,
    -- When the provider itself said "not before".
    told_at timestamptz
);
CREATE INDEX rates_free ON messenger.rates (free_at);

CREATE TABLE messenger.pauses (
    channel text PRIMARY KEY,
    reason text NOT NULL CHECK (reason IN ('unauthorized', 'unreachable')),
    detail text NOT NULL DEFAULT '',
    failures integer NOT NULL DEFAULT 1,
    first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Empty while failures are only counted.
    since timestamptz,
    next_probe_at timestamptz,
    probes integer NOT NULL DEFAULT 0,
    -- When the owner was told on the other channel, and how many messages waited then.
    told_at timestamptz,
    waiting bigint
);

GRANT SELECT, INSERT, UPDATE, DELETE ON messenger.rates, messenger.pauses TO butlers_group_messenger;
GRANT SELECT ON messenger.rates, messenger.pauses TO butlers_group_console, butlers_group_owner;
"""


def upgrade() -> None:
    """Create `messenger.rates` and `messenger.pauses`."""
    execute(LIMITS)
