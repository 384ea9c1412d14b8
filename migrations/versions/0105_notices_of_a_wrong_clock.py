"""Notices of a clock that was ahead leave no later one out."""

from migrations.raw import execute

revision = "0105"
down_revision = "0104"

# What is dated in the future is of no minute that passes now. It counts without a lock: where several insert at once a
# few more than the bounds are kept, and nobody waits.
BOUND = """
CREATE OR REPLACE FUNCTION shared.bound_notice() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.trust = 'owner' THEN
        RETURN NEW;
    END IF;
    IF (SELECT count(*) FROM shared.notices WHERE butler = NEW.butler AND source = NEW.source
            AND created_at BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp()) < 30
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


def upgrade() -> None:
    """Bound what one source has in the minute that passes now."""
    execute(BOUND)
