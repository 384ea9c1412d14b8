"""up, run, init, migrate: commands that serve, or prepare serving."""

import asyncio
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers import fleet
from butlers.commands.desk import say, settings_of
from shared import home, postgres
from shared.config import Secret, Settings

if TYPE_CHECKING:
    from butlers.host import Served

FleetOption = Annotated[Path | None, typer.Option("--fleet", help="The folder with a folder per butler.")]
HomeOption = Annotated[Path | None, typer.Option("--home", help="Where data and keys are kept (BUTLERS_HOME).")]


def add_to(app: typer.Typer) -> None:
    """Put these commands on the command line."""
    for command in (up, run, init, migrate):
        app.command()(command)


def up(fleet_folder: FleetOption = None, home_folder: HomeOption = None) -> None:
    """Start the whole fleet in one process: database, migrations, every daemon and the sandbox."""
    settings = settings_of(fleet_folder, home_folder)
    entries = fleet.load(settings.fleet)
    embedded = settings.database_url is None
    starting = postgres.begin(settings.home, exclusive=True) if embedded else None
    try:
        _import_servers()
    finally:
        server = starting.wait() if starting is not None else None
    try:
        dsn = server.dsn_of(home.DATABASE) if server is not None else home.admin_dsn(settings)
        _up(settings, dsn, entries, embedded=embedded)
    finally:
        if server is not None:
            postgres.stop(server)


def _import_servers() -> None:
    """Two seconds of imports, while the database starts."""
    import butlers.console.app  # noqa: PLC0415
    import butlers.host  # noqa: PLC0415, F401

    for name in ("messenger.butler", "switchboard.butler", "messenger.sandbox.app"):
        __import__(name)


def _up(settings: Settings, dsn: str, entries: Sequence[fleet.Entry], *, embedded: bool) -> None:
    from butlers import host, migrate  # noqa: PLC0415
    from butlers.assemble import Plan  # noqa: PLC0415

    async def prepare() -> None:
        if embedded:
            await migrate.ensure_database(dsn)
        await migrate.migrate(settings, dsn, entries)

    asyncio.run(prepare())
    _log(settings, "up")
    names = ["sandbox"] if _needs_sandbox(settings) else []
    names = ["switchboard", "messenger", "console", *names, *(entry.name for entry in entries)]

    async def ready(served: "Sequence[Served]") -> None:
        await _tell(settings, dsn, served)

    host.run(Plan(settings, dsn, entries, names, together=True), ready)


def _needs_sandbox(settings: Settings) -> bool:
    return settings.sandbox_url is None and (settings.telegram_token is None or settings.smtp_url is None)


async def _tell(settings: Settings, dsn: str, served: "Sequence[Served]") -> None:
    """One line per URL, and a way in."""
    from butlers.console.sessions import make_sign_in_link  # noqa: PLC0415
    from butlers.migrate import connect  # noqa: PLC0415

    urls = {one.daemon.name: one.url for one in served}
    for name, url in urls.items():
        page = name in {"console", "sandbox"}
        say(f"{name:<14} {url}{'' if page else '/mcp'}")
    connection = await connect(home.dsn_as(dsn, "console", home.read(settings.home, "console").password))
    try:
        link = await make_sign_in_link(connection, urls["console"], secrets.token_urlsafe(24))
    finally:
        await connection.close()
    say(f"{'sign in':<14} {link}")
    if settings.telegram_token is None:
        say("Telegram goes to the sandbox: BUTLERS_TELEGRAM_TOKEN is not set.")
    if settings.smtp_url is None:
        say("E-mail goes to the sandbox: BUTLERS_SMTP_URL is not set.")
    say("This is one process and one trust domain; `butlers run NAME` gives each daemon a process of its own.")
    say("Ready. Ctrl-C stops everything.")
    sys.stdout.flush()


def run(
    name: Annotated[str, typer.Argument(help="switchboard, messenger, console, sandbox, or a butler.")],
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535)] = None,
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Serve one daemon; it makes nothing, and names the step that is missing."""
    from butlers import host  # noqa: PLC0415
    from butlers.assemble import Plan, default_port  # noqa: PLC0415

    settings = settings_of(fleet_folder, home_folder)
    entries = fleet.load(settings.fleet)
    default_port(settings, entries, name)
    dsn = "" if name == "sandbox" else home.admin_dsn(settings)
    _log(settings, name)

    async def ready(served: "Sequence[Served]") -> None:
        say(f"{name} is ready at {served[0].url}")
        sys.stdout.flush()

    host.run(Plan(settings, dsn, entries, [name], together=False, port=port), ready)


def init(
    name: Annotated[str, typer.Argument(help="The new butler's name.")],
    fleet_folder: FleetOption = None,
) -> None:
    """Make a new butler's folder."""
    settings = settings_of(fleet_folder)
    made = fleet.scaffold(settings.fleet or Path("fleet"), name)
    say(f"Made {made}. Describe it in butler.toml and PERSONA.md, then `butlers up --fleet {made.parent}`.")


def migrate(fleet_folder: FleetOption = None, home_folder: HomeOption = None) -> None:
    """Do all that is done once: schema, roles, keys, owner. A second run changes nothing."""
    from butlers import migrate as steps  # noqa: PLC0415

    settings = settings_of(fleet_folder, home_folder)
    entries = fleet.load(settings.fleet)
    if settings.database_url is not None:
        asyncio.run(steps.migrate(settings, home.admin_dsn(settings), entries))
        say("The database and the keys are ready.")
        return
    server = postgres.start(settings.home)
    try:
        dsn = server.dsn_of(home.DATABASE)
        asyncio.run(steps.ensure_database(dsn))
        asyncio.run(steps.migrate(settings, dsn, entries))
    finally:
        postgres.stop(server)
    say("The embedded database and the keys are ready; start everything with `butlers up`.")


def _log(settings: Settings, name: str) -> None:
    from shared import telemetry  # noqa: PLC0415

    found = (settings.database_url, settings.telegram_token, settings.smtp_url, settings.console_password)
    known = [one for one in found if isinstance(one, Secret)]
    telemetry.configure(name, secrets=known)
