"""The steps that are done once: database, schema, roles, keys, owner. A second run changes nothing."""

import warnings
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from butlers import fleet
from butlers.setup import logins, owner, ports
from butlers.setup.chain import Chain, version
from shared import home_folder
from shared.auth import keystore
from shared.auth.keypairs import public_key
from shared.config.settings import Settings
from shared.config.timings import STANDARD
from shared.db import witness
from shared.db.dsn import database_of, place_of, trouble
from shared.db.pool import LOST, Connection, prepare_connection
from shared.db.proof import connect as connect_proved
from shared.errors import Misconfigured, Unavailable
from shared.storage import calls, keyring, restored

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection as Sync

VERSIONS: Final = Path(__file__).parents[2] / "migrations" / "versions"
CORE: Final = Chain(None, VERSIONS)
OLDEST_POSTGRES: Final = 15
# No butler can hold this lock: a login that may only read a table may not lock it in this mode. Before the table exists
# there is no butler, and an advisory lock serves.
LOCK: Final = "LOCK TABLE public.schema_version IN SHARE ROW EXCLUSIVE MODE"
LOCK_NOTHING_YET: Final = "SELECT pg_advisory_xact_lock(4214103)"
SCHEMA_VERSION: Final = """
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relname = 'schema_version')
"""
VERSION: Final = "SELECT version_num FROM public.schema_version"
DATABASE_EXISTS: Final = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
CREATE_DATABASE: Final = "SELECT format('CREATE DATABASE %I', $1::text)"
REFUSED: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


# Looked up once: a later program's files may come to lie in this one's place while it runs.
@cache
def head() -> str:
    """Return the newest revision this program knows."""
    return CORE.head


def names_of(entries: Sequence[fleet.Entry]) -> list[str]:
    """Return the name of every daemon that holds keys and a login, and of the command line."""
    return ["switchboard", "messenger", "console", keystore.OWNER, *(entry.name for entry in entries)]


async def connect(dsn: str) -> Connection:
    """Connect by this URL to a server of a version we know, or raise an error that says in one sentence why not."""
    where = place_of(dsn)
    try:
        connection = await connect_proved(dsn, 10)
    except REFUSED as refused:
        why = trouble(refused)
        raise Misconfigured(f"The database {where} refused the login: {why}.", "Correct DATABASE_URL.") from None
    except (*LOST, asyncpg.PostgresError, ValueError) as lost:
        why = trouble(lost)
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
    """Make the embedded server's database if it is missing."""
    parts = urlsplit(dsn)
    name = database_of(dsn)
    connection = await connect(urlunsplit((parts.scheme, parts.netloc, "/postgres", parts.query, "")))
    try:
        if not await connection.fetchval(DATABASE_EXISTS, name):
            await connection.execute(await connection.fetchval(CREATE_DATABASE, name))
    except asyncpg.DuplicateDatabaseError:
        pass
    finally:
        await connection.close()


async def schema_version(connection: Connection) -> str | None:
    """Return the revision the database is at, or None if it is empty."""
    if not await connection.fetchval(SCHEMA_VERSION):
        return None
    found: str | None = await connection.fetchval(VERSION)
    return found


async def demand_schema(connection: Connection) -> None:
    """Raise Misconfigured if the schema is not the one this program needs."""
    found = await schema_version(connection)
    demand_not_newer(found)
    if found != head():
        raise Misconfigured(
            f"The database's schema is at {found or 'nothing'}, this version needs {head()}.", "Run `butlers migrate`."
        )


def demand_not_newer(found: str | None) -> None:
    """Raise Misconfigured if a newer program made the schema: nothing here can undo its revisions."""
    if found is not None and found > head():
        raise Misconfigured(
            f"The database's schema is at {found}, which is newer than this version's {head()}.",
            "Start the version of Butlers that created it, or restore a backup.",
        )


