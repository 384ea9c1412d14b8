"""up, run, init, migrate: commands that serve, or prepare serving."""

import asyncio
import gc
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers import fleet
from butlers.cli.fleet import checked
from butlers.cli.options import FleetOption, HomeOption
from butlers.cli.startup import SIGNALS, Stop, in_a_copy
from butlers.cli.terminal import MESSENGER, say, settings_of
from butlers.daemon import sockets
from butlers.setup import logins, ports
from butlers.setup.scaffold import scaffold
from shared.auth import keystore
from shared.channels import CHANNELS, realms
from shared.config.settings import DEFAULT_HOME, Secret, Settings, current
from shared.db.dsn import DATABASE, admin_dsn, dsn_as, is_embedded
from shared.errors import InvalidInput, Misconfigured
from shared.home_folder import LOGS
from shared.postgres import server as postgres
from shared.postgres.files import find_data

if TYPE_CHECKING:
    from butlers.daemon.process import Served
    from butlers.setup.chain import Chain

PortsOption = Annotated[
    int | None, typer.Option("--port-base", min=1024, max=65400, help="The first port (BUTLERS_PORT_BASE).")
]


def add_to(app: typer.Typer) -> None:
    """Put these commands on the command line."""
    for command in (up, run, init, migrate):
        app.command()(command)


def up(
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
    port_base: PortsOption = None,
    moved: Annotated[bool, typer.Option("--moved", help="The home was moved here, and is used nowhere else.")] = False,  # noqa: FBT002
) -> None:
    """Start everything in one process: database, migrations, all daemons and the sandbox."""
    from butlers.modules import loader  # noqa: PLC0415
    from butlers.sessions.settings import demand_setups  # noqa: PLC0415

    settings = _with_ports(settings_of(fleet_folder, home_folder, makes=True), port_base)
    if settings.fleet is not None and fleet_folder is None and current().fleet is None:
        say(f"The fleet is {settings.fleet}, as last time. Choose another with --fleet.")
    entries = fleet.load(settings.fleet, settings.home)
    chains = loader.chains(entries)
    demand_setups(entries)
    sockets.demand_ready(settings, together=True)
    _demand_free_ports(settings, [entry.name for entry in entries])
    stop = Stop()
    if not is_embedded(settings):
        dsn = admin_dsn(settings)
        _import_servers()
        checked(settings)
        _up(settings, dsn, entries, chains, stop)
        return
    with _embedded(settings.home, moved=moved) as starting:
        _import_servers()
        stop.look()
        checked(settings)
        _up(settings, starting.wait().dsn_of(DATABASE), entries, chains, stop)


@contextmanager
def _embedded(where: Path, *, moved: bool) -> Iterator[postgres.Starting]:
    """Start the server, and stop it at the end with its data whole, whenever and however we are interrupted."""
    starting = postgres.begin(where, exclusive=True, moved=moved)
    try:
        yield starting
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        postgres.stop(starting.wait())


def _demand_free_ports(settings: Settings, butlers: Sequence[str]) -> None:
    """Raise Misconfigured for a port that is taken, before anything is made.

    If another `up` has this home, say nothing of its ports: that it has the home is the better answer.
    """
    places = ports.places(settings.home, butlers)
    wanted = [*sockets.OFFSETS.values(), *(sockets.FIRST_BUTLER + places[name] for name in butlers)]
    if _needs_sandbox(settings):
        wanted += [sockets.SANDBOX_SMTP, sockets.SANDBOX_IMAP]
    else:
        wanted.remove(sockets.OFFSETS["sandbox"])
    try:
        sockets.demand_free(settings.host, [settings.port_base + offset for offset in wanted])
    except Misconfigured:
        if settings.database_url is not None or postgres.running(settings.home) is None:
            raise


def _with_ports(settings: Settings, base: int | None) -> Settings:
    """Return the settings with the ports that the command line names, if it does."""
    return settings if base is None else replace(settings, port_base=base)


