"""The Messenger admits messages in nobody's name but its own, as every daemon."""

from migrations.raw import execute

revision = "0114"
down_revision = "0113"

# Its login is a member of the butlers' group too, and `notify` of its own goes by what that group may.
ITS_OWN = """
DROP POLICY for_others ON shared.notifications;
REVOKE INSERT ON shared.notifications FROM butlers_group_messenger;
"""


def upgrade() -> None:
    """Take back what let it admit for others."""
    execute(ITS_OWN)
