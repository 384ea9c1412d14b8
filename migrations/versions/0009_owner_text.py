"""The owner's own words in the place of a butler's."""

from migrations.raw import execute

revision = "0009"
down_revision = "0008"

OWNER_TEXT = """
-- What goes out instead of the message that was asked. Inserting is granted by column: no butler can set it.
ALTER TABLE shared.notifications ADD COLUMN owner_text text;
"""


def upgrade() -> None:
    """Add the column."""
    execute(OWNER_TEXT)
