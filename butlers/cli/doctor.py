"""doctor: what of this installation is in order, what is not, and what to do about it. It changes nothing."""

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

import typer

from butlers import fleet
from butlers.cli import brake, status
from butlers.cli.audit import unsealed_too_long
from butlers.cli.options import FleetOption, HomeOption, JsonOption
from butlers.cli.terminal import as_owner, say, say_json, settings_of
from butlers.daemon import discovery
from butlers.setup import logins, migrate
from shared import home_folder
from shared.auth import keystore
from shared.auth.keypairs import public_key
from shared.channels import CHANNELS, realms
from shared.config.settings import Settings
from shared.db import dsn
from shared.db.pool import Connection
from shared.errors import ButlersError
from shared.storage import brakes, contacts, keyring

NOT_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check: `ok`, a `warning` about what is intended but worth knowing, or `wrong`."""

    what: str
    result: Literal["ok", "warning", "wrong"]
    text: str
    remedy: str = ""


def add_to(app: typer.Typer) -> None:
    """Put the command on the command line."""
    app.command()(doctor)


def doctor(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Check the installation and say how to fix what is wrong; exit code 1 if anything is."""
    results = asyncio.run(_examine(settings_of(fleet_folder, home_folder)))
    if as_json:
        say_json({"results": [asdict(result) for result in results]})
    else:
        for one in results:
            say(f"{one.result:8} {one.what}: {one.text} {one.remedy}".rstrip())
    if any(result.result == "wrong" for result in results):
        raise typer.Exit(1)


async def _examine(settings: Settings) -> list[Result]:
    results = [*_keys(settings), *_network(settings)]
    try:
        async with as_owner(settings) as connection:
            results.append(Result("database", "ok", "It answers, and its schema matches this version."))
            results += [result async for result in _rows(connection, settings)]
    except ButlersError as wrong:
        results.append(Result("database", "wrong", wrong.message, wrong.remedy))
    return results


def _keys(settings: Settings) -> Iterator[Result]:
    """Check that each daemon's keys are there and that nobody else may read them."""
    if home_folder.is_open(settings.home):
        yield Result(
            "keys", "wrong", f"Other users can write to {settings.home}.", f"Run `chmod go-w {settings.home}`."
        )
    names = (*migrate.names_of(fleet.load(settings.fleet, settings.home)), keystore.UP)
    if not any(keystore.folder(settings.home, name).exists() for name in names if name != keystore.OWNER):
        # As in a container for commands alone, which the owner's key opens.
        names = (keystore.OWNER,)
    for name in names:
        where = keystore.folder(settings.home, name)
        try:
            keystore.read(settings.home, name)
        except ButlersError as wrong:
            yield Result("keys", "wrong", wrong.message, wrong.remedy)
            continue
        for path in (where, *where.glob("[!.]*")):  # the Messenger's drafts come and go
            if path.stat().st_mode & NOT_FOR_OTHERS:
                yield Result("keys", "wrong", f"Other users can read {path}.", f"Run `chmod -R go= {where}`.")
    yield Result("keys", "ok", f"Checked {len(names)} in {settings.home / 'keys'}.")


async def _channels(connection: Connection, settings: Settings) -> AsyncIterator[Result]:
    """Say where messages go, as the Messenger has set it up; this command may not see what it sees."""
    for channel, realm in (await realms.noted(connection)).items():
        credential = CHANNELS[channel].credential
        if realm != realms.SANDBOX:
            yield Result(channel, "ok", f"Live, as {realm}.")
            continue
        remedy = f"Set {credential.variable} to go live." if credential else ""
        if realms.realm_of(settings, channel) != realms.SANDBOX:
            remedy = "It goes live when the Messenger is started again."
        yield Result(channel, "warning", "Messages go to the sandbox and reach nobody.", remedy)


def _network(settings: Settings) -> Iterator[Result]:
    if settings.allow_plaintext:
        text = "Daemons talk without encryption: anyone who can listen on that network can read their messages."
        yield Result(
            "network", "warning", text, "Set BUTLERS_TLS_CERT and BUTLERS_TLS_KEY unless you alone use that network."
        )
    if unvouched := realms.unvouched(settings):
        yield Result("email", "warning", *unvouched)
    if unaddressed := realms.unaddressed(realms.configured(settings)):
        yield Result("email", "wrong", *unaddressed)
    for channel, (text, remedy) in realms.in_clear(settings).items():
        yield Result(channel, "wrong", text, remedy)


async def _rows(connection: Connection, settings: Settings) -> AsyncIterator[Result]:
    async for result in _channels(connection, settings):
        yield result
    yield await _owner(connection, settings)
    async for result in _roles(connection, settings):
        yield result
    async for result in _watched(connection):
        yield result
    for one in await brakes.standing(connection):
        yield Result("brake", "warning", f"It is on: {brake.held(one)}.", "Lift it with `butlers brake off`.")
    expected = [name for name in migrate.names_of(fleet.load(settings.fleet, settings.home)) if name != keystore.OWNER]
    async for result in _keyring(connection, settings, expected):
        yield result
    async for result in _daemons(connection, expected):
        yield result


