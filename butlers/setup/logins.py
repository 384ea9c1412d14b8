"""The database's logins: one per daemon, with limits; what PostgreSQL gives to everybody; and the mode without logins.

If the login of DATABASE_URL may make roles, it gives each daemon a login of its own. If it may not, everything runs
under that one login: the database then knows the daemons only by the name they state (`shared.me()` reads the setting
`butlers.me`), and keeps none of them from anything. The body of that function says which mode a database was made for.
"""

import hmac
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import pbkdf2_hmac, sha256
from itertools import compress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg

from shared.auth import keystore
from shared.db.dsn import database_of, role_of
from shared.db.pool import Connection, wait_briefly
from shared.db.proof import connect
from shared.errors import Misconfigured

GROUPS: Final = {
    "switchboard": ("butlers_group_switchboard", "butlers_group_butler"),
    "messenger": ("butlers_group_messenger", "butlers_group_butler"),
    "console": ("butlers_group_console",),
    keystore.OWNER: ("butlers_group_owner",),
}
# Connections of one process (POOLS), and of all processes by one login (LIMITS): two processes of a daemon serve, four
# of the Messenger, and one more may be ending or starting.
POOLS: Final = {"switchboard": 12, "messenger": 24, "console": 8, keystore.UP: 24}
LIMITS: Final = {"switchboard": 40, "messenger": 125, "console": 25, keystore.OWNER: 20, keystore.UP: 75}
POOL_OF_A_BUTLER: Final = 5
LIMIT_OF_A_BUTLER: Final = 18
LONGEST_ROLE: Final = 63
ROUNDS: Final = 4096
# What becomes of a statement about a login that changes itself at the same moment.
CONTESTED: Final = (asyncpg.InternalServerError, asyncpg.LockNotAvailableError, asyncpg.UniqueViolationError)
CHANGES_ITSELF: Final = "is being changed by whatever is connected by it"
ONE_ROLE: Final = (
    "Everything runs under one database role: only the program, not the database, keeps a butler's process from "
    "approving, making rules, changing contacts or reading what others wrote."
)
MOVING: Final = "For logins give Butlers a fresh database, by a login with CREATEROLE; see docs/operations.md."

