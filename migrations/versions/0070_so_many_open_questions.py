"""A butler has at most a hundred open questions, whoever writes them: all who show questions read each of them."""

from migrations.raw import execute

revision = "0070"
down_revision = "0069"

# It counts without a lock: where several insert at once a few hundred more are kept, and nobody waits. What has expired
# and is not closed yet counts too, or it could be written without end.
BOUND = """
CREATE FUNCTION shared.bound_question() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (SELECT count(*) FROM (SELECT FROM shared.questions WHERE origin_butler = NEW.origin_butler AND status = 'open'
            LIMIT 100) open) = 100 THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION shared.bound_question() FROM PUBLIC;
CREATE TRIGGER bounded BEFORE INSERT ON shared.questions FOR EACH ROW EXECUTE FUNCTION shared.bound_question();
"""


def upgrade() -> None:
    """Leave out a question that is one too many."""
    execute(BOUND)
