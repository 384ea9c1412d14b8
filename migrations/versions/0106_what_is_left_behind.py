"""What a butler's login leaves behind keeps that butler from nothing; an approval in doubt goes with its message."""

from migrations.raw import execute

revision = "0106"
down_revision = "0105"

# What began on a day to come would count as spent on that day, and what cannot be added up ends every look at what may
# begin. A row that a clock ahead has dated may end all the same.
SOUND = """
UPDATE shared.sessions SET limits = limits - 'dollars' WHERE jsonb_typeof(limits -> 'dollars') <> 'number';
UPDATE shared.sessions SET used = used - 'dollars' WHERE jsonb_typeof(used -> 'dollars') <> 'number';
ALTER TABLE shared.sessions ADD CONSTRAINT dollars_are_numbers
    CHECK (coalesce(jsonb_typeof(limits -> 'dollars'), 'number') = 'number'
        AND coalesce(jsonb_typeof(used -> 'dollars'), 'number') = 'number');
CREATE FUNCTION shared.refuse_ahead() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE check_violation USING MESSAGE = 'a session cannot begin in the future';
END $$;
REVOKE ALL ON FUNCTION shared.refuse_ahead() FROM PUBLIC;
CREATE TRIGGER begins_by_now BEFORE INSERT OR UPDATE OF began_at ON shared.sessions FOR EACH ROW
    WHEN (NEW.began_at > clock_timestamp() + interval '1 minute') EXECUTE FUNCTION shared.refuse_ahead();
"""

# What the owner wrote or asks stands before all else; thousands of the butler's own would stand before it even when the
# butler is honest again.
FIRST = """
CREATE POLICY none_of_the_owners ON shared.sessions AS RESTRICTIVE FOR INSERT TO butlers_group_butler
    WITH CHECK (cause NOT IN ('ask', 'message', 'classify') OR butler <> shared.me());
"""

# The owner left it as it is, so nobody will know; what a call may have done stays for the owner's word.
IN_DOUBT = """
DROP POLICY what_is_over ON shared.pending_actions;
CREATE POLICY what_is_over ON shared.pending_actions FOR DELETE TO butlers_group_messenger
    USING (status NOT IN ('pending', 'approved', 'executing')
        AND (status <> 'uncertain' OR EXISTS (SELECT FROM shared.notifications n
            WHERE n.id = notification_id AND n.wiped_at IS NOT NULL))
        AND requested_at < statement_timestamp() - interval '400 days');
"""

# What is left out is counted in a row that somebody will be shown, and what is older than a day, as these live, or of
# one session alone leaves no other out.
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
            AND state = 'queued' AND session_id IS NULL AND expires_at > clock_timestamp()
            AND created_at BETWEEN clock_timestamp() - interval '1 day' AND clock_timestamp()) < 100 THEN
        RETURN NEW;
    END IF;
    UPDATE shared.notices SET more = more + 1 WHERE id = (SELECT id FROM shared.notices WHERE butler = NEW.butler
        AND source = NEW.source AND kind = 'left-out' AND state = 'queued' AND session_id IS NULL
        AND expires_at > clock_timestamp() AND created_at > clock_timestamp() - interval '1 day'
        LIMIT 1 FOR UPDATE SKIP LOCKED);
    IF FOUND THEN
        RETURN NULL;
    END IF;
    -- Somebody counts in that row at this moment: this one is left out uncounted.
    IF EXISTS (SELECT FROM shared.notices WHERE butler = NEW.butler AND source = NEW.source AND kind = 'left-out'
        AND state = 'queued' AND session_id IS NULL AND expires_at > clock_timestamp()
        AND created_at > clock_timestamp() - interval '1 day') THEN
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
    """Bound what a butler's login leaves behind, and let go of what nobody will know."""
    execute(SOUND)
    execute(FIRST)
    execute(BOUND)
    execute(IN_DOUBT)
