"""What a butler keeps has a version that never comes again, not after a deletion either."""

from migrations.raw import execute

revision = "0108"
down_revision = "0107"

# INVARIANT: no version comes twice, so whoever gives the one that was read changes nothing that was set since. The
# sequence goes on after all that are there; a version beyond those that may be given is nobody's.
VERSIONS = """
ALTER TABLE shared.state ALTER COLUMN version DROP DEFAULT;
ALTER TABLE shared.state ALTER COLUMN version ADD GENERATED ALWAYS AS IDENTITY;
SELECT setval(pg_get_serial_sequence('shared.state', 'version'), max(version)) FROM shared.state
WHERE version < 2::numeric ^ 62 HAVING count(*) > 0;
"""


def upgrade() -> None:
    """Take each version from a sequence."""
    execute(VERSIONS)