def demand_version(major: int) -> None:
    """Raise Misconfigured if the server is too old."""
    if major < OLDEST_POSTGRES:
        raise Misconfigured(
            f"The database server is PostgreSQL {major}, which is too old.",
            f"Use PostgreSQL {OLDEST_POSTGRES} or newer.",
        )


async def migrate(
    settings: Settings, dsn: str, entries: Sequence[fleet.Entry], chains: Sequence[Chain] = ()
) -> list[str]:
    """Bring the database and BUTLERS_HOME to what this program, this fleet and its modules' `chains` need.

    Return a sentence for each module or login that failed, each butler that left sessions, each address not used.
    """
    connection = await connect(dsn)
    try:
        one_role = await logins.one_role(connection, dsn)
        found = await schema_version(connection)
        demand_not_newer(found)
        if found is not None:
            await _demand_no_other_home(connection, settings.home, names_of(entries))
        _ensure_home(settings, entries, login=one_role is None)
        if found != head():
            await _upgrade(dsn, CORE, found, one_role)
        troubles = [said for chain in chains if (said := await _upgrade_module(connection, dsn, chain, one_role))]
        async with connection.transaction():
            await connection.execute(LOCK)
            ports.note(settings.home, [entry.name for entry in entries])
            await logins.harden(connection)
            for name in names_of(entries):
                await keyring.add_key(connection, name, public_key(keystore.read(settings.home, name).private_pem))
            await _write_calls(connection, entries)
            troubles += await owner.ensure(connection, settings)
            troubles += await _end_left(connection, settings, names_of(entries))
            if one_role is None:
                troubles += await logins.ensure_logins(connection, settings.home, dsn, names_of(entries))
    except asyncpg.InsufficientPrivilegeError as refused:
        raise Misconfigured(
            f"The login of DATABASE_URL is not allowed to do this: {trouble(refused)}.",
            "Use the login that owns the database and may create roles.",
        ) from None
    finally:
        await connection.close()
    _remember(settings, None if settings.database_url is None else place_of(dsn))
    return troubles


def _ensure_home(settings: Settings, entries: Sequence[fleet.Entry], *, login: bool) -> None:
    """Write into the home before the schema is made, so that one that cannot be written is found first."""
    for name in (*names_of(entries), keystore.UP):
        keystore.ensure(settings.home, name, login=login)
    _remember(settings, home_folder.remembered(settings.home).get(home_folder.OUTSIDE))


async def _demand_no_other_home(connection: Connection, home: Path, names: Sequence[str]) -> None:
    """Raise Misconfigured if daemons of another home run on this database, whose logins would be taken from them."""
    keys = [key for name in names for key in keystore.public_keys(home, name)]
    if await keyring.serves_another_home(connection, keys, STANDARD.instance_counts):
        raise Misconfigured(
            "This database is in use: daemons with the keys of another BUTLERS_HOME run on it.",
            "Use that home, or another database. To move the installation to this home, stop those daemons, and try "
            "again half a minute later.",
        )


async def _write_calls(connection: Connection, entries: Sequence[fleet.Entry]) -> None:
    await calls.write(connection, {entry.name: entry.calls for entry in entries})
    await calls.write_default(connection, next((entry.name for entry in entries if entry.is_default), None))
    classifier = next((entry.name for entry in entries if entry.is_classifier), None)
    await calls.write_classifier(connection, classifier, {entry.name: entry.description for entry in entries})
    await calls.write_popups(connection, [entry.name for entry in entries if entry.has_desk])


async def _end_left(connection: Connection, settings: Settings, there: Sequence[str]) -> list[str]:
    """End what waits in a backup that was put back, or for butlers whose folder was removed; return what to say."""
    from shared.storage import session_list  # noqa: PLC0415  # it brings logs, which a client needs none of

    said = await restored.end_open(connection, witness.places(settings.home, "messenger", settings.witness))
    for butler in await session_list.left(connection, there, STANDARD.instance_counts):
        said += await end_waiting(connection, butler)
    await calls.forget_removed(connection, there, STANDARD.instance_counts)
    return said


