"""What the sandbox began ends when a channel leaves it: anybody could write there in the owner's name."""

from migrations.raw import execute

revision = "0101"
down_revision = "0100"

# INVARIANT: in the transaction in which a channel begins to reach people. What such work has asked of another butler
# ends with it; what the owner writes since does not.
ENDS = """
CREATE FUNCTION shared.end_played() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE shared.sessions s SET status = 'stopped', ended_at = clock_timestamp(), holder = NULL, lease_until = NULL,
        outcome = 'It was asked in the sandbox, before a channel reached people.',
        untold = left('A session of ' || s.butler || ' was ended, as it was asked in the sandbox, before a channel '
            || 'reached people. It was asked: “' || left(s.prompt, 200) || '”', 1000)
    WHERE s.ended_at IS NULL AND s.prompt IS NOT NULL
        AND coalesce((SELECT i.endpoint_identity FROM switchboard.inbox i WHERE i.id = s.id),
            (SELECT i.endpoint_identity FROM switchboard.inbox i WHERE i.id = s.chain),
            s.request_context ->> 'source_endpoint_identity') IN ('1', 'butlers@sandbox.test');
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION shared.end_played() FROM PUBLIC;
CREATE TRIGGER ends_what_was_played AFTER UPDATE ON shared.channels FOR EACH ROW
    WHEN (OLD.realm = 'sandbox' AND NEW.realm <> 'sandbox') EXECUTE FUNCTION shared.end_played();
"""


def upgrade() -> None:
    """End what was begun in the sandbox as soon as a channel reaches people."""
    execute(ENDS)
