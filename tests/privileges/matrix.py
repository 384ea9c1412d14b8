"""The matrix of privileges: the table in matrix.txt, and the same as the catalogue of a database has it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import asyncpg

FILE: Final = Path(__file__).with_name("matrix.txt")
BUTLER: Final = "greeter"
# The columns of the table, and by which login each is tried; `butler` is any of them, PUBLIC a stranger.
ROLES: Final = {
    "butler": BUTLER,
    "switchboard": "switchboard",
    "messenger": "messenger",
    "console": "console",
    "owner": "owner",
    "up": "up",
    "PUBLIC": "",
}
SCHEMAS: Final = ("shared", "switchboard", "messenger", "console", "public")
TABLE_VERBS: Final = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
COLUMN_VERBS: Final = ("select", "insert", "update", "references")
VERBS: Final = {
    "database": ("create", "temporary", "connect"),
    "role": ("inherit", "set", "admin"),
    "schema": ("create", "usage"),
    "table": TABLE_VERBS,
    "view": TABLE_VERBS,
    "columns": COLUMN_VERBS,
    "sequence": ("usage", "select", "update"),
    "function": ("execute",),
}
Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
# {object: {role: verbs}}; an object is `table shared.contacts`, `columns shared.request_windows (lineage)`, and so on.
# The login of a daemon is called as the daemon is: `role greeter`.
Matrix: TypeAlias = dict[str, dict[str, tuple[str, ...]]]

GRANTED: Final = """
WITH roles AS (SELECT * FROM unnest($1::text[], $2::text[]) AS r (role, login)),
relations AS (
    SELECT c.oid, CASE WHEN c.relkind IN ('v', 'm') THEN 'view' WHEN c.relkind = 'S' THEN 'sequence' ELSE 'table' END
        AS kind, n.nspname || '.' || c.relname AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY ($3) AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')),
cells AS (
    SELECT 'database' AS kind, '' AS name, role, verb,
        CASE WHEN login = 'public'
            THEN EXISTS (SELECT FROM pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
                WHERE d.datname = current_database() AND a.grantee = 0 AND lower(a.privilege_type) = verb)
            ELSE has_database_privilege(login, current_database(), verb) END AS granted
        FROM roles, unnest($4::text[]) verb
    UNION ALL SELECT 'schema', nspname, role, verb, has_schema_privilege(login, n.oid, verb)
        FROM roles, pg_namespace n, unnest($5::text[]) verb WHERE nspname = ANY ($3)
    UNION ALL SELECT kind, name, role, verb, has_table_privilege(login, r.oid, verb)
        FROM roles, relations r, unnest($6::text[]) verb WHERE kind <> 'sequence'
    UNION ALL SELECT kind, name, role, verb, has_sequence_privilege(login, r.oid, verb)
        FROM roles, relations r, unnest($7::text[]) verb WHERE kind = 'sequence'
    UNION ALL SELECT 'function', p.oid::regprocedure::text, role, 'execute',
            has_function_privilege(login, p.oid, 'execute')
        FROM roles, pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = ANY ($3)
    UNION ALL SELECT 'role', CASE WHEN starts_with(g.rolname, current_database() || '_')
            THEN substr(g.rolname, length(current_database()) + 2) ELSE g.rolname END, role, verb,
            CASE WHEN login = 'public' THEN false WHEN verb = 'inherit' THEN pg_has_role(login, g.oid, 'USAGE')
                WHEN verb = 'set' THEN pg_has_role(login, g.oid, 'SET')
                ELSE pg_has_role(login, g.oid, 'MEMBER WITH ADMIN OPTION') END
        FROM roles, pg_roles g, unnest($8::text[]) verb
        WHERE EXISTS (SELECT FROM roles r JOIN pg_roles l ON l.rolname = r.login
            WHERE l.oid <> g.oid AND pg_has_role(l.oid, g.oid, 'MEMBER')))
SELECT kind, name, role, array_agg(verb) FILTER (WHERE granted) AS verbs FROM cells GROUP BY kind, name, role
"""
# Only where the table as a whole is not granted.
COLUMNS: Final = """
SELECT n.nspname || '.' || c.relname AS name, a.attname AS attribute, r.role, verb
FROM unnest($1::text[], $2::text[]) AS r (role, login), unnest($4::text[]) verb, pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = ANY ($3) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped
    AND has_column_privilege(r.login, c.oid, a.attnum, verb) AND NOT has_table_privilege(r.login, c.oid, verb)
ORDER BY name, a.attnum
"""


def read(text: str | None = None) -> Matrix:
    """The checked-in table; lines that begin with # are for its readers."""
    lines = [line for line in (text or FILE.read_text(encoding="utf-8")).splitlines() if line and line[0] != "#"]
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert head[1:] == list(ROLES), head
    return {row[0]: {role: tuple(cell.split()) for role, cell in zip(ROLES, row[1:], strict=True)} for row in rows}


def lines(matrix: Matrix, names: Sequence[str]) -> str:
    """Rows of the file, ready to paste."""
    rows = [[name, *(" ".join(matrix[name][role]) or "-" for role in ROLES)] for name in names]
    return "\n".join(" | ".join(row).replace("| - ", "|  ").removesuffix("-").rstrip() for row in rows)


async def granted(connection: Rows, logins: Mapping[str, str]) -> Matrix:
    """The same from the catalogue, as effective for those logins by role of the table."""
    who = (list(logins), list(logins.values()))
    found: Matrix = {}
    kinds = [list(VERBS[kind]) for kind in ("database", "schema", "table", "sequence", "role")]
    for row in await connection.fetch(GRANTED, *who, list(SCHEMAS), *kinds):
        name = f"{row['kind']} {row['name']}".strip()
        order = VERBS[row["kind"]]
        found.setdefault(name, {})[row["role"]] = tuple(verb for verb in order if verb in (row["verbs"] or ()))
    for name, cells in _columns(await connection.fetch(COLUMNS, *who, list(SCHEMAS), list(COLUMN_VERBS))):
        found[name] = {role: tuple(verb for verb in COLUMN_VERBS if (role, verb) in cells) for role in ROLES}
    return {name: found[name] for name in sorted(found, key=_place)}


def _columns(rows: Sequence[asyncpg.Record]) -> Iterator[tuple[str, frozenset[tuple[str, str]]]]:
    """Columns of one table that are granted alike, in one object."""
    cells = defaultdict[tuple[str, str], set[tuple[str, str]]](set)
    for row in rows:
        cells[row["name"], row["attribute"]].add((row["role"], row["verb"]))
    alike = defaultdict[tuple[str, frozenset[tuple[str, str]]], list[str]](list)
    for (table, attribute), found in cells.items():
        alike[table, frozenset(found)].append(attribute)
    for (table, same), attributes in alike.items():
        yield f"columns {table} ({', '.join(attributes)})", same


def _place(name: str) -> tuple[bool, int, str, int, str]:
    """The database, roles, schemas, then each schema's tables with their columns, its sequences and functions."""
    kind, _, rest = name.partition(" ")
    order = ("table", "view", "columns", "sequence", "function")
    if kind not in order:
        return False, ("database", "role", "schema").index(kind), rest, 0, ""
    return True, 0, rest.partition(" ")[0].partition("(")[0], order.index(kind), rest