# `grants`: it may give the groups to others, so somebody meant it to use them. `named`: me() reads the setting.
POWER: Final = """
SELECT current_user::text AS login, rolsuper OR rolcreaterole AS makes,
    (SELECT count(*) = 5 FROM pg_roles g WHERE g.rolname LIKE 'butlers\\_group\\_%'
        AND pg_has_role(current_user, g.oid, 'USAGE WITH ADMIN OPTION')) AS grants,
    (SELECT nspowner::regrole::text = current_user::regrole::text FROM pg_namespace WHERE nspname = 'shared') AS owns,
    (SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'shared') AS owner,
    coalesce((SELECT pg_get_functiondef(p.oid) LIKE '%butlers.me%' FROM pg_proc p
        JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'shared' AND p.proname = 'me'), false) AS named
FROM pg_roles WHERE rolname = current_user
"""
ROLE_EXISTS: Final = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)"
# Statements about roles take no parameters, so the server itself quotes names and passwords.
CREATE_LOGIN: Final = "SELECT format('CREATE ROLE %I LOGIN', $1::text)"
SET_LOGIN: Final = """
SELECT format('ALTER ROLE %I LOGIN CONNECTION LIMIT %s %s PASSWORD %L', $1::text, $4::integer,
    CASE WHEN $3::boolean THEN 'INHERIT' ELSE 'NOINHERIT' END, $2::text)
"""
# Every login may set defaults of its own role, which outlast its password and its keys.
RESET_SETTINGS: Final = """
SELECT format('ALTER ROLE %1$I RESET ALL; ALTER ROLE %1$I IN DATABASE %2$I RESET ALL', $2::text, $1::text)
"""
# The defaults of a session. It may set other times itself, so these guard against mistakes. The last two it may not
# set: it fills the disk neither with temporary files nor with its own messages in the server's log, but for what ends
# its connections, which is logged with what it gave to begin them.
SET_TIMES: Final = """
SELECT string_agg(format('ALTER ROLE %I SET %s = %L', $1::text, name, value), '; ')
FROM (VALUES ('statement_timeout', '20s'), ('idle_in_transaction_session_timeout', '10s'), ('lock_timeout', '10s'),
    ('temp_file_limit', '256MB'), ('log_min_messages', 'fatal')) AS t (name, value)
WHERE name NOT IN ('temp_file_limit', 'log_min_messages')
    OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
"""
# The maker of a role may grant it to itself, but does not have it; without it, it may not end the role's connections.
TAKE_ROLE: Final = """
SELECT format('GRANT %I TO CURRENT_USER', $1::text)
    || CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN ' WITH INHERIT TRUE' ELSE '' END
WHERE NOT pg_has_role($1, 'USAGE')
"""
CAN_LOGIN: Final = "SELECT rolcanlogin FROM pg_roles WHERE rolname = $1"
CLOSE_LOGIN: Final = "SELECT format('ALTER ROLE %I NOLOGIN PASSWORD NULL', $1::text)"
# Whoever connects may wait on the way in for half an hour (post_auth_delay), past the question whether it may connect,
# and its lock is all that shows it. That does not say whose it is: others that begin at this moment connect again.
CONNECTED: Final = """
SELECT pid FROM pg_stat_activity WHERE usename = $1 AND pid <> pg_backend_pid()
UNION SELECT pid FROM pg_locks
WHERE locktype = 'object' AND classid = 'pg_database'::regclass AND mode = 'RowExclusiveLock' AND granted
    AND objid = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND pid NOT IN (SELECT pid FROM pg_stat_activity WHERE usename IS NOT NULL)
    AND (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
"""
END_SESSIONS: Final = "SELECT pg_terminate_backend(pid, 5000) FROM unnest($1::integer[]) AS pid"
STILL_CONNECTED: Final = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND pid = ANY ($2::integer[])"
GRANT_CONNECT: Final = "SELECT format('GRANT CONNECT ON DATABASE %I TO %I', $1::text, $2::text)"
REVOKE_CONNECT: Final = """
SELECT format('REVOKE CONNECT ON DATABASE %I FROM %I', $1::text, rolname) FROM pg_roles WHERE rolname = $2
"""
GRANT_ROLE: Final = "SELECT format('GRANT %I TO %I', $1::text, $2::text)"
# The group's rights without SET ROLE to it, as it is nobody (shared.me()); older servers cannot tell the two apart.
GRANT_GROUP: Final = """
SELECT format('GRANT %I TO %I', $1::text, $2::text)
    || CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN ' WITH INHERIT TRUE, SET FALSE'
        ELSE '' END
"""
# Connections that the embedded server reserves: whatever may end, see and send must get in, however many butlers'
# logins are in use.
RESERVED_FOR: Final = ("messenger", "console", keystore.OWNER, keystore.UP)
GRANT_RESERVED: Final = """
SELECT format('GRANT pg_use_reserved_connections TO %I WITH INHERIT TRUE, SET FALSE', $1::text) FROM pg_roles
WHERE rolname = current_user AND rolsuper AND current_setting('server_version_num')::integer >= 160000
"""
# Nobody of ours has anything to do in the databases that come with a server, where nothing is closed to a login. Where
# there are others, the server is not ours alone.
REVOKE_DATABASE: Final = """
SELECT string_agg(format('REVOKE ALL ON DATABASE %I FROM PUBLIC', datname), '; ') FROM pg_database
WHERE pg_has_role(datdba, 'USAGE') AND (datname = current_database()
    OR (datname IN ('postgres', 'template1') AND NOT EXISTS (SELECT FROM pg_database o
        WHERE o.datname NOT IN (current_database(), 'postgres', 'template0', 'template1'))))
"""
REVOKE_PUBLIC: Final = """
SELECT 'REVOKE ALL ON SCHEMA public FROM PUBLIC' FROM pg_namespace
WHERE nspname = 'public' AND pg_has_role(nspowner, 'USAGE')
"""
# Large objects lie outside of all tables, and messages of one's own in the log of all: by default anybody may fill the
# disk with them, and with advisory locks the room for the locks of all databases, so that nobody gets a lock, or a
# connection, any more.
REVOKE_FUNCTIONS: Final = """
SELECT string_agg(format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', oid::regprocedure), '; ') FROM pg_proc
WHERE pronamespace = 'pg_catalog'::regnamespace AND (proname LIKE 'lo\\_%'
    OR proname IN ('lowrite', 'loread', 'pg_logical_emit_message') OR proname ~ '^pg_(try_)?advisory_(xact_)?lock')
    AND has_function_privilege('public', oid, 'EXECUTE') AND pg_has_role(proowner, 'USAGE')
"""
# What belongs to the database's owner takes turns by such a lock: the bound on what waits to be routed.
GRANT_TURNS: Final = """
SELECT format('GRANT EXECUTE ON FUNCTION pg_advisory_xact_lock(bigint) TO %I', pg_get_userbyid(datdba))
FROM pg_database, pg_proc p
WHERE datname = current_database() AND p.oid = 'pg_advisory_xact_lock(bigint)'::regprocedure
    AND pg_has_role(proowner, 'USAGE')
"""
LEFT_TO_ALL: Final = """
SELECT EXISTS (SELECT FROM pg_database d, aclexplode(coalesce(datacl, acldefault('d', datdba))) a
        WHERE datname = current_database() AND a.grantee = 0) AS database,
    EXISTS (SELECT FROM pg_proc
        WHERE pronamespace = 'pg_catalog'::regnamespace
            AND proname IN ('lo_creat', 'pg_advisory_lock', 'pg_logical_emit_message')
            AND has_function_privilege('public', oid, 'EXECUTE')) AS functions,
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer AS places
"""


