"""Times of a message that came in, and how one that waits may be answered, can be read, whoever writes its row."""

from migrations.raw import execute

revision = "0092"
down_revision = "0091"

# What is there and cannot be read was brought by no channel.
MEND = """
UPDATE switchboard.inbox SET received_at = clock_timestamp()
WHERE NOT received_at BETWEEN '2020-01-01Z' AND '2200-01-01Z';
UPDATE switchboard.inbox SET route_until = NULL WHERE route_until IS NOT NULL
    AND (NOT route_until BETWEEN '2020-01-01Z' AND '2200-01-01Z'
        OR (request_context ->> 'source_channel' = channel) IS NOT TRUE);
"""
# One row that cannot be read would keep every message from its butler.
BOUNDS = """
ALTER TABLE switchboard.inbox
    ADD CONSTRAINT times_that_can_be_read CHECK (received_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'
        AND route_until BETWEEN '2020-01-01Z' AND '2200-01-01Z'),
    ADD CONSTRAINT waits_with_a_context CHECK (route_until IS NULL
        OR (request_context ->> 'source_channel' = channel) IS TRUE);
"""
# What is wiped is routed no more.
WIPED = "GRANT UPDATE (route_until) ON switchboard.inbox TO butlers_group_messenger"


def upgrade() -> None:
    """Bound the times of what came in, and the context of what waits."""
    execute(MEND)
    execute(BOUNDS)
    execute(WIPED)
