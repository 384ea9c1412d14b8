"""Questions that open a popup on the owner's screen at once, where a desk is there."""

from migrations.raw import execute

revision = "0055"
down_revision = "0054"

POPUP = """
ALTER TABLE shared.questions ADD COLUMN popup boolean NOT NULL DEFAULT false;
GRANT INSERT (popup) ON shared.questions TO butlers_group_butler;
"""


def upgrade() -> None:
    """Let a butler ask in a popup."""
    execute(POPUP)
