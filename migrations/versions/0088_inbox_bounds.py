"""Rows of the Switchboard are as long as what it takes in, whoever writes them."""

from migrations.raw import execute

revision = "0088"
down_revision = "0087"

# As the contract ingest.v1 has them. A butler reads these words in its prompt. No honest program wrote what the checks
# would refuse, and no later change of such a row would be let in.
INBOX = """
DELETE FROM switchboard.inbox WHERE
    greatest(length(channel), length(endpoint_identity), length(external_event_id), length(thread), length(sender),
        length(route_holder)) > 1000
    OR length(text) > 100000 OR octet_length(request_context::text) > 65536;
ALTER TABLE switchboard.inbox ADD CONSTRAINT as_long_as_it_may_come CHECK (
    greatest(length(channel), length(endpoint_identity), length(external_event_id), length(thread), length(sender),
        length(route_holder)) <= 1000
    AND length(text) <= 100000 AND octet_length(request_context::text) <= 65536);
"""
ROUTES = """
DELETE FROM switchboard.routes WHERE
    greatest(length(request_id), length(origin_butler), length(target_butler), length(tool), length(status),
        length(error_class)) > 1000;
ALTER TABLE switchboard.routes ADD CONSTRAINT as_long_as_a_call_says CHECK (
    greatest(length(request_id), length(origin_butler), length(target_butler), length(tool), length(status),
        length(error_class)) <= 1000);
"""
BUTLERS = """
DELETE FROM switchboard.butlers WHERE
    greatest(length(name), length(url)) > 1000 OR octet_length(array_to_string(tools, ' ')) > 262144;
ALTER TABLE switchboard.butlers ADD CONSTRAINT as_long_as_a_daemon_says CHECK (
    greatest(length(name), length(url)) <= 1000
    AND octet_length(array_to_string(tools, ' ')) <= 262144);
"""


def upgrade() -> None:
    """Bound what the Switchboard writes of messages, calls and daemons."""
    execute(INBOX)
    execute(ROUTES)
    execute(BUTLERS)
