"""Words of the owner's that an earlier program put back into a queue begin their own session after all."""

from migrations.raw import execute

revision = "0099"
down_revision = "0098"

# Such words are shown with no other's prompt any more.
BEGIN = """
WITH words AS (
    UPDATE shared.notices SET state = 'done'
    WHERE state = 'queued' AND again AND source = 'owner' AND kind = 'message' RETURNING id, butler)
UPDATE shared.sessions s SET status = 'waiting', outcome = NULL, ended_at = NULL FROM words w
WHERE s.id = w.id AND s.butler = w.butler AND s.cause = 'message' AND s.status = 'done' AND s.attempt = 0
"""


def upgrade() -> None:
    """Put the sessions of words that were told in vain back into their places."""
    execute(BEGIN)
