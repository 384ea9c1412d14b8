"""A session says itself that the owner's words began it, however long they are; the Switchboard alone writes that."""

from migrations.raw import execute

revision = "0076"
down_revision = "0075"

# Null where somebody else's words began it, or none; `reply` where they are about a conversation of somebody else's.
WORDS = """
ALTER TABLE shared.sessions ADD COLUMN owners_words text CHECK (owners_words IN ('own', 'reply'));
GRANT INSERT (owners_words) ON shared.sessions TO butlers_group_switchboard;
UPDATE shared.sessions s SET owners_words = 'own' WHERE s.cause = 'message' AND EXISTS (SELECT FROM shared.notices n
    WHERE n.id = s.id AND n.butler = s.butler AND n.source = 'owner' AND n.trust = 'owner');
"""


def upgrade() -> None:
    """Add the column, and fill it where a notice says so."""
    execute(WORDS)
