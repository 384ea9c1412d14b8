"""When which bed was watered; who may do what with it, the framework says."""

from migrations.raw import execute

revision, down_revision = "0001", None


def upgrade() -> None:
    """Make the table."""
    execute("""CREATE TABLE beds.waterings (butler text NOT NULL, bed text NOT NULL CHECK (length(bed) <= 100),
        watered_at timestamptz NOT NULL DEFAULT clock_timestamp())""")