def _import_servers() -> None:
    """Import the servers, which takes two seconds, while the database starts.

    Nobody looks for garbage meanwhile, nor among them afterwards: what is imported stays.
    """
    gc.disable()
    import butlers.console.app  # noqa: PLC0415  # beside the start of the database
    import butlers.daemon.app  # noqa: PLC0415
    import butlers.daemon.host  # noqa: PLC0415, F401

    for name in ("messenger.daemon", "switchboard.daemon", "messenger.sandbox.app"):
        __import__(name)
    gc.freeze()
    gc.enable()


def _up(settings: Settings, dsn: str, entries: Sequence[fleet.Entry], chains: Sequence["Chain"], stop: Stop) -> None:
    from butlers.cli.postgres_supervisor import keep_serving  # noqa: PLC0415
    from butlers.cli.reload import noted  # noqa: PLC0415
    from butlers.daemon import host  # noqa: PLC0415
    from butlers.daemon.assembly import Plan  # noqa: PLC0415
    from butlers.setup import migrate  # noqa: PLC0415

    async def prepare() -> None:
        if settings.database_url is None:
            await migrate.ensure_database(dsn)
        _say_all(await migrate.migrate(settings, dsn, entries, chains))
        sys.stdout.flush()

    stop.look()
    in_a_copy(lambda: asyncio.run(stop.run(prepare())), stop)
    _log(settings, "up")
    names = ["sandbox"] if _needs_sandbox(settings) else []
    names = ["switchboard", "messenger", "console", *names, *(entry.name for entry in entries)]

    async def ready(served: "Sequence[Served]") -> None:
        stop.look()  # it may have come before the host listened for it
        await _tell(settings, dsn, served)

    beside = [partial(keep_serving, settings.home)] if settings.database_url is None else []
    plan = Plan(settings, dsn, entries, names, together=True, whole=True)
    host.run_plan(plan, ready, beside, noted(settings.home, partial(_make_for, settings, dsn)))


async def _make_for(settings: Settings, dsn: str, entries: Sequence[fleet.Entry]) -> Sequence[str]:
    """Make what butlers that came while the process runs need; return a sentence for each module that failed."""
    from butlers.modules import loader  # noqa: PLC0415
    from butlers.setup import migrate  # noqa: PLC0415

    return await migrate.migrate(settings, dsn, entries, loader.chains(entries))


def _needs_sandbox(settings: Settings) -> bool:
    return settings.sandbox_url is None and realms.SANDBOX in realms.configured(settings).realms.values()


async def _tell(settings: Settings, dsn: str, served: "Sequence[Served]") -> None:
    """Print one line per URL, and a link to sign in."""
    from butlers.cli.sign_in import link_users  # noqa: PLC0415
    from butlers.console.storage.sessions import make_sign_in_link  # noqa: PLC0415
    from butlers.setup.migrate import connect  # noqa: PLC0415

    _say_all(_told(served))
    for what, where in _places(settings):
        say(f"{what:<14} {where}")
    urls = {one.daemon.name: one.url for one in served}
    for name, url in urls.items():
        page = name in {"console", "sandbox"}
        say(f"{name:<14} {url}{'' if page else '/mcp'}")
    connection = await connect(dsn_as(dsn, "console", keystore.read(settings.home, "console").password))
    try:
        unasked = await realms.console_only(connection)
        where = settings.public_url or urls["console"]
        link = await make_sign_in_link(connection, where, secrets.token_urlsafe(24), link_users(settings))
    finally:
        await connection.close()
    say(f"{'sign in':<14} {link}")
    for name, realm in realms.configured(settings).realms.items():
        credential = CHANNELS[name].credential
        if realm == realms.SANDBOX and credential is not None:
            say(f"{CHANNELS[name].label.capitalize()} messages go to the sandbox: {credential.variable} is not set.")
    for text, remedy in [*realms.in_clear(settings).values(), *filter(None, (realms.unvouched(settings), unasked))]:
        say(f"Warning: {text} {remedy}")
    say("All daemons share this one process; to separate them, run each with `butlers run NAME`.")
    if not keystore.read(settings.home, keystore.UP).has_login:
        say(logins.ONE_ROLE)
    say("Ready. Press Ctrl-C to stop.")
    sys.stdout.flush()


def _told(served: "Sequence[Served]") -> list[str]:
    """Return what the sandbox has to say at its start, if anything."""
    apps = [one.daemon.app for one in served if one.daemon.kind == "sandbox"]
    return [app.state.sandbox.told for app in apps if app.state.sandbox.told]  # type: ignore[attr-defined]  # Starlette's