def pool_of(name: str) -> int:
    """Return how many connections the process of that login may have."""
    return POOLS.get(name, POOL_OF_A_BUTLER)


def limit_of(name: str) -> int:
    """Return how many connections all processes of that login may have."""
    return LIMITS.get(name, LIMIT_OF_A_BUTLER)


def verifier(role: str, password: str) -> str:
    """Return what the server keeps of a password (RFC 5803), so that no statement and no log holds the password itself.

    It is the same for the same password; a password is random and therefore serves as the source of the salt as well.
    """
    salt = sha256(f"{role}:{password}".encode()).digest()[:16]
    salted = pbkdf2_hmac("sha256", password.encode(), salt, ROUNDS)
    stored = sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    told = [b64encode(part).decode() for part in (salt, stored, hmac.digest(salted, b"Server Key", "sha256"))]
    return f"SCRAM-SHA-256${ROUNDS}:{told[0]}${told[1]}:{told[2]}"


async def one_role(connection: Connection, dsn: str) -> str | None:
    """Return the role everything runs under, or None if each daemon has a login; raise Misconfigured if neither can be.

    A database keeps the mode it was made in, even if its login may do more later: rows and rights do not change owner.
    """
    found = await connection.fetchrow(POWER)
    assert found is not None  # noqa: S101  # everybody who is connected is a role
    login: str = found["login"]
    if found["named"] and not found["owns"]:
        raise Misconfigured(
            f"This database was made to run under the one role `{found['owner']}`, and cannot be given logins later.",
            f"Use that role. {MOVING}",
        )
    if found["named"]:
        return login
    if found["makes"]:
        return None
    if found["owner"] is not None:
        raise Misconfigured(
            f"The login `{urlsplit(dsn).username or login}` of DATABASE_URL may not create roles, and this database's "
            "daemons have logins of their own.",
            "Give it CREATEROLE, or use another login.",
        )
    if found["grants"]:
        raise Misconfigured(
            f"The login `{login}` may give others the roles butlers_group_*, but it may not make the daemons' logins.",
            "Give it CREATEROLE, or take those roles from it, and everything runs under it alone.",
        )
    return login


async def demand_mode(connection: Connection, *, own_login: bool) -> None:
    """Raise Misconfigured if the keys are of the other mode: no empty password may open everything as an owner."""
    found = await connection.fetchrow(POWER)
    assert found is not None  # noqa: S101  # everybody who is connected is a role
    if found["named"] is own_login:
        wanted = "one role for all" if found["named"] else "a login for each daemon"
        raise Misconfigured(f"The database is made for {wanted}, and the keys here are not.", "Run `butlers migrate`.")


async def harden(connection: Connection) -> None:
    """Revoke what PostgreSQL gives to everybody and nobody here needs, as far as this login may."""
    for form in (REVOKE_DATABASE, REVOKE_PUBLIC, REVOKE_FUNCTIONS, GRANT_TURNS):
        await _do(connection, form)


async def left_open(connection: Connection, butlers: int) -> Iterator[tuple[str, str]]:
    """Return what the server leaves open to a daemon that turned hostile, each with the step that closes it."""
    found = await connection.fetchrow(LEFT_TO_ALL)
    assert found is not None  # noqa: S101  # one row by its form
    taken = butlers * LIMIT_OF_A_BUTLER + sum(POOLS[name] + 1 for name in ("switchboard", "messenger", "console"))
    return compress(
        [
            (
                "Every login of the server may connect to this database, or make temporary tables in it.",
                "Let the database's owner run `butlers migrate`.",
            ),
            (
                "Whoever connects may fill the disk with large objects, and with locks the room for those of all.",
                "Let a superuser run `butlers migrate`, which revokes EXECUTE on those functions from PUBLIC.",
            ),
            (
                f"The server takes {found['places']} connections, and butlers may take so many that no other gets one.",
                f"Set its max_connections to {taken + 10} or more.",
            ),
        ],
        [found["database"], found["functions"], found["places"] < taken],
    )


