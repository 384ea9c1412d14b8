"""Of one source a hundred notices wait for a butler at most, and that more came is written whoever tells it."""

from migrations.raw import execute

revision = "0074"
down_revision = "0073"

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
        AND (SELECT count(*) FROM shared.notices WHERE butler = NEW.butler AND source = NEW.source
            AND state = 'queued' AND expires_at > clock_timestamp()) < 100 THEN
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

# What the trigger makes of a notice is written too, and in these words alone.
TOLD = """
DROP POLICY messages_told ON shared.notices;
CREATE POLICY messages_told ON shared.notices FOR INSERT TO butlers_group_switchboard
    WITH CHECK (source = 'owner' AND kind = 'message'
        OR starts_with(source, 'butler.') AND (kind = 'told' AND trust = 'external' OR kind = 'left-out'
            AND trust = 'internal' AND NOT wakes AND text = 'More came than is kept; they are left out.'));
"""


def upgrade() -> None:
    """Bound what one source has, and let the line about more be written."""
    execute(BOUND)
    execute(TOLD)
