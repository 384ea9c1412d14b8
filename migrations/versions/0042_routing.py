"""Routing of what comes in: which message waits for its butler, where it went and why, and the owner's rules for it."""

from migrations.raw import execute

revision = "0042"
down_revision = "0041"

INBOX = """
-- What waits to be routed has a time in `route_until`: from then on anybody may take it, and until then its holder
-- works on it. What was received before there was routing has none, and stays as it is.
ALTER TABLE switchboard.inbox ADD COLUMN conversation text CHECK (length(conversation) <= 1000);
ALTER TABLE switchboard.inbox ADD COLUMN route_until timestamptz;
ALTER TABLE switchboard.inbox ADD COLUMN route_holder text;
ALTER TABLE switchboard.inbox ADD COLUMN routed_because text CHECK (length(routed_because) <= 200);
ALTER TABLE switchboard.inbox ADD COLUMN answers uuid;
CREATE INDEX inbox_to_route ON switchboard.inbox (route_until) WHERE route_until IS NOT NULL;
CREATE INDEX inbox_by_conversation ON switchboard.inbox (channel, conversation, received_at);
-- What a message of ours was, by its number: no word of it.
GRANT SELECT (delivery_id, provider_id) ON messenger.parts TO butlers_group_switchboard;
ALTER TABLE switchboard.butlers ADD COLUMN is_default boolean NOT NULL DEFAULT false;
"""

RULES = """
-- The owner's rules: whose message goes to which butler. Without a butler it goes to nobody: that sender is blocked.
CREATE TABLE switchboard.routing_rules (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    butler text CHECK (butler ~ '^[a-z][a-z0-9_]{0,30}$'),
    channel text CHECK (length(channel) BETWEEN 1 AND 30),
    sender text CHECK (length(sender) BETWEEN 1 AND 320),
    words text CHECK (length(words) BETWEEN 1 AND 200),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (num_nonnulls(channel, sender, words) > 0)
);
GRANT SELECT ON switchboard.routing_rules TO butlers_group_switchboard, butlers_group_console;
GRANT SELECT, INSERT, DELETE ON switchboard.routing_rules TO butlers_group_owner;
"""


def upgrade() -> None:
    """Create the queue of routing in the inbox, and `switchboard.routing_rules`."""
    execute(INBOX)
    execute(RULES)
