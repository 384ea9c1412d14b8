"""Rows of the Switchboard are as long as what it takes in, whoever writes them."""

from migrations.raw import execute

revision = "0088"
down_revision = "0087"

# As the contract ingest.v1 has them; what is there already was taken by it. A butler reads these words in its prompt.
INBOX = """
ALTER TABLE switchboard.inbox ADD CONSTRAINT as_long_as_it_may_come CHECK (
    greatest(length(channel), length(endpoint_identity), length(external_event_id), length(thread), length(sender),
        length(route_holder)) <= 1000
    AND length(text) <= 100000 AND octet_length(request_context::text) <= 65536) NOT VALID;
"""
ROUTES = """
ALTER TABLE switchboard.routes ADD CONSTRAINT as_long_as_a_call_says CHECK (
    greatest(length(request_id), length(origin_butler), length(target_butler), length(tool), length(status),
        length(error_class)) <= 1000) NOT VALID;
"""
BUTLERS = """
ALTER TABLE switchboard.butlers ADD CONSTRAINT as_long_as_a_daemon_says CHECK (
    greatest(length(name), length(url)) <= 1000
    AND octet_length(array_to_string(tools, ' ')) <= 262144) NOT VALID;
"""


def upgrade() -> None:
    """Bound what the Switchboard writes of messages, calls and daemons."""
    execute(INBOX)
    execute(ROUTES)
    execute(BUTLERS)
