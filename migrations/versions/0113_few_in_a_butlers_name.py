"""Of what the Switchboard admitted in one name, its own too, few wait, also for a yes and by many connections."""

from migrations.raw import execute

revision = "0113"
down_revision = "0112"

# After the insert, because a repeated call inserts nothing and gets the first one's answer. INVARIANT: units of work
# side by side count one after the other, each what the one before has committed. An older snapshot would not show it.
BOUND = """
DROP TRIGGER bounded ON shared.notifications;
CREATE OR REPLACE FUNCTION shared.bound_message() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('messages ' || NEW.origin_butler, 0));
    IF current_setting('transaction_isolation') <> 'read committed'
        OR (SELECT count(*) FROM (
            (SELECT FROM shared.notifications WHERE status = 'queued'
                AND admitted_by = 'switchboard' AND origin_butler = NEW.origin_butler LIMIT 101)
            UNION ALL
            (SELECT FROM shared.notifications WHERE status IN ('pending_approval', 'pending_missing_identifier')
                AND admitted_by = 'switchboard' AND origin_butler = NEW.origin_butler LIMIT 101)) waiting) > 100 THEN
        RAISE program_limit_exceeded USING MESSAGE = 'too many messages wait in this name';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER bounded AFTER INSERT ON shared.notifications FOR EACH ROW
    WHEN (NEW.status IN ('queued', 'pending_approval', 'pending_missing_identifier')
        AND shared.me() = 'switchboard')
    EXECUTE FUNCTION shared.bound_message();
"""


def upgrade() -> None:
    """Count what waits for a yes, too, and one after the other."""
    execute(BOUND)
