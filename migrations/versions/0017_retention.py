"""What the purger needs: when a message was wiped, the ways to what is over, and the right to take that away alone."""

from migrations.raw import execute

revision = "0017"
down_revision = "0016"

WIPED = """
-- When its words were taken out. Empty again as soon as something new is said of it.
ALTER TABLE shared.notifications ADD COLUMN wiped_at timestamptz;
CREATE INDEX notifications_to_wipe ON shared.notifications (created_at) WHERE wiped_at IS NULL;
CREATE INDEX actions_of_no_message ON shared.pending_actions (requested_at) WHERE notification_id IS NULL;
CREATE INDEX routes_by_age ON switchboard.routes (at);
CREATE INDEX inbox_by_age ON switchboard.inbox (received_at);
CREATE INDEX inbox_to_wipe ON switchboard.inbox (received_at) WHERE request_context <> '{}';
CREATE INDEX cards_about_nothing ON messenger.deliveries (settled_at)
    WHERE class = 'card' AND action_id IS NULL AND about IS NULL AND digest_id IS NULL;
-- Whoever removes a row is asked whether another still names it.
CREATE INDEX deliveries_by_action ON messenger.deliveries (action_id) WHERE action_id IS NOT NULL;
CREATE INDEX resolutions_by_delivery ON shared.resolutions (delivery_id);
"""

# What is young, open or uncertain cannot be taken away even by mistake; the audit is not named here at all.
GRANTS = """
GRANT DELETE ON shared.notifications, shared.pending_actions, shared.withdrawals, shared.resolutions,
    shared.client_tokens, messenger.digests, messenger.digest_items, switchboard.routes, switchboard.inbox
    TO butlers_group_messenger;
GRANT SELECT (id, at) ON switchboard.routes TO butlers_group_messenger;
GRANT UPDATE (text, request_context) ON switchboard.inbox TO butlers_group_messenger;
CREATE POLICY what_is_over ON shared.notifications FOR DELETE TO butlers_group_messenger
    USING (wiped_at IS NOT NULL AND created_at < statement_timestamp() - interval '400 days');
CREATE POLICY what_is_over ON shared.pending_actions FOR DELETE TO butlers_group_messenger
    USING (status NOT IN ('pending', 'approved', 'executing', 'uncertain')
        AND requested_at < statement_timestamp() - interval '400 days');
CREATE POLICY what_is_over ON shared.withdrawals FOR DELETE TO butlers_group_messenger
    USING (at < statement_timestamp() - interval '400 days');
CREATE POLICY what_is_over ON shared.client_tokens FOR DELETE TO butlers_group_messenger
    USING (expires_at < statement_timestamp() - interval '30 days');
CREATE POLICY what_is_over_read ON shared.client_tokens FOR SELECT TO butlers_group_messenger
    USING (expires_at < statement_timestamp() - interval '30 days');
"""


def upgrade() -> None:
    """Add the column, the indexes and the grants."""
    execute(WIPED)
    execute(GRANTS)
