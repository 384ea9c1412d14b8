"""Tables are called by the field's words: request windows, request aliases, rate limits, circuit breakers."""

from migrations.raw import execute

revision = "0035"
down_revision = "0034"

# Grants, policies and whoever refers to it stay with a table that is renamed. What bears its name is renamed with it,
# whichever constraints this version of PostgreSQL keeps as such.
TABLES = """
ALTER TABLE shared.recent RENAME TO request_windows;
ALTER TABLE shared.collapsed RENAME TO request_aliases;
ALTER INDEX shared.collapsed_into RENAME TO request_aliases_into;
ALTER TABLE messenger.rates RENAME TO rate_limits;
ALTER INDEX messenger.rates_free RENAME TO rate_limits_free;
ALTER TABLE messenger.pauses RENAME TO circuit_breakers;
DO $$
DECLARE one record;
BEGIN
    FOR one IN SELECT conrelid::regclass AS place, conname, renamed.new || substr(conname, length(old) + 1) AS new
        FROM (VALUES ('recent', 'shared', 'request_windows'), ('collapsed', 'shared', 'request_aliases'),
            ('rates', 'messenger', 'rate_limits'),
            ('pauses', 'messenger', 'circuit_breakers')) renamed (old, schema, new)
            JOIN pg_constraint ON conrelid = format('%I.%I', schema, renamed.new)::regclass
        WHERE starts_with(conname, old || '_')
    LOOP
        EXECUTE format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', one.place, one.conname, one.new);
    END LOOP;
END $$;
"""

VIEWS = """
-- It holds every word of the owner that is kept, however long ago.
ALTER VIEW shared.decided RENAME TO owner_decisions;
-- Whoever owns the house was told that these two may be queried.
CREATE VIEW messenger.rates WITH (security_invoker) AS
    SELECT key, burst, every, free_at, told_at FROM messenger.rate_limits;
CREATE VIEW messenger.pauses WITH (security_invoker) AS
    SELECT channel, reason, detail, failures, first_failed_at, since, next_probe_at, probes, told_at, waiting
    FROM messenger.circuit_breakers;
GRANT SELECT ON messenger.rates, messenger.pauses TO butlers_group_owner;
"""


def upgrade() -> None:
    """Rename four tables and a view, and leave a view to read under each name that was public."""
    execute(TABLES)
    execute(VIEWS)