async def opens(dsn: str) -> bool:
    """Return whether the login of this URL opens with its password; raise whatever else is in the way."""
    try:
        await (await connect(dsn, 10)).close()
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InsufficientPrivilegeError):
        return False
    return True


async def ensure_logins(connection: Connection, where: Path, dsn: str, names: Sequence[str]) -> list[str]:
    """Make a login for each daemon, and one for `up`, which may act as each of them and is nobody by itself.

    Return a sentence for each that is kept from it by whatever is connected by it: that stops nobody else.
    """
    said = []
    for name in (keystore.UP, *names):
        try:
            async with connection.transaction():
                await ensure_login(connection, where, dsn, name)
                if name != keystore.UP:
                    await _grant_roles(connection, dsn, name)
        except CONTESTED:
            said.append(f"{name}: its database login {CHANGES_ITSELF}. Run `butlers keys rotate {name} --now`.")
    for name in RESERVED_FOR:
        await _do(connection, GRANT_RESERVED, role_of(dsn, name))
    return said


async def _grant_roles(connection: Connection, dsn: str, name: str) -> None:
    for group in GROUPS.get(name, ("butlers_group_butler",)):
        await _do(connection, GRANT_GROUP, group, role_of(dsn, name))
    if name != keystore.OWNER:
        await _do(connection, GRANT_ROLE, role_of(dsn, name), role_of(dsn, keystore.UP))


async def ensure_login(connection: Connection, where: Path, dsn: str, name: str) -> None:
    """Make the login if it is missing; set its password to the one on file and its settings to ours.

    Whatever the login changed them to meanwhile is gone.
    """
    role, database = role_of(dsn, name), database_of(dsn)
    if len(role) > LONGEST_ROLE:
        raise Misconfigured(f"`{role}` is too long for a database role.", "Give the database a shorter name.")
    if role.startswith("butlers_group_"):
        raise Misconfigured(f"`{role}` is no name for a login: so begin those of groups.", "Name the butler otherwise.")
    password = keystore.read(where, name).password
    await wait_briefly(connection)
    if not await connection.fetchval(ROLE_EXISTS, role):
        await _do(connection, CREATE_LOGIN, role)
    await _do(connection, SET_LOGIN, role, verifier(role, password), name != keystore.UP, limit_of(name))
    await _do(connection, RESET_SETTINGS, database, role)
    await _do(connection, SET_TIMES, role)
    await _do(connection, GRANT_CONNECT, database, role)


async def close_login(connection: Connection, dsn: str, name: str) -> bool | None:
    """Take password and login from a daemon; return False if that was done before, and None if it has no role."""
    role = role_of(dsn, name)
    could: bool | None = await connection.fetchval(CAN_LOGIN, role)
    if could is not None:
        await wait_briefly(connection)
        await _do(connection, CLOSE_LOGIN, role)
    return could


@asynccontextmanager
async def shut_out(connection: Connection, dsn: str, name: str) -> AsyncIterator[None]:
    """Keep that login from connecting and end what is connected by it, then run the body in one transaction.

    INVARIANT: the way in is taken first, by what the login itself may not change: one connection that changes its own
    password again and again would keep everybody else from changing it.

    Raise Misconfigured afterwards if a connection stays.
    """
    await _do(connection, REVOKE_CONNECT, database_of(dsn), role_of(dsn, name))
    left = await end_sessions(connection, dsn, name)
    async with connection.transaction():
        yield
    if left:
        raise Misconfigured(
            f"What was done to {name} stands, but {left} of its connections to the database did not end.",
            f"Let a superuser end what is connected as `{role_of(dsn, name)}`.",
        )


async def end_sessions(connection: Connection, dsn: str, name: str) -> int:
    """End what is connected by that login; return how many connections stay."""
    role = role_of(dsn, name)
    pids = [row["pid"] for row in await connection.fetch(CONNECTED, role)]
    if not pids:
        return 0
    taken = connection.transaction()
    await taken.start()
    try:
        with suppress(asyncpg.InsufficientPrivilegeError):  # what stays connected is counted below
            await _do(connection, TAKE_ROLE, role)
            await connection.fetch(END_SESSIONS, pids)
    finally:
        # The role was taken for this alone.
        await taken.rollback()
    left: int = await connection.fetchval(STILL_CONNECTED, role, pids)
    return left


async def _do(connection: Connection, form: str, *names: object) -> None:
    """Run the statement that the server has put together and quoted, if it found anything to do."""
    statement: str | None = await connection.fetchval(form, *names)
    if statement is not None:
        await connection.execute(statement)
