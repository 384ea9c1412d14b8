"""Mails that come in: what they quote, kept apart, and whether the owner's mail server vouches for their sender."""

from migrations.raw import execute

revision = "0049"
down_revision = "0048"

INBOX = """
-- Said of the sender's domain by the owner's own mail server; of what came in otherwise it says nothing.
ALTER TABLE switchboard.inbox ADD COLUMN verified boolean NOT NULL DEFAULT false;
ALTER TABLE switchboard.inbox ADD COLUMN quoted text CHECK (length(quoted) <= 100000);
GRANT UPDATE (quoted) ON switchboard.inbox TO butlers_group_messenger;
"""
MAILBOXES = """
-- What came before a mailbox was first read for mails is left alone: nothing old begins work.
ALTER TABLE messenger.mailboxes ADD COLUMN mails_from timestamptz NOT NULL DEFAULT clock_timestamp();
"""


def upgrade() -> None:
    """Let the inbox hold whole mails, and say from when on a mailbox's mails count."""
    execute(INBOX)
    execute(MAILBOXES)