async def end_waiting(connection: Connection, butler: str) -> list[str]:
    """End what waits for a butler that is not there any more; return what to say, nothing if nothing waited."""
    from shared.storage import session_list, sessions  # noqa: PLC0415  # they bring logs, which a client needs none of

    ended = await sessions.end_unrun(connection, butler, session_list.REMOVED, STANDARD.session_lease)
    if ended == 0:
        return []
    waited = f"{ended} session{'' if ended == 1 else 's'} that waited for it ended."
    untold = [one["untold"] for one in await sessions.untold(connection, butler)]
    return [f"{butler}: {said}" for said in (f"{session_list.REMOVED} {waited}", *untold)]


def _remember(settings: Settings, outside: str | None) -> None:
    """Keep in the home what later commands need, by the names of the settings, and where an outside database is.

    That comes first, so that its line can be removed by hand and the rest can still be read. It is written when all
    else is done, as a database that refused us is not the home's.
    """
    database = {home_folder.OUTSIDE: outside} if outside is not None else {}
    fleet_folder = {"BUTLERS_FLEET": str(settings.fleet.resolve())} if settings.fleet is not None else {}
    listening = {"BUTLERS_HOST": settings.host, "BUTLERS_PORT_BASE": str(settings.port_base)}
    home_folder.remember(settings.home, database | fleet_folder | listening)


async def _upgrade_module(connection: Connection, dsn: str, chain: Chain, one_role: str | None) -> str | None:
    """Run the missing revisions of a module; return a sentence if that fails."""
    found = await version(connection, chain)
    try:
        if found != chain.head:
            await _upgrade(dsn, chain, found, one_role)
    except Misconfigured as failed:
        return str(failed)
    except Exception as bug:  # noqa: BLE001  # code of others: the caller says it, and goes on
        return f"A revision of the module `{chain.module}` breaks: {type(bug).__name__}, {str(bug)[:200]!a}."
    return None


async def _upgrade(dsn: str, chain: Chain, found: str | None, one_role: str | None) -> None:
    """Run the missing revisions in one transaction; import alembic only here, where there is something to do."""
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util.exc import CommandError  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    # asyncpg reads the URL, so that what it understands of libpq's parameters holds here too.
    creator = partial(connect_proved, dsn, 10)
    engine = create_async_engine("postgresql+asyncpg://", async_creator=creator, poolclass=NullPool)

    def run(sync: "Sync") -> None:
        config = Config()
        config.set_main_option("script_location", str(VERSIONS.parent))
        config.set_main_option("path_separator", "os")
        config.set_main_option("version_locations", str(chain.versions))
        config.attributes["connection"] = sync
        config.attributes["module"] = chain.module
        if one_role is not None:
            config.attributes["one_role"] = one_role
        with warnings.catch_warnings(action="ignore"):  # what is wrong with a chain, its error says
            command.upgrade(config, "head")

    try:
        async with engine.begin() as connection:
            await connection.run_sync(_one_by_one)
            await connection.run_sync(run)
    except (SQLAlchemyError, CommandError, KeyError, asyncpg.PostgresError) as failed:
        why = trouble(_first_cause(failed))
        raise Misconfigured(
            f"The {chain.what} cannot be brought from {found or 'nothing'} to {chain.head}: {why}.",
            "Nothing was changed. Fix the cause, or restore a backup.",
        ) from None
    finally:
        await engine.dispose()


def _one_by_one(sync: "Sync") -> None:
    """Wait until no other process migrates; the table to lock may come into being meanwhile."""
    if not sync.exec_driver_sql(SCHEMA_VERSION).scalar():
        sync.exec_driver_sql(LOCK_NOTHING_YET)
    if sync.exec_driver_sql(SCHEMA_VERSION).scalar():
        sync.exec_driver_sql(LOCK)


def _first_cause(error: BaseException) -> BaseException:
    """Return the innermost error, which the layers between have wrapped."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
