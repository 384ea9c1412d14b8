"""keys list, rotate, retire: the keys by which each daemon proves itself, and replacing them."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import asyncpg
import typer

from butlers import fleet
from butlers.cli.options import FleetOption, HomeOption, JsonOption
from butlers.cli.terminal import as_owner, instant, owner_id, say, say_json, settings_of, table
from butlers.daemon import discovery
from butlers.setup import logins, migrate
from shared.auth import keystore
from shared.auth.keypairs import fingerprint, generate_key, public_key
from shared.config.settings import Settings
from shared.db.dsn import admin_dsn, trouble
from shared.db.pool import LOST, Connection
from shared.errors import InvalidInput, Misconfigured, Unavailable
from shared.storage import keyring, pending_actions, questions, rules, schedules
from shared.storage.pending_actions import Event

app = typer.Typer(help="Daemon keys.", no_args_is_help=True)
NowOption = Annotated[bool, typer.Option("--now", help="Invalidate the old key at once, for example if it was stolen.")]
GoneOption = Annotated[
    bool, typer.Option("--gone", help="The butler is gone for good: end its keys, login, client tokens and rules.")
]
NameArgument = Annotated[str, typer.Argument(help="A daemon's name, `owner` for the command line, or `up`.")]


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="keys")


@app.command("list")
def list_all(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List all public keys, current and retired, and which are stored here."""
    settings = settings_of(None, home_folder)

    async def read() -> list[dict[str, object]]:
        async with as_owner(settings) as connection:
            rows = await keyring.every(connection)
        return [
            {
                "name": row["name"],
                "fingerprint": fingerprint(row["public_key"]),
                "public_key": row["public_key"],
                "added_at": instant(row["added_at"]),
                "retired_at": instant(row["retired_at"]) if row["retired_at"] else None,
                "on_file": row["public_key"] in keystore.public_keys(settings.home, row["name"])[:1],
            }
            for row in rows
        ]

    rows = asyncio.run(read())
    if as_json:
        say_json({"keys": rows})
        return
    cells = [[r["name"], r["fingerprint"], r["added_at"], r["retired_at"] or "", _yes(r["on_file"])] for r in rows]
    table(("name", "key", "added", "retired", "on file"), cells)


def _yes(value: object) -> str:
    return "yes" if value else "no"


