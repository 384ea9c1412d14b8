"""A butler has at most a hundred open questions, whoever writes them: all who show questions read each of them."""

from migrations.raw import execute

revision = "0070"
down_revision = "0069"

# What was written before stays as far as it is within the bound, the oldest first.
PUT_RIGHT = """
UPDATE shared.questions SET status = 'withdrawn', closed_at = clock_timestamp() WHERE id IN (
    SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY origin_butler ORDER BY asked_at, id) AS place
        FROM shared.questions WHERE status = 'open') open WHERE place > 100)
"""
# It counts without a lock: where several insert at once a few hundred more are kept, and nobody waits. What has expired
# and is not closed yet counts too, or it could be written without end. An older snapshot would not show what there is.
BOUND = """
CREATE FUNCTION shared.bound_question() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
        OR (SELECT count(*) FROM (SELECT FROM shared.questions
            WHERE origin_butler = NEW.origin_butler AND status = 'open' LIMIT 100) open) = 100 THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION shared.bound_question() FROM PUBLIC;
CREATE TRIGGER bounded BEFORE INSERT ON shared.questions FOR EACH ROW EXECUTE FUNCTION shared.bound_question();
"""


def upgrade() -> None:
    """Leave out a question that is one too many, and withdraw those that are."""
    execute(PUT_RIGHT)
    execute(BOUND)
