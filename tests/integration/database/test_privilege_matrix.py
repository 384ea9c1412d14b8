"""Role by object by verb: the checked-in table is the catalogue's, and each of its cells is tried by that login."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import asyncpg
import pytest
import pytest_asyncio

from shared.auth import keystore
from shared.db.dsn import database_of, dsn_as, role_of
from tests.integration.house import House
from tests.privileges import attempts, matrix, rows
from tests.privileges.matrix import ROLES, VERBS, Rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

STRANGER: Final = "a_stranger_to_all_houses"
OURS: Final = r"SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
GROUPS: Final = """
SELECT substr(m.member::regrole::text, length($1) + 2),
    array_agg((roleid::regrole::text, inherit_option, set_option, admin_option)::text ORDER BY 1)
FROM pg_auth_members m WHERE starts_with(m.member::regrole::text, $1 || '_') GROUP BY m.member
"""
OPEN: Final = """
SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace::regnamespace::text = ANY ($1)
    AND (has_function_privilege('public', p.oid, 'EXECUTE') OR (prosecdef AND NOT EXISTS (
        SELECT FROM unnest(proconfig) c WHERE c IN ('search_path=pg_catalog, pg_temp', 'search_path=""'))))
UNION ALL SELECT c.oid::regclass::text FROM pg_class c, aclexplode(c.relacl) a
    WHERE a.grantee = 0 AND relnamespace::regnamespace::text = ANY ($1)
UNION ALL SELECT 'policy ' || polname || ' of ' || polrelid::regclass FROM pg_policy
    WHERE polcmd IN ('a', 'w', '*') AND (0 = ANY (polroles)
        OR (polcmd <> 'a' AND polwithcheck IS NULL AND pg_get_expr(polqual, polrelid) <> 'true'))
UNION ALL SELECT 'view ' || c.oid::regclass FROM pg_class c WHERE relkind = 'v'
    AND relnamespace::regnamespace::text = ANY ($1) AND pg_get_viewdef(c.oid) ~ 'shared.me|pg_has_role'
    AND NOT coalesce('security_barrier=true' = ANY (reloptions), false)
"""


@dataclass(slots=True)
class Tried:
    """A way in for each role of the matrix, and what of the tables can be written at all."""

    house: House
    logins: dict[str, str]
    connections: dict[str, Rows]
    writable: attempts.Writable


@asynccontextmanager
async def undone(connection: Rows) -> AsyncIterator[None]:
    """Whatever happens here has not happened."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tried(still_house: House) -> AsyncIterator[Tried]:
    """One connection per role, the stranger's by a login that may connect and nothing else."""
    house, sql = still_house, still_house.sql
    await sql.execute(f"CREATE ROLE {STRANGER} LOGIN PASSWORD 'w'")
    logins = {role: role_of(house.dsn, name) for role, name in ROLES.items() if name} | {"PUBLIC": "public"}
    connections: dict[str, Rows] = {}
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await asyncpg.connect(f"postgresql://{STRANGER}:w@{_server(house)}")
        await sql.execute(f"GRANT CONNECT ON DATABASE {database_of(house.dsn)} TO {STRANGER}")
        for role, name in ROLES.items():
            password = keystore.read(house.settings.home, name).password if name else "w"
            dsn = dsn_as(house.dsn, name, password) if name else f"postgresql://{STRANGER}:w@{_server(house)}"
            connections[role] = await asyncpg.connect(dsn)
        yield Tried(house, logins, connections, await attempts.writable(sql))
    finally:
        for connection in connections.values():
            await connection.close()
        await sql.execute(f"DROP OWNED BY {STRANGER}")
        await sql.execute(f"DROP ROLE {STRANGER}")


def _server(house: House) -> str:
    return house.dsn.rpartition("@")[2]


async def test_the_table_is_the_catalogue_s(tried: Tried) -> None:
    expected, found = matrix.read(), await matrix.granted(tried.house.sql, tried.logins)
    found |= await rows.found(tried.house.sql, tried.connections)
    wrong = [name for name in found if found[name] != expected.get(name)]
    gone = [name for name in expected if name not in found]
    paste = matrix.lines(found, wrong)
    assert (wrong, gone) == ([], []), f"{matrix.FILE.name}: take out {gone}, and judge each cell of\n{paste}"


@pytest.mark.parametrize("role", ROLES)
async def test_every_cell_is_as_the_table_says_when_tried(tried: Tried, role: str) -> None:
    expected, wrong, count = matrix.read(), list[str](), Counter[bool]()
    for name, cells in expected.items():
        if name.partition(" ")[0] not in VERBS or (role == "PUBLIC" and name == "database"):
            continue
        for verb, text in attempts.statements(tried.writable, name).items():
            allowed = await attempts.is_allowed(tried.connections[role], text)
            if name.startswith("columns") and not allowed and verb in cells[role]:
                wrong.append(f"{verb} {name}: denied")
            elif not name.startswith("columns") and allowed is not (verb in cells[role]):
                wrong.append(f"{verb} {name}: {'allowed' if allowed else 'denied'}, by {text}")
            elif name.startswith("columns") and verb not in cells[role]:
                wrong += await columns_allowed(tried, role, name, verb)
            count[allowed] += 1
    assert wrong == []
    assert sum(count.values()) > 200
    assert count[False] > 100


async def columns_allowed(tried: Tried, role: str, name: str, verb: str) -> list[str]:
    """Columns of an object that are not granted, and that can be used all the same, one by one."""
    table, _, named = name.removeprefix("columns ").partition(" (")
    if verb in matrix.read()[next(n for n in matrix.read() if n in {f"table {table}", f"view {table}"})][role]:
        return []
    found = []
    for column in named.rstrip(")").split(", "):
        text = attempts.of_relation(tried.writable, f"{table} ({column})").get(verb)
        if text and await attempts.is_allowed(tried.connections[role], text):
            found.append(f"{verb} {table} ({column}): allowed")
    return found


async def test_there_are_many_cells_and_some_of_each_kind() -> None:
    kinds = defaultdict[str, int](int)
    for name in matrix.read():
        kinds[name.partition(" ")[0]] += len(VERBS.get(name.partition(" ")[0], "1")) * len(ROLES)
    assert set(kinds) == {*VERBS, "rows"}
    assert sum(kinds.values()) > 1000


async def test_every_butler_is_what_one_of_them_is(tried: Tried) -> None:
    groups = {str(row[0]): row[1] for row in await tried.house.sql.fetch(GROUPS, database_of(tried.house.dsn))}
    assert groups["health"] == groups[matrix.BUTLER] != groups["switchboard"]


async def test_no_schema_is_left_out(tried: Tried) -> None:
    assert {row[0] for row in await tried.house.sql.fetch(OURS)} == set(matrix.SCHEMAS)


async def test_nothing_is_left_open_in_the_catalogue(tried: Tried) -> None:
    assert [str(row[0]) for row in await tried.house.sql.fetch(OPEN, list(matrix.SCHEMAS))] == []


async def test_who_somebody_is_is_the_role_they_are(tried: Tried) -> None:
    """A setting, which anybody can set, says it only where there is one role for all."""
    said = await tried.house.sql.fetchval("SELECT pg_get_functiondef('shared.me()'::regprocedure)")
    assert "CURRENT_USER" in said
    connection = tried.connections["butler"]
    async with undone(connection):
        await connection.execute("SELECT set_config('butlers.me', 'messenger', true)")
        assert await connection.fetchval("SELECT shared.me()") == matrix.BUTLER
