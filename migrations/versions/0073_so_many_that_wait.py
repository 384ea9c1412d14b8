"""Of one butler a thousand messages and calls wait for a yes at most, whoever writes them."""

from migrations.raw import execute

revision = "0073"
down_revision = "0072"

# It counts without a lock: where several insert at once a few thousand more are kept, and nobody waits. An older
# snapshot would not show what there is. What the Messenger asks anew has waited before, and is not counted.
BOUND = """
CREATE FUNCTION shared.bound_action() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
        OR (SELECT count(*) FROM (SELECT FROM shared.pending_actions
            WHERE origin_butler = NEW.origin_butler AND status = 'pending' LIMIT 1000) waiting) = 1000 THEN
        RAISE program_limit_exceeded USING MESSAGE = 'too many of this butler wait for a yes';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION shared.bound_action() FROM PUBLIC;
CREATE TRIGGER bounded BEFORE INSERT ON shared.pending_actions FOR EACH ROW
    WHEN (NEW.status = 'pending' AND shared.me() IN (NEW.origin_butler, 'switchboard'))
    EXECUTE FUNCTION shared.bound_action();
"""


def upgrade() -> None:
    """Refuse what is one too many."""
    execute(BOUND)
