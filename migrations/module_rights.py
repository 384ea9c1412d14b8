"""Who may do what in a module's schema: a butler everything with its own rows, and the owner reads.

A module's revisions grant nothing themselves. Each of its tables has a column `butler text NOT NULL`, and row-level
security keeps every butler to the rows that bear its name; there is no schema per butler.
"""

from typing import Final

from alembic import context
from sqlalchemy import text

from migrations.raw import execute

MAKE: Final = "SELECT format('CREATE SCHEMA IF NOT EXISTS %I', CAST(:module AS text))"
NAME: Final = "SELECT set_config('butlers.module', :module, true)"
RIGHTS: Final = """
DO $$
DECLARE
    module text := current_setting('butlers.module');
    made text;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO butlers_group_butler, butlers_group_console, butlers_group_owner',
        module);
    EXECUTE format('GRANT SELECT ON %I.schema_version TO butlers_group_butler, butlers_group_console,
        butlers_group_owner', module);
    FOR made IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = module::regnamespace
        AND c.relkind IN ('r', 'p') AND c.relname <> 'schema_version'
    LOOP
        IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = format('%I.%I', module, made)::regclass
            AND a.attname = 'butler' AND a.atttypid = 'text'::regtype AND a.attnotnull) THEN
            RAISE EXCEPTION 'table %.% has no column "butler text NOT NULL"', module, made;
        END IF;
        EXECUTE format('ALTER TABLE %I.%I ENABLE ROW LEVEL SECURITY', module, made);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO butlers_group_butler', module, made);
        EXECUTE format('GRANT SELECT ON %I.%I TO butlers_group_console, butlers_group_owner', module, made);
        EXECUTE format('DROP POLICY IF EXISTS own_rows ON %I.%I', module, made);
        EXECUTE format('DROP POLICY IF EXISTS readers ON %I.%I', module, made);
        EXECUTE format('CREATE POLICY own_rows ON %I.%I TO butlers_group_butler
            USING (butler = shared.me()) WITH CHECK (butler = shared.me())', module, made);
        EXECUTE format('CREATE POLICY readers ON %I.%I FOR SELECT TO butlers_group_console, butlers_group_owner
            USING (true)', module, made);
    END LOOP;
END $$;
"""


def make_schema(module: str) -> None:
    """Make the module's schema if there is none, and name the module to what follows in this transaction."""
    connection = context.config.attributes["connection"]
    connection.exec_driver_sql(connection.execute(text(MAKE), {"module": module}).scalar())
    connection.execute(text(NAME), {"module": module})


def grant() -> None:
    """Set the rights of every table the module has now."""
    execute(RIGHTS)
