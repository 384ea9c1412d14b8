"""What proves a thread: who wrote to which butler, and in which thread, without a word of what was said."""

from migrations.raw import execute

revision = "0008"
down_revision = "0007"

THREADS = """
-- A butler sees what was routed to it; whoever looks again at its messages sees that of all.
-- The sender is folded as addresses are looked up: ASCII letters, nothing else.
CREATE VIEW shared.threads WITH (security_barrier) AS
    SELECT routed_to AS butler, channel, thread, lower(sender COLLATE "C") AS sender
    FROM switchboard.inbox
    WHERE routed_to IS NOT NULL AND (routed_to = shared.me()
        OR pg_has_role(current_user, 'butlers_group_switchboard', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_console', 'MEMBER')
        OR pg_has_role(current_user, 'butlers_group_owner', 'MEMBER'));
GRANT SELECT ON shared.threads TO butlers_group_butler, butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner;
CREATE INDEX inbox_by_sender ON switchboard.inbox (channel, lower(sender COLLATE "C"))
    WHERE routed_to IS NOT NULL;
"""


def upgrade() -> None:
    """Create the view `shared.threads`."""
    execute(THREADS)