@app.command()
def rotate(
    name: NameArgument,
    now: NowOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Give a daemon a new key and database password; the old key stays valid until you retire it."""
    settings = settings_of(None, home_folder)
    _demand_keys(settings, name)
    asyncio.run(_rotate(settings, name, now=now))
    password = " and a new password for the database" if keystore.read(settings.home, name).has_login else ""
    say(f"{name} has a new key{password}, in {keystore.folder(settings.home, name)}.")
    if name == keystore.UP:
        say("Restart `butlers up` when convenient.")
    elif name == keystore.OWNER:
        say(
            "Older client tokens are no longer valid; create new ones with `butlers token NAME`."
            if now
            else "Older client tokens stay valid until `butlers keys retire owner`; create new ones first."
        )
    elif now:
        say(f"Only the new key is valid. Restart {name} now: until then other daemons reject it.")
    else:
        say(f"Both keys are valid. Restart {name}, then run `butlers keys retire {name}`.")


@app.command()
def retire(
    name: NameArgument,
    gone: GoneOption = False,  # noqa: FBT002  # typer's way
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Retire all keys of a daemon except the one on file; with --gone, everything of a butler."""
    settings = settings_of(fleet_folder, home_folder)
    if gone:
        _demand_gone(settings, name)
        for line in asyncio.run(_take_all(settings, name, is_named=fleet_folder is not None)):
            say(line)
        return
    _demand_keys(settings, name)
    if name == keystore.UP:
        raise InvalidInput("`up` has only a database password, no key.", "Use `butlers keys rotate up`.")

    async def write() -> int:
        async with _as_admin(settings) as connection, connection.transaction():
            return await _retire(connection, settings, name)

    count = asyncio.run(write())
    say("There was no other key." if count == 0 else f"Retired: {count}. It is rejected within seconds.")


def _demand_keys(settings: Settings, name: str) -> None:
    """Raise InvalidInput if no keys of that name lie here."""
    folder = settings.home / "keys"
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if name not in names:
        raise InvalidInput(f"There are no keys of `{name}` in {folder}.", f"Choose from: {', '.join(names) or 'none'}.")


def _demand_gone(settings: Settings, name: str) -> None:
    """Raise InvalidInput for a part of the house, and for a butler that still has its folder in the fleet."""
    if name in fleet.RESERVED:
        raise InvalidInput(f"`{name}` is built in and cannot be retired as gone.", "Leave out --gone.")
    if name in {entry.name for entry in fleet.load(settings.fleet, settings.home)}:
        raise InvalidInput(f"{name} still has its folder in the fleet.", "Remove the folder first.")


async def _take_all(settings: Settings, name: str, *, is_named: bool) -> list[str]:
    """Take from a butler all that counts in its name, its login, and what waits for it; return what that was."""
    dsn = admin_dsn(settings)
    async with _as_admin(settings) as connection:
        # A fleet that was not named looks like one without this butler. Where it was, nobody keeps a name by using it.
        if not is_named and await discovery.is_up(connection, name):
            raise InvalidInput(f"{name} is still running.", "Stop it first, or point --fleet to your fleet.")
        async with connection.transaction():
            keys = await _retire_all_but(connection, name, "")
            tokens = await discovery.revoke_all(connection, name)
            made = [row["id"] for row in await rules.list_rules(connection) if row["origin_butler"] == name]
            ended = [rule for rule in made if await rules.revoke(connection, rule, await owner_id(connection))]
        async with logins.shut_out(connection, dsn, name):
            closed = await logins.close_login(connection, dsn, name)
            if closed:
                await pending_actions.record(connection, Event("login_closed", keystore.OWNER), name=name)
        waited = await migrate.end_waiting(connection, name)
        timed = await schedules.forget_all(connection, name)
        async with connection.transaction():
            asked = await questions.withdraw_all(connection, name)
    login = "; its login is closed" if closed else ""
    to_come = [f"What {name} had set itself for a time does not come any more: {', '.join(timed)}."] if timed else []
    withdrawn = [f"Questions of {name} that waited for your answer and are withdrawn: {asked}."] if asked else []
    said = f"Ended for {name}: keys {keys}, client tokens {tokens}, rules {len(ended)}{login}."
    return [said, *waited, *to_come, *withdrawn]


@asynccontextmanager
async def _as_admin(settings: Settings) -> AsyncIterator[Connection]:
    """Connect by the login that makes the others."""
    connection = await migrate.connect(admin_dsn(settings))
    try:
        await migrate.demand_schema(connection)
        yield connection
    except asyncpg.InsufficientPrivilegeError as refused:
        raise Misconfigured(
            f"The login of DATABASE_URL is not allowed to do this: {trouble(refused)}.",
            "Run the command again with the login that ran `butlers migrate`.",
        ) from None
    except logins.CONTESTED:
        raise Unavailable(
            f"The login for the database {logins.CHANGES_ITSELF}.", "Run `butlers keys rotate NAME --now`."
        ) from None
    except LOST as lost:
        raise Unavailable(
            f"The connection to the database was lost: {trouble(lost)}.", "Run the command again."
        ) from None
    finally:
        await connection.close()


async def _rotate(settings: Settings, name: str, *, now: bool) -> None:
    """Replace a key and password; wherever that is cut off, what is on file counts, or a second run makes it so.

    The new key counts before it lies on file. The password lies on file a moment before it counts: a login that is cut
    off in between does not open until a second run, or until `butlers migrate`.
    """
    where, (pem, public) = settings.home, generate_key()
    async with _as_admin(settings) as connection:
        # Refuse a login that may not set a password, before replacing anything.
        await logins.one_role(connection, admin_dsn(settings))
        if name != keystore.UP:
            await keyring.add_key(connection, name, public)
        keystore.replace_key(where, name, pem)
        async with connection.transaction():
            await _record(connection, "key_rotated", name, public)
            if now and name != keystore.UP:
                await _retire(connection, settings, name)
        if keystore.read(where, name).has_login:
            await _replace_password(connection, settings, name, now=now)


async def _replace_password(connection: Connection, settings: Settings, name: str, *, now: bool) -> None:
    """Put a new password on file and in the database; if the database refuses it, put the former back on file."""
    where, dsn = settings.home, admin_dsn(settings)
    former = keystore.read(where, name).password
    keystore.replace_password(where, name, secrets.token_urlsafe(32))
    try:
        async with logins.shut_out(connection, dsn, name) if now else connection.transaction():
            await logins.ensure_login(connection, where, dsn, name)
    except (asyncpg.PostgresError, *LOST):
        keystore.replace_password(where, name, former)
        raise


async def _retire(connection: Connection, settings: Settings, name: str) -> int:
    kept = public_key(keystore.read(settings.home, name).private_pem)
    await keyring.add_key(connection, name, kept)
    return await _retire_all_but(connection, name, kept)


async def _retire_all_but(connection: Connection, name: str, kept: str) -> int:
    gone = await keyring.retire_others(connection, name, kept)
    for public in gone:
        await _record(connection, "key_retired", name, public)
    return len(gone)


async def _record(connection: Connection, what: str, name: str, public: str) -> None:
    await pending_actions.record(connection, Event(what, keystore.OWNER), name=name, key=fingerprint(public))
