"""What butlers want back is found for each of them by its index, however much one of them asked for."""

from migrations.raw import execute

revision = "0098"
down_revision = "0097"

FOUND = """
DROP INDEX shared.withdrawals_open;
CREATE INDEX withdrawals_unanswered ON shared.withdrawals (origin_butler, notification_id) WHERE outcome IS NULL;
"""


def upgrade() -> None:
    """Index what nobody has looked at yet."""
    execute(FOUND)
