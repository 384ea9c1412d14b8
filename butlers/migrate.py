"""Everything that is done once: database, schema, roles, keys, realms, owner. A second run changes nothing."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from butlers import fleet
from butlers.console.password import has_password, write_password
from shared import home, identity, realms
from shared.auth import public_key
from shared.config import Settings
from shared.db import LOST, Connection, prepare_connection
from shared.errors import InvalidInput, Misconfigured, Unavailable

VERSIONS: Final = Path(__file__).parent.parent / "migrations" / "versions"
OLDEST_POSTGRES: Final = 15
GROUPS: Final = {
    "switchboard": ("butlers_group_switchboard", "butlers_group_butler"),
    "messenger": ("butlers_group_messenger", "butlers_group_butler"),
    "console": ("butlers_group_console",),
    home.OWNER: ("butlers_group_owner",),
}
LOCK: Final = "SELECT pg_advisory_xact_lock(4214103)"
SCHEMA_VERSION: Final = "SELECT to_regclass('public.schema_version') IS NOT NULL"
VERSION: Final = "SELECT version_num FROM public.schema_version"
ROLE_EXISTS: Final = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)"
ADD_KEY: Final = """
INSERT INTO shared.keyring (name, public_key) VALUES ($1, $2)
ON CONFLICT (name, public_key) DO UPDATE SET retired_at = NULL
"""
# Statements about roles take no parameters, so the server itself quotes what is put into them.
REVOKE_DATABASE: Final = "SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', $1::text)"
REVOKE_PUBLIC: Final = "REVOKE ALL ON SCHEMA public FROM PUBLIC"
DATABASE_EXISTS: Final = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
CREATE_DATABASE: Final = "SELECT format('CREATE DATABASE %I', $1::text)"
MAY_MAKE_ROLES: Final = "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
CREATE_LOGIN: Final = "SELECT format('CREATE ROLE %I LOGIN', $1::text)"
SET_LOGIN: Final = """
SELECT format('ALTER ROLE %I LOGIN CONNECTION LIMIT 60 %s PASSWORD %L', $1::text,
    CASE WHEN $3::boolean THEN 'INHERIT' ELSE 'NOINHERIT' END, $2::text)
"""
GRANT_CONNECT: Final = "SELECT format('GRANT CONNECT ON DATABASE %I TO %I', $1::text, $2::text)"
GRANT_ROLE: Final = "SELECT format('GRANT %I TO %I', $1::text, $2::text)"
LONGEST_ROLE: Final = 63
REFUSED: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


def head() -> str:
    """The newest revision this program knows."""
    return max(path.name[:4] for path in VERSIONS.glob("[0-9]*.py"))


def names_of(entries: Sequence[fleet.Entry]) -> list[str]:
    """Every daemon that holds keys and a login, the command line included."""
    return ["switchboard", "messenger", "console", home.OWNER, *(entry.name for entry in entries)]


async def connect(dsn: str) -> Connection:
    """One connection by this URL to a server of a version we know, or one sentence why not."""
    where = home.place_of(dsn)
    try:
        connection = await asyncpg.connect(dsn, timeout=10)
    except REFUSED as refused:
        why = home.trouble(refused)
        raise Misconfigured(f"The database {where} refused the login: {why}.", "Correct DATABASE_URL.") from None
    except (*LOST, asyncpg.PostgresError, ValueError) as lost:
        why = home.trouble(lost)
        raise Unavailable(
            f"The database {where} cannot be reached: {why}.", "Start it, or correct DATABASE_URL."
        ) from None
    try:
        demand_version(connection.get_server_version().major)
        await prepare_connection(connection)
    except BaseException:
        await connection.close()
        raise
    return connection


async def ensure_database(dsn: str) -> None:
    """Make the embedded server's database where it is missing."""
    parts = urlsplit(dsn)
    name = home.database_of(dsn)
    connection = await connect(urlunsplit((parts.scheme, parts.netloc, "/postgres", parts.query, "")))
    try:
        if not await connection.fetchval(DATABASE_EXISTS, name):
            await _do(connection, CREATE_DATABASE, name)
    except asyncpg.DuplicateDatabaseError:
        pass
    finally:
        await connection.close()


async def schema_version(connection: Connection) -> str | None:
    """The revision the database is at, or None for an empty one."""
    if not await connection.fetchval(SCHEMA_VERSION):
        return None
    found: str | None = await connection.fetchval(VERSION)
    return found


async def demand_schema(connection: Connection) -> None:
    """Refuse to work on a schema that is not this program's."""
    found = await schema_version(connection)
    demand_not_newer(found)
    if found != head():
        raise Misconfigured(
            f"The database's schema is at {found or 'nothing'}, this program needs {head()}.", "Run `butlers migrate`."
        )


def demand_not_newer(found: str | None) -> None:
    """Refuse a schema that a newer program made: nothing here knows the way back."""
    if found is not None and found > head():
        raise Misconfigured(
            f"The database's schema is at {found}, which is newer than this program's {head()}.",
            "Use the version of Butlers that made it, or restore a backup.",
        )


def demand_version(major: int) -> None:
    """Refuse a server that is too old."""
    if major < OLDEST_POSTGRES:
        raise Misconfigured(
            f"The database server is PostgreSQL {major}, which is too old.",
            f"Use PostgreSQL {OLDEST_POSTGRES} or newer.",
        )


async def _demand_power(connection: Connection, dsn: str) -> None:
    """Refuse a login that cannot make the others, before anything is made."""
    if not await connection.fetchval(MAY_MAKE_ROLES):
        raise Misconfigured(
            f"The login `{urlsplit(dsn).username or ''}` of DATABASE_URL may not create roles.",
            "Give it CREATEROLE, or use another login.",
        )


