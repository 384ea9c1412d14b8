"""What came in, whole: of what kind it is, what it answers, who says to have sent it, and what was attached."""

from migrations.raw import execute

revision = "0041"
down_revision = "0040"

ENDPOINTS = """
-- What received messages name as the place they came in at: the address of a mailbox, or a bot's number. `1` is the
-- sandbox's bot.
ALTER TABLE shared.channels ADD COLUMN endpoint text NOT NULL GENERATED ALWAYS AS
    (CASE WHEN sender <> '' THEN sender WHEN realm = 'sandbox' THEN '1' ELSE realm END) STORED;
"""

INBOX = """
ALTER TABLE switchboard.inbox ADD COLUMN kind text NOT NULL DEFAULT 'message' CHECK (kind ~ '^[a-z][a-z_]{0,29}$');
ALTER TABLE switchboard.inbox ADD COLUMN reply_to text CHECK (length(reply_to) <= 1000);
ALTER TABLE switchboard.inbox ADD COLUMN display_name text CHECK (length(display_name) <= 200);
ALTER TABLE switchboard.inbox ADD COLUMN attachments jsonb CHECK (octet_length(attachments::text) <= 65536);
GRANT UPDATE (display_name, attachments) ON switchboard.inbox TO butlers_group_messenger;
"""

THREADS = """
-- Only what came in where this channel is at home now: another bot's numbers, and the sandbox's, name other messages.
CREATE OR REPLACE VIEW shared.threads WITH (security_barrier) AS
    SELECT i.routed_to AS butler, i.channel, i.thread, lower(i.sender COLLATE "C") AS sender,
        i.endpoint_identity AS endpoint
    FROM switchboard.inbox i JOIN shared.channels c ON c.channel = i.channel AND c.endpoint = i.endpoint_identity
    WHERE i.routed_to IS NOT NULL AND (i.routed_to = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'));
"""


def upgrade() -> None:
    """Let the inbox hold whole events, and the view `shared.threads` say where each came in."""
    execute(ENDPOINTS)
    execute(INBOX)
    execute(THREADS)
