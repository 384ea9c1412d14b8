"""What a butler or the Switchboard writes is bounded by how long it is when it is read, too."""

from migrations.raw import execute

revision = "0034"
down_revision = "0033"

# A number of ten bytes may have sixteen thousand digits after its point, and whoever reads many rows reads them all.
PLAIN = """
CREATE OR REPLACE FUNCTION shared.plain(value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN octet_length(value::text) <= 1000000
        AND NOT jsonb_path_exists(value, 'strict $.** ? (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308)')
        AND NOT jsonb_path_exists(value, 'strict $.**{33 to last}');
"""

# A seal reads up to a hundred thousand lines at once.
LINES = """
DO $$
DECLARE one record;
BEGIN
    FOR one IN SELECT polname, pg_get_expr(polwithcheck, polrelid) AS held FROM pg_policy
        WHERE polrelid = 'shared.approval_events'::regclass AND polname IN ('own_voice', 'for_butlers')
    LOOP
        EXECUTE format('ALTER POLICY %I ON shared.approval_events
            WITH CHECK ((%s) AND octet_length(detail::text) <= 32768)', one.polname, one.held);
    END LOOP;
END $$;
"""


def upgrade() -> None:
    """Refuse what is short on disk and endless when it is read."""
    execute(PLAIN)
    execute(LINES)
