"""The Switchboard says where a message goes, and changes nothing of who wrote it or what."""

from migrations.raw import execute

revision = "0063"
down_revision = "0062"

# A press on a stranger's card speaks of the sender that the card showed. Without rights on the whole table it cannot be
# locked against those who read it either.
RIGHTS = """
REVOKE UPDATE, DELETE ON switchboard.inbox FROM butlers_group_switchboard;
GRANT UPDATE (route_holder, route_until, routed_to, routed_because, answers, concerns, stranger)
    ON switchboard.inbox TO butlers_group_switchboard;
"""


def upgrade() -> None:
    """Leave to the Switchboard the columns of the inbox that say where a message goes."""
    execute(RIGHTS)
