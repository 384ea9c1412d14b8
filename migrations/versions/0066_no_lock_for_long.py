"""No lock for long: who moves messages ends what a butler's login leaves open, and no card waits for a butler's row."""

from migrations.raw import execute

revision = "0066"
down_revision = "0065"

# A login may set its own times, so something else must end what it holds. NULL where the owner of the function may
# neither see nor end the sessions of others. `butlers up` acts for all by a login that is in every group, and a
# superuser is in every group too: neither is a butler's.
WATCHDOG = """
CREATE FUNCTION shared.end_transactions(longest interval) RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT (pg_has_role('pg_read_all_stats', 'USAGE') AND pg_has_role('pg_signal_backend', 'USAGE')) THEN
        RETURN NULL;
    END IF;
    -- Whom to end is found out first: in one condition with the rest, the ending might be done before it is asked whose
    -- session it is.
    RETURN ARRAY(WITH old AS MATERIALIZED (
        SELECT a.pid, r.rolname::text AS login FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid
        WHERE a.datname = current_database() AND a.backend_type = 'client backend'
            AND a.xact_start < clock_timestamp() - longest
            AND pg_has_role(r.oid, 'butlers_group_butler', 'MEMBER')
            AND NOT pg_has_role(r.oid, 'butlers_group_switchboard', 'MEMBER')
            AND NOT pg_has_role(r.oid, 'butlers_group_messenger', 'MEMBER')
            AND NOT pg_has_role(r.oid, 'butlers_group_console', 'MEMBER')
            AND NOT pg_has_role(r.oid, 'butlers_group_owner', 'MEMBER'))
        SELECT login FROM old WHERE pg_terminate_backend(pid));
END $$;
REVOKE ALL ON FUNCTION shared.end_transactions(interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shared.end_transactions(interval) TO butlers_group_messenger;
"""

# To check such a key is to wait for whoever holds the row it names, which is a butler's. The purge removes what hangs
# on an action before the action itself, by its own statements.
CARDS = """
ALTER TABLE messenger.deliveries DROP CONSTRAINT IF EXISTS deliveries_action_id_fkey;
ALTER TABLE messenger.digest_items DROP CONSTRAINT IF EXISTS digest_items_action_id_fkey;
"""


def upgrade() -> None:
    """Create `shared.end_transactions`, and let cards name actions without a key."""
    execute(WATCHDOG)
    execute(CARDS)
