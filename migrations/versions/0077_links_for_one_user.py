"""A sign-in link for this computer's browsers signs in the user who made it: others can read it where it is opened."""

from migrations.raw import execute

revision = "0077"
down_revision = "0076"

# Their numbers, as one may act as another; null if anybody may open the link, as on another computer.
FOR_WHOM = "ALTER TABLE console.sign_in_links ADD COLUMN for_uids bigint[];"


def upgrade() -> None:
    """Add the column."""
    execute(FOR_WHOM)
