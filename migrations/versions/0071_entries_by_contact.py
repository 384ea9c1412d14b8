"""The entries of a contact by an index, whatever the channels of all the others are."""

from migrations.raw import execute

revision = "0071"
down_revision = "0070"

INDEX = "CREATE INDEX entries_of_a_contact ON shared.contact_info (contact_id, type)"


def upgrade() -> None:
    """Make the index."""
    execute(INDEX)
