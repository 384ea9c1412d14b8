"""Contacts can be looked up by their names, whatever the case and the accents."""

from migrations.raw import execute

revision = "0036"
down_revision = "0035"

FOLDED_NAME = r"""
CREATE FUNCTION shared.folded_name(name text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN lower(btrim(
        regexp_replace(regexp_replace(normalize(name, NFKD), '[\u0300-\u036f]', '', 'g'), '\s+', ' ', 'g')));
GRANT EXECUTE ON FUNCTION shared.folded_name TO butlers_group_butler, butlers_group_owner, butlers_group_console;
"""
BY_NAME = "CREATE INDEX contacts_by_name ON shared.contacts (shared.folded_name(name));"


def upgrade() -> None:
    """Fold names as they are looked up."""
    execute(FOLDED_NAME)
    execute(BY_NAME)
