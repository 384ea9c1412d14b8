"""Where reading a mailbox for what came back has got to."""

from migrations.raw import execute

revision = "0012"
down_revision = "0011"

MAILBOXES = """
CREATE TABLE messenger.mailboxes (
    -- user@host:port, never its password.
    account text PRIMARY KEY,
    -- Which Messenger reads it, until when.
    holder text NOT NULL,
    lease_until timestamptz NOT NULL,
    -- IMAP's own numbers: up to which message all is read, as long as the first is what the server says.
    uidvalidity bigint NOT NULL DEFAULT 0,
    last_uid bigint NOT NULL DEFAULT 0,
    -- When it was last read to its end; at first when it was first looked at.
    read_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX deliveries_bounced ON messenger.deliveries (settled_at) WHERE status = 'bounced';
GRANT SELECT, INSERT, UPDATE ON messenger.mailboxes TO butlers_group_messenger;
GRANT SELECT ON messenger.mailboxes TO butlers_group_console, butlers_group_owner;
"""


def upgrade() -> None:
    """Create `messenger.mailboxes`, and the index by which what came back is found."""
    execute(MAILBOXES)
