"""Of what came in five hundred wait to be routed at most, whoever writes them."""

from migrations.raw import execute

revision = "0100"
down_revision = "0099"

# What is one too many stays with the Messenger, which brings it again. INVARIANT: whoever finds more than a few waits
# for the others, so that many units of work side by side put no more.
BOUND = """
CREATE FUNCTION switchboard.bound_waiting() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (SELECT count(*) FROM (SELECT FROM switchboard.inbox WHERE route_until IS NOT NULL LIMIT 20) few) = 20 THEN
        PERFORM pg_advisory_xact_lock(hashtext('what waits to be routed'));
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed'
        OR (SELECT count(*) FROM (SELECT FROM switchboard.inbox WHERE route_until IS NOT NULL LIMIT 500) waiting) = 500
    THEN
        RAISE program_limit_exceeded USING MESSAGE = 'too much waits to be routed';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION switchboard.bound_waiting() FROM PUBLIC;
CREATE TRIGGER bounded BEFORE INSERT ON switchboard.inbox FOR EACH ROW
    WHEN (NEW.route_until IS NOT NULL AND shared.me() = 'switchboard')
    EXECUTE FUNCTION switchboard.bound_waiting();
CREATE TRIGGER bounded_again BEFORE UPDATE ON switchboard.inbox FOR EACH ROW
    WHEN (NEW.route_until IS NOT NULL AND OLD.route_until IS NULL AND shared.me() = 'switchboard')
    EXECUTE FUNCTION switchboard.bound_waiting();
"""


def upgrade() -> None:
    """Refuse what is one too many."""
    execute(BOUND)
