"""Of a mail it is known whether what was taken for a quotation may be its writer's own words."""

from migrations.raw import execute

revision = "0080"
down_revision = "0079"

IN_DOUBT = "ALTER TABLE switchboard.inbox ADD COLUMN in_doubt boolean NOT NULL DEFAULT false"


def upgrade() -> None:
    """Add the column."""
    execute(IN_DOUBT)
