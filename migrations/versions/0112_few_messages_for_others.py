"""Few messages wait to leave in a butler's name that somebody else admitted."""

from migrations.raw import execute

revision = "0112"
down_revision = "0111"

# They stand in the queue as that butler's, before what it says later; so does what waits for an address, once there is
# one. It counts without a lock: where several insert at once a few hundred more are kept, and nobody waits. An older
# snapshot would not show what there is.
BOUND = """
CREATE FUNCTION shared.bound_message() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
        OR (SELECT count(*) FROM (
            (SELECT FROM shared.notifications WHERE status = 'queued' AND admitted_by = 'switchboard'
                AND origin_butler = NEW.origin_butler LIMIT 100)
            UNION ALL
            (SELECT FROM shared.notifications WHERE status = 'pending_missing_identifier'
                AND admitted_by = 'switchboard' AND origin_butler = NEW.origin_butler LIMIT 100)) waiting) >= 100 THEN
        RAISE program_limit_exceeded USING MESSAGE = 'too many messages wait to leave in the name of this butler';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION shared.bound_message() FROM PUBLIC;
CREATE TRIGGER bounded BEFORE INSERT ON shared.notifications FOR EACH ROW
    WHEN (NEW.status IN ('queued', 'pending_missing_identifier') AND NEW.origin_butler <> 'switchboard'
        AND shared.me() = 'switchboard')
    EXECUTE FUNCTION shared.bound_message();
"""


def upgrade() -> None:
    """Refuse what is one too many."""
    execute(BOUND)