async def _daemons(connection: Connection, expected: Sequence[str]) -> AsyncIterator[Result]:
    """Check that the daemons are ready, and that none remarks what it cannot do, such as reading the mailbox."""
    rows = await discovery.daemons(connection)
    ready = {row["name"] for row in rows if row["ready"]}
    for name in expected:
        if name in ready:
            yield Result("daemon", "ok", f"{name} is ready.")
        else:
            yield Result("daemon", "wrong", f"{name} is not ready.", f"Run `butlers up`, or `butlers run {name}`.")
    for name, remark in await status.remarks(rows):
        yield Result(name, "wrong", remark)


async def _keyring(connection: Connection, settings: Settings, expected: Sequence[str]) -> AsyncIterator[Result]:
    """Check that the keys here are believed, and name each butler that is believed and has no folder.

    Another fleet on this database may have it, so nothing is done about that here.
    """
    counting = await keyring.counting(connection)
    for name in (*expected, keystore.OWNER):
        if (keystore.folder(settings.home, name) / "key.pem").exists():
            ours = public_key(keystore.read(settings.home, name).private_pem)
            if ours not in counting.get(name, ()):
                text = f"The database does not know the key of {name} stored here, so other daemons reject it."
                yield Result("keyring", "wrong", text, "Run `butlers migrate`, or correct BUTLERS_HOME.")
    for name in sorted(counting.keys() - {*expected, *fleet.RESERVED}):
        text = f"{name} has no folder in this fleet, but its key, login, tokens and rules are still valid."
        remedy = f"Point --fleet to it, or if it is gone for good, run `butlers keys retire {name} --gone`."
        yield Result("keyring", "warning", text, remedy)


async def _watched(connection: Connection) -> AsyncIterator[Result]:
    """Check that the owner is asked where it counts, and that the audit is being sealed."""
    if unasked := await realms.console_only(connection):
        yield Result("asking", "wrong", *unasked)
    if unsealed := await unsealed_too_long(connection):
        remedy = "If this lasts two minutes, check the Messenger's log and restart it."
        yield Result("audit", "wrong", unsealed, remedy)


async def _roles(connection: Connection, settings: Settings) -> AsyncIterator[Result]:
    """Check that the logins are what the home says, and that the server leaves nothing open that it could close."""
    entries = fleet.load(settings.fleet, settings.home)
    has_logins = keystore.read(settings.home, keystore.OWNER).has_login
    if not has_logins:
        yield Result("roles", "warning", logins.ONE_ROLE, logins.MOVING)
    for name in (*migrate.names_of(entries), keystore.UP) if has_logins else ():
        if (keystore.folder(settings.home, name) / "password").exists():
            password = keystore.read(settings.home, name).password
            if not await logins.opens(dsn.dsn_as(dsn.admin_dsn(settings), name, password)):
                text = f"The database login of {name} rejects the password stored here; it may have been changed."
                yield Result("roles", "wrong", text, "Run `butlers migrate` to set it again.")
    for text, remedy in await logins.left_open(connection, len(entries) if has_logins else 0):
        yield Result("roles", "warning", text, remedy)


async def _owner(connection: Connection, settings: Settings) -> Result:
    """Check that there is an owner who can be reached where messages really go."""
    owner = await contacts.owner(connection)
    if owner is None:
        return Result("owner", "wrong", "There is no owner.", "Run `butlers contacts add NAME --role owner`.")
    [row] = [row for row in await contacts.list_contacts(connection) if row["id"] == owner["id"]]
    entries = {entry["type"]: entry["value"] for entry in reversed(row["entries"])}  # the primary one comes first
    known = realms.configured(settings).realms
    is_live = any(realm != realms.SANDBOX for realm in known.values())
    for channel, realm in known.items():
        value = entries.get(channel)
        if value is None and is_live and realm == realms.SANDBOX:
            continue
        if value is None:
            remedy = f"Run `butlers contacts set {owner['id']} --{channel} VALUE`."
            return Result("owner", "wrong", f"{owner['name']} has no {channel} address.", remedy)
        if realm != realms.SANDBOX and value == CHANNELS[channel].sandbox_owner:
            remedy = f"Run `butlers contacts set {owner['id']} --{channel} VALUE --primary`."
            return Result(
                "owner", "wrong", f"The owner's {channel} address is the invented one of the sandbox.", remedy
            )
    reached = [one for one in known if one in entries and (known[one] != realms.SANDBOX or not is_live)]
    return Result("owner", "ok", f"{owner['name']} can be reached by {' and '.join(reached)}.")
