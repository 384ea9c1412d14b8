"""What a butler keeps has a version that never comes again, and may be as long in one script as in another."""

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
# Counted in characters, as the tools promise it. The text of a value that is kept has a blank after each comma and each
# colon, which the tool `state_set` does not count.
LENGTHS = """
ALTER TABLE shared.state DROP CONSTRAINT state_value_check,
    ADD CONSTRAINT state_value_check CHECK (length(value::text) <= 131072);
ALTER TABLE shared.schedules DROP CONSTRAINT schedules_arguments_check,
    ADD CONSTRAINT schedules_arguments_check CHECK (length(arguments::text) <= 65536);
"""


def upgrade() -> None:
    """Take each version from a sequence, and count characters in place of bytes."""
    execute(VERSIONS)
    execute(LENGTHS)