def _places(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield what a person would look for elsewhere: a home in another folder, its fleet, and data outside the home."""
    if settings.home != Path.cwd() / DEFAULT_HOME:
        yield "home", str(settings.home)
    if settings.fleet is not None:
        yield "fleet", str(settings.fleet.resolve())
    data = find_data(settings.home) if settings.database_url is None else None
    if data is not None and not data.is_relative_to(settings.home):
        yield "data", str(data.parent)


def run(
    name: Annotated[
        str, typer.Argument(help="switchboard, messenger, console, sandbox, a butler, or fleet (all butlers).")
    ],
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Instead of its own.")] = None,
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Run one daemon, or all butlers in one process (needs `butlers migrate` first)."""
    from butlers.cli.reload import noted  # noqa: PLC0415
    from butlers.daemon import host  # noqa: PLC0415
    from butlers.daemon.assembly import Plan  # noqa: PLC0415
    from butlers.sessions.settings import demand_setups  # noqa: PLC0415

    settings = settings_of(
        fleet_folder, home_folder, makes=name == "sandbox", is_shared=True, credentials=name == MESSENGER
    )
    entries = fleet.load(settings.fleet, settings.home) if name in fleet.SERVICES else checked(settings)
    if name == fleet.WHOLE and port is not None:
        raise InvalidInput("--port is for one daemon, and each butler has its own port.", "Leave it out.")
    names = [entry.name for entry in entries] if name == fleet.WHOLE else [name]
    demand_setups([entry for entry in entries if entry.name in names])
    for one in names:
        sockets.default_port(settings, entries, one)
    dsn = "" if name == "sandbox" else admin_dsn(settings)
    _log(settings, name)

    async def ready(served: "Sequence[Served]") -> None:
        if name != "sandbox" and not keystore.read(settings.home, names[0]).has_login:
            say(logins.ONE_ROLE)
        _say_all(_told(served))
        for one in served:
            say(f"{one.daemon.name} is ready at {one.url}")
        sys.stdout.flush()

    plan = Plan(settings, dsn, entries, names, together=False, port=port, whole=name == fleet.WHOLE)
    host.run_plan(plan, ready, (), noted(settings.home))


def init(
    name: Annotated[str, typer.Argument(help="The new butler's name.")],
    fleet_folder: FleetOption = None,
) -> None:
    """Create the folder of a new butler."""
    settings = settings_of(fleet_folder, makes=True)
    made = scaffold(settings.fleet or Path("fleet"), name)
    say(f"Created {made}. Describe it in butler.toml and PERSONA.md, then run `butlers up --fleet {made.parent}`.")


def migrate(fleet_folder: FleetOption = None, home_folder: HomeOption = None, port_base: PortsOption = None) -> None:
    """Set up database, keys and owner; safe to repeat."""
    from butlers.modules import loader  # noqa: PLC0415
    from butlers.setup import migrate as steps  # noqa: PLC0415

    settings = _with_ports(settings_of(fleet_folder, home_folder, makes=True), port_base)
    entries = fleet.load(settings.fleet, settings.home)
    chains = loader.chains(entries)
    if not is_embedded(settings):
        _say_all(asyncio.run(steps.migrate(settings, admin_dsn(settings), entries, chains)))
        say("Database and keys are ready.")
        return
    server = postgres.start(settings.home)
    try:
        dsn = server.dsn_of(DATABASE)
        asyncio.run(steps.ensure_database(dsn))
        _say_all(asyncio.run(steps.migrate(settings, dsn, entries, chains)))
    finally:
        postgres.stop(server)
    say("Database and keys are ready. Start everything with `butlers up`.")


def _say_all(troubles: Sequence[str]) -> None:
    for one in troubles:
        say(one)


def _log(settings: Settings, name: str) -> None:
    from shared.telemetry import logs  # noqa: PLC0415

    found = [getattr(settings, field.name) for field in fields(settings)]
    secrets = [one for one in found if isinstance(one, Secret)]
    logs.configure(name, pretty=sys.stderr.isatty(), secrets=secrets, folder=settings.home / LOGS)
