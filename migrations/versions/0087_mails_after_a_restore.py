"""After a restore a mailbox counts from half a minute before it; the owner may say that there was one."""

from migrations.raw import execute

revision = "0087"
down_revision = "0086"

GRANTS = """
REVOKE DELETE ON messenger.mailboxes FROM butlers_group_owner;
GRANT UPDATE (uidvalidity, last_uid, read_at, mails_from) ON messenger.mailboxes TO butlers_group_owner;
"""


def upgrade() -> None:
    """Let the owner's login set back how far the mailboxes were read."""
    execute(GRANTS)
