"""Strangers counted by channel, notices told by fewer, and the chain of a session read from its own row."""

from migrations.raw import execute

revision = "0058"
down_revision = "0055"

STRANGERS = """
-- Whoever floods one channel takes no stranger's place on another.
ALTER TABLE messenger.strangers ADD COLUMN channel text NOT NULL DEFAULT 'telegram' REFERENCES shared.channels,
    DROP CONSTRAINT strangers_pkey, ADD PRIMARY KEY (channel, sender);
UPDATE messenger.strangers SET channel = 'email' WHERE sender LIKE '%@%' OR sender = 'unknown';
ALTER TABLE messenger.strangers ALTER COLUMN channel DROP DEFAULT;
"""

# It counts without a lock: where several insert at once a few more than the bounds are kept, and nobody waits.
BOUND = """
CREATE OR REPLACE FUNCTION shared.bound_notice() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.trust = 'owner' THEN
        RETURN NEW;
    END IF;
    IF (SELECT count(*) FROM shared.notices WHERE butler = NEW.butler AND source = NEW.source
            AND created_at > clock_timestamp() - interval '1 minute') < 30
        AND (SELECT count(*) FROM shared.notices WHERE butler = NEW.butler AND state = 'queued'
            AND expires_at > clock_timestamp()) < 200 THEN
        RETURN NEW;
    END IF;
    UPDATE shared.notices SET more = more + 1 WHERE id = (SELECT id FROM shared.notices WHERE butler = NEW.butler
        AND source = NEW.source AND kind = 'left-out' AND state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED);
    IF FOUND THEN
        RETURN NULL;
    END IF;
    -- Somebody counts in that row at this moment: this one is left out uncounted.
    IF EXISTS (SELECT FROM shared.notices WHERE butler = NEW.butler AND source = NEW.source AND kind = 'left-out'
        AND state = 'queued') THEN
        RETURN NULL;
    END IF;
    NEW.kind := 'left-out';
    NEW.key := '';
    NEW.text := 'More came than is kept; they are left out.';
    NEW.trust := 'internal';
    NEW.priority := 'low';
    NEW.wakes := false;
    NEW.session_id := NULL;
    RETURN NEW;
END $$;
"""

# What the Switchboard tells a butler is what the owner wrote to it, and what another butler lets it know.
TOLD = """
DROP POLICY told ON shared.notices;
CREATE POLICY told ON shared.notices FOR INSERT TO butlers_group_messenger, butlers_group_console, butlers_group_owner
    WITH CHECK (true);
CREATE POLICY messages_told ON shared.notices FOR INSERT TO butlers_group_switchboard
    WITH CHECK (source = 'owner' AND kind = 'message'
        OR starts_with(source, 'butler.') AND kind = 'told' AND trust = 'external');
"""

# The Switchboard reads where in a chain a session stands, and not what it was asked or did.
CHAINS = """
CREATE VIEW shared.session_chains WITH (security_barrier) AS
    SELECT id, butler, occurrence_id, chain, depth FROM shared.sessions WHERE status = 'running';
GRANT SELECT ON shared.session_chains TO butlers_group_switchboard;
"""


def upgrade() -> None:
    """Count strangers by channel, let notices wait for nobody, and let the Switchboard read chains."""
    execute(STRANGERS)
    execute(BOUND)
    execute(TOLD)
    execute(CHAINS)
