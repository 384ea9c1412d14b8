"""What every table of a module has to have, read from the catalogue: its words bounded, and their end said."""

from collections.abc import Sequence
from typing import Final

import asyncpg

from butlers.butler import Module
from shared.db.pool import Record

COLUMNS: Final = """
SELECT c.relname AS table, a.attname AS column, EXISTS (SELECT FROM pg_constraint k
    WHERE k.conrelid = c.oid AND k.contype = 'c' AND a.attnum = ANY (k.conkey)) AS bounded
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = to_regnamespace($1) AND c.relkind IN ('r', 'p') AND c.relname <> 'schema_version'
    AND a.attnum > 0 AND NOT a.attisdropped
    AND a.atttypid IN ('text'::regtype, 'jsonb'::regtype, 'json'::regtype, 'bytea'::regtype, 'text[]'::regtype)
ORDER BY 1, 2
"""


async def complaints(connection: "asyncpg.Connection[Record]", module: Module) -> Sequence[str]:
    """A line for each column that can hold words without a bound, or without a line in the module's retention.

    The butler's own name needs no bound: row-level security keeps it to the login's.
    """
    listed = {(kept.table, column) for kept in module.retention for column in kept.columns.split()}
    found = []
    for row in await connection.fetch(COLUMNS, module.name):
        table, column = f"{module.name}.{row['table']}", row["column"]
        if (table, column) not in listed:
            found.append(f"{table}.{column} has no line in the module's retention")
        if not row["bounded"] and column != "butler":
            found.append(f"{table}.{column} has no CHECK that bounds it")
    return found
