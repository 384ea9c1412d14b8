"""What waits for a yes in a butler's name keeps it from asking only if it asked itself, and is about something."""

from migrations.raw import execute

revision = "0104"
down_revision = "0103"

# What the Switchboard admitted in a butler's name has a thousand of its own: that butler cannot withdraw it. It counts
# without a lock: where several insert at once a few thousand more are kept, and nobody waits. An older snapshot would
# not show what there is. What the Messenger asks anew has waited before, and is not counted.
BOUND = """
CREATE OR REPLACE FUNCTION shared.bound_action() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    admitter text := coalesce((SELECT n.admitted_by FROM shared.notifications n WHERE n.id = NEW.notification_id),
        NEW.origin_butler);
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
        OR (SELECT count(*) FROM (SELECT FROM shared.pending_actions a
            WHERE a.origin_butler = NEW.origin_butler AND a.status = 'pending'
                AND admitter = coalesce((SELECT n.admitted_by FROM shared.notifications n
                    WHERE n.id = a.notification_id), a.origin_butler) LIMIT 1000) waiting) = 1000 THEN
        RAISE program_limit_exceeded USING MESSAGE = 'too many of this butler wait for a yes';
    END IF;
    RETURN NEW;
END $$;
"""

# INVARIANT: whatever waits for the owner is a message or a call, since nobody is shown, or can answer, what is neither.
# At the end of the transaction, because a call refers to its question. What is left of before expires at once.
ABOUT_SOMETHING = """
CREATE FUNCTION shared.demand_call() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM shared.tool_calls c WHERE c.id = NEW.id) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a question about neither a message nor a call';
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION shared.demand_call() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER about_something AFTER INSERT ON shared.pending_actions DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.status = 'pending' AND NEW.notification_id IS NULL AND shared.me() = NEW.origin_butler)
    EXECUTE FUNCTION shared.demand_call();
UPDATE shared.pending_actions a SET expires_at = clock_timestamp()
WHERE status = 'pending' AND notification_id IS NULL AND NOT EXISTS (SELECT FROM shared.tool_calls c WHERE c.id = a.id);
"""


def upgrade() -> None:
    """Count by who admitted, and take no question about nothing."""
    execute(BOUND)
    execute(ABOUT_SOMETHING)
