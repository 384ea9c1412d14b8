"""The owner removes what a butler has set itself for a time."""

from migrations.raw import execute

revision = "0110"
down_revision = "0109"

TAKES_BACK = """
GRANT UPDATE (removed) ON shared.schedules TO butlers_group_console, butlers_group_owner;
CREATE POLICY taken_back ON shared.schedules FOR UPDATE TO butlers_group_console, butlers_group_owner
    USING (source = 'tool') WITH CHECK (source = 'tool');
"""


def upgrade() -> None:
    """Let the owner remove a schedule of a butler's own making; what the file says, the file changes."""
    execute(TAKES_BACK)
