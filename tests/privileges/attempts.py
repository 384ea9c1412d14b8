"""Each cell of the matrix as a statement that changes nothing, and whether a login gets through with it."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import asyncpg

from tests.privileges.matrix import SCHEMAS, Rows

# By table or view, the columns that can be written at all: what is generated cannot, nor what a view computes.
Writable: TypeAlias = Mapping[str, Sequence[str]]
WRITABLE: Final = """
SELECT table_schema || '.' || table_name AS name, array_agg(column_name::text) AS columns
FROM information_schema.columns WHERE table_schema = ANY ($1) AND is_updatable = 'YES' AND is_generated = 'NEVER'
    AND identity_generation IS DISTINCT FROM 'ALWAYS' GROUP BY 1
"""
NO_DOING: Final = "suppress_redundant_updates_trigger"
# Something to look for in each schema.
KNOWN: Final = {
    "shared": "contacts",
    "switchboard": "butlers",
    "messenger": "parts",
    "console": "sessions",
    "public": "schema_version",
}


async def writable(superuser: Rows) -> Writable:
    """The columns that whoever may can write."""
    return {row["name"]: row["columns"] for row in await superuser.fetch(WRITABLE, list(SCHEMAS))}


def statements(known: Writable, name: str) -> dict[str, str]:
    """By verb, for an object of the matrix.

    REFERENCES, and writing where nothing can be written, cannot be tried: a login that may make no table has none that
    could refer to ours. What a role lends its members is tried with each object.
    """
    kind, _, rest = name.partition(" ")
    if kind == "database":
        return {"create": "CREATE SCHEMA mine", "temporary": "CREATE TEMPORARY TABLE mine ()", "connect": "SELECT 1"}
    if kind == "role":
        called = f"SELECT rolname FROM pg_roles WHERE rolname IN ('{rest}', current_database() || '_{rest}')"
        return {"set": f"SELECT set_config('role', ({called}), true)"}
    if kind == "schema":
        return {"create": f"CREATE TABLE {rest}.mine ()", "usage": f"SELECT '{rest}.{KNOWN[rest]}'::regclass"}
    if kind == "sequence":
        return {"usage": f"SELECT nextval('{rest}')", "select": f"SELECT last_value FROM {rest}"}
    if kind == "function":
        arguments = [one for one in rest.partition("(")[2].rstrip(")").split(",") if one]
        called = f"{rest.partition('(')[0]}({', '.join(f'NULL::{one}' for one in arguments)})"
        return {"execute": f"SELECT {called}"}
    made = of_relation(known, rest)
    if kind == "view":
        made.pop("truncate", None)  # there is no such statement
    return made


def of_relation(known: Writable, rest: str) -> dict[str, str]:
    """The same for a table, a view, or some columns as in `shared.request_windows (lineage, first_at)`."""
    table, _, named = rest.partition(" (")
    columns = named.rstrip(")").split(", ") if named else []
    written = [one for one in known.get(table, ()) if not columns or one in columns]
    made = {"select": f"SELECT {', '.join(columns) or '*'} FROM {table} WHERE false"}
    if written:
        nothing = ", ".join("NULL" for _ in written)
        made["insert"] = f"INSERT INTO {table} ({', '.join(written)}) SELECT {nothing} WHERE false"
        made["update"] = f"UPDATE {table} SET {', '.join(f'{one} = NULL' for one in written)} WHERE false"
    if not columns:
        made["trigger"] = f"CREATE TRIGGER mine BEFORE UPDATE ON {table} EXECUTE FUNCTION {NO_DOING}()"
    if written and not columns:
        made |= {"delete": f"DELETE FROM {table} WHERE false", "truncate": f"TRUNCATE {table} CASCADE"}
    return made


async def is_allowed(connection: Rows, text: str) -> bool:
    """Whether the statement gets past the question of privilege; whatever it does is undone."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(text)
    except asyncpg.InsufficientPrivilegeError:
        return False
    except asyncpg.FeatureNotSupportedError:  # a trigger's function, which only triggers call
        return True
    finally:
        await transaction.rollback()
    return True