async def migrate(settings: Settings, dsn: str, entries: Sequence[fleet.Entry]) -> None:
    """Bring the database and BUTLERS_HOME to what this program and this fleet need."""
    connection = await connect(dsn)
    try:
        await _demand_power(connection, dsn)
        found = await schema_version(connection)
        demand_not_newer(found)
        for name in (*names_of(entries), home.UP):
            home.ensure(settings.home, name)  # a home that cannot be written is found out before the schema is made
        if found != head():
            await _upgrade(dsn, found)
        async with connection.transaction():
            await connection.execute(LOCK)
            await _harden(connection, home.database_of(dsn))
            for name in names_of(entries):
                await _ensure_daemon(connection, settings.home, dsn, name)
            await _ensure_up(connection, settings.home, dsn, names_of(entries))
            await realms.write_channels(connection, realms.configured(settings))
            await _ensure_owner(connection, settings)
    except asyncpg.InsufficientPrivilegeError as refused:
        raise Misconfigured(
            f"The login of DATABASE_URL may not do this: {home.trouble(refused)}.",
            "Use the login that owns the database and may create roles.",
        ) from None
    finally:
        await connection.close()
    _ensure_console_password(settings)


async def _upgrade(dsn: str, found: str | None) -> None:
    """Run the chain in one transaction; alembic is imported only where there is something to do."""
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util.exc import CommandError  # noqa: PLC0415
    from sqlalchemy.engine import Connection as Sync  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    # asyncpg reads the URL, so that what it understands of libpq's parameters holds here too.
    connect = partial(asyncpg.connect, dsn, timeout=10)
    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)

    def run(sync: Sync) -> None:
        config = Config()
        config.set_main_option("script_location", str(VERSIONS.parent))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = sync
        command.upgrade(config, "head")

    try:
        async with engine.begin() as connection:
            await connection.exec_driver_sql(LOCK)
            await connection.run_sync(run)
    except (SQLAlchemyError, CommandError, asyncpg.PostgresError) as failed:
        why = home.trouble(_first_cause(failed))
        raise Misconfigured(
            f"The database's schema cannot be brought from {found or 'nothing'} to {head()}: {why}.",
            "Nothing was changed; remove that cause, or restore a backup.",
        ) from None
    finally:
        await engine.dispose()


def _first_cause(error: BaseException) -> BaseException:
    """The error at the bottom, which the layers between have wrapped."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


async def _harden(connection: Connection, database: str) -> None:
    """What PostgreSQL gives to everybody and nobody here needs."""
    await _do(connection, REVOKE_DATABASE, database)
    await connection.execute(REVOKE_PUBLIC)


async def _do(connection: Connection, form: str, *names: object) -> None:
    """Run a statement that the server has put together and quoted."""
    await connection.execute(await connection.fetchval(form, *names))


async def _ensure_login(connection: Connection, login: tuple[str, str], database: str, *, inherit: bool) -> None:
    """A login is made once; its password follows the file, so that a restored home works."""
    role, password = login
    if len(role) > LONGEST_ROLE:
        raise Misconfigured(f"`{role}` is too long for a database role.", "Give the database a shorter name.")
    if not await connection.fetchval(ROLE_EXISTS, role):
        await _do(connection, CREATE_LOGIN, role)
    await _do(connection, SET_LOGIN, role, password, inherit)
    await _do(connection, GRANT_CONNECT, database, role)


async def _ensure_daemon(connection: Connection, where: Path, dsn: str, name: str) -> None:
    keys, role = home.ensure(where, name), home.role_of(dsn, name)
    await _ensure_login(connection, (role, keys.password), home.database_of(dsn), inherit=True)
    for group in GROUPS.get(name, ("butlers_group_butler",)):
        await _do(connection, GRANT_ROLE, group, role)
    await connection.execute(ADD_KEY, name, public_key(keys.private_pem))


async def _ensure_up(connection: Connection, where: Path, dsn: str, names: Sequence[str]) -> None:
    """The login of one-process mode: it may become each daemon and is nothing by itself."""
    keys, role = home.ensure(where, home.UP), home.role_of(dsn, home.UP)
    await _ensure_login(connection, (role, keys.password), home.database_of(dsn), inherit=False)
    for name in names:
        if name != home.OWNER:
            await _do(connection, GRANT_ROLE, home.role_of(dsn, name), role)


async def _ensure_owner(connection: Connection, settings: Settings) -> None:
    """The owner from the environment; on the sandbox one is invented, whom live channels refuse."""
    given = {"telegram": settings.owner_telegram, "email": settings.owner_email}
    found = await identity.owner(connection)
    if found is None:
        live = settings.telegram_token is not None or settings.smtp_url is not None
        if not any(given.values()) and not settings.owner_name and live:
            return
        contact_id = await identity.add_contact(connection, settings.owner_name or "Owner", ["owner"])
        if not any(given.values()) and not live:
            given = dict(realms.SANDBOX_OWNER)
    else:
        contact_id = found["id"]
    for kind, value in given.items():
        if value:
            if value != realms.SANDBOX_OWNER[kind]:
                await identity.forget(connection, contact_id, kind, realms.SANDBOX_OWNER[kind])
            try:
                await identity.set_identifier(connection, contact_id, kind, value)
            except InvalidInput as unfit:
                name = f"BUTLERS_OWNER_{kind.upper()}"
                raise Misconfigured(f"{name} does not fit: {unfit.message}", unfit.remedy) from None


def _ensure_console_password(settings: Settings) -> None:
    folder = home.folder(settings.home, "console")
    if settings.console_password is not None and not has_password(folder):
        write_password(folder, settings.console_password.reveal())
