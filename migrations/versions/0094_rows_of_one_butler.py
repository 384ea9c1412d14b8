"""However many rows one schedule or session has, another's are found by their index."""

from migrations.raw import execute

revision = "0094"
down_revision = "0093"

# A butler's process may write millions of rows under one id. What the server then counts makes it read all of them for
# any other id; so that is said here.
FOUND = """
ALTER TABLE shared.occurrences ALTER COLUMN schedule_id SET (n_distinct = -0.05);
ALTER TABLE shared.session_steps ALTER COLUMN session_id SET (n_distinct = -0.05);
ANALYZE shared.occurrences, shared.session_steps;
"""
# They go with their session, in one statement, which has a time limit.
BOUNDS = """
DELETE FROM shared.session_steps WHERE seq NOT BETWEEN 1 AND 100000;
ALTER TABLE shared.session_steps ADD CONSTRAINT steps_in_numbers CHECK (seq BETWEEN 1 AND 100000);
"""


def upgrade() -> None:
    """State how selective the ids are, and bound the steps of a session."""
    execute(FOUND)
    execute(BOUNDS)
