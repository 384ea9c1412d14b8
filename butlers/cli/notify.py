"""notify, token, mcp-config, status, pair, config: commands about daemons and their clients."""

import asyncio
import json
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

import typer

from butlers import fleet
from butlers.cli.options import FleetOption, HomeOption, JsonOption
from butlers.cli.session import as_owner, say, say_json, settings_of, table
from butlers.daemon import discovery
from butlers.daemon.sockets import OFFSETS
from shared.auth import keystore
from shared.auth.tokens import Signer, mint_client_token
from shared.config.settings import Settings, dump, duration
from shared.db.clock import DatabaseClock
from shared.errors import InvalidInput, Misconfigured, Unavailable
from shared.storage import pairings as pairing


def add_to(app: typer.Typer) -> None:
    """Put these commands on the command line."""
    app.command()(notify)
    app.command()(token)
    app.command("mcp-config")(mcp_config)
    app.command()(status)
    pairing = typer.Typer(help="Make a channel known as yours.", no_args_is_help=True)
    pairing.command("telegram")(pair_telegram)
    pairing.callback()(lambda: None)
    app.add_typer(pairing, name="pair")
    config = typer.Typer(help="What the environment says.", no_args_is_help=True)
    config.command("dump")(config_dump)
    config.callback()(lambda: None)
    app.add_typer(config, name="config")


async def mint(settings: Settings, name: str, lasts: timedelta) -> str:
    """A fresh client token for one butler, noted so that it counts and can be revoked."""
    demand_butler(settings, name)
    clock = DatabaseClock(time.monotonic)
    signer = Signer(keystore.OWNER, keystore.read(settings.home, keystore.OWNER).private_pem, clock)
    async with as_owner(settings) as connection:
        await clock.read(connection)
        made = mint_client_token(signer, name, lasts)
        await discovery.keep_token(connection, made.jti, name, lasts)
    return made.token


def demand_butler(settings: Settings, name: str) -> None:
    """Raise InvalidInput if nobody of that name has tools."""
    names = [*fleet.SERVICES[:2], *(entry.name for entry in fleet.load(settings.fleet))]
    if name not in names:
        raise InvalidInput(f"There is no butler `{name}`.", f"Known are: {', '.join(names)}.")


async def url_of(settings: Settings, name: str) -> str:
    """Where that daemon is: its own port on this computer if it answers there, else where it is registered.

    What is registered is the Switchboard's word, which could lead a token astray.
    """
    if await answers_as(name, url := own_url(settings, name)):
        return url
    async with as_owner(settings) as connection:
        daemons = await discovery.daemons(connection)
    for row in daemons:
        if row["name"] == name and row["ready"]:
            return str(row["url"])
    raise Unavailable(f"{name} is not running.", "Start it with `butlers up`.")


def own_url(settings: Settings, name: str) -> str:
    """Where a daemon of this computer is, by the settings alone."""
    from butlers.daemon import host  # noqa: PLC0415
    from butlers.daemon.assembly import default_port  # noqa: PLC0415

    entries = [] if name in OFFSETS else fleet.load(settings.fleet)
    return host.url_of(settings, default_port(settings, entries, name), together=True)


async def answers_as(name: str, url: str) -> bool:
    """Whether whoever listens there says that it is this daemon; it is told no secret, so no certificate is asked."""
    import aiohttp  # noqa: PLC0415

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session,
            session.get(f"{url}/healthz", ssl=False, allow_redirects=False) as answer,
        ):
            told = json.loads(await answer.content.read(200))
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return False
    return isinstance(told, dict) and told.get("name") == name


def token(
    name: Annotated[str, typer.Argument(help="The butler the token is for.")],
    lasts: Annotated[str, typer.Option("--for", help="How long it counts, for example 30d.")] = "30d",
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Print a client token for one butler, and nothing else."""
    settings = settings_of(fleet_folder, home_folder)
    say(asyncio.run(mint(settings, name, duration(lasts))))


def mcp_config(
    name: Annotated[str, typer.Argument(help="The butler.")],
    fleet_folder: FleetOption = None,
    home_folder: HomeOption = None,
) -> None:
    """Print the configuration by which an MCP client reaches one butler."""
    settings = settings_of(fleet_folder, home_folder)
    demand_butler(settings, name)

    async def gather() -> tuple[str, str]:
        url = await url_of(settings, name)
        return url, await mint(settings, name, timedelta(days=30))

    url, bearer = asyncio.run(gather())
    server = {"type": "http", "url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {bearer}"}}
    say_json({"mcpServers": {name: server}})


def status(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Which daemons are there, and what nothing can leave by."""
    settings = settings_of(None, home_folder)

    async def read() -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        async with as_owner(settings) as connection:
            rows = await discovery.daemons(connection)
            waits = await discovery.waiting(connection)
        daemons = [dict(row) | {"port": _port(row["url"])} for row in rows]
        return daemons, [dict(row) | {name: row[name].isoformat() for name in ("since", "until")} for row in waits]

    daemons, waits = asyncio.run(read())
    sandbox = _sandbox(settings)
    daemons += [sandbox] if sandbox else []
    if as_json:
        say_json({"daemons": daemons, "waiting": waits})
        return
    table(("name", "kind", "url", "ready"), [[d["name"], d["kind"], d["url"], d["ready"]] for d in daemons])
    if waits:
        table(("waits", "why", "until"), [[w["what"], w["why"], w["until"]] for w in waits])


def _sandbox(settings: Settings) -> dict[str, object] | None:
    """The sandbox keeps no row; it is asked itself."""
    from urllib.error import URLError  # noqa: PLC0415
    from urllib.request import urlopen  # noqa: PLC0415

    url = settings.sandbox_url or f"http://127.0.0.1:{settings.port_base + OFFSETS['sandbox']}"
    try:
        with urlopen(f"{url}/healthz", timeout=2) as answer:  # noqa: S310  # http(s), checked by the settings
            ready = answer.status == 200  # noqa: PLR2004
    except (URLError, OSError):
        return None
    return {"name": "sandbox", "kind": "sandbox", "url": url, "ready": ready, "port": _port(url)}


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def notify(  # noqa: PLR0913, PLR0917  # the contract's parameters
    name: Annotated[str, typer.Option("--as", help="The butler that speaks.")],
    channel: Annotated[str, typer.Option("--channel")],
    message: Annotated[str, typer.Option("--message")] = "",
    contact_id: Annotated[str, typer.Option("--contact-id")] = "",
    recipient: Annotated[str, typer.Option("--recipient")] = "",
    subject: Annotated[str, typer.Option("--subject")] = "",
    intent: Annotated[str, typer.Option("--intent")] = "send",
    emoji: Annotated[str, typer.Option("--emoji")] = "",
    request_context: Annotated[str, typer.Option("--request-context", help="JSON.")] = "",
    home_folder: HomeOption = None,
    fleet_folder: FleetOption = None,
) -> None:
    """Tell somebody something as one of the butlers; prints the answer."""
    settings = settings_of(fleet_folder, home_folder)
    demand_butler(settings, name)
    given = {
        "channel": channel,
        "message": message,
        "contact_id": contact_id,
        "recipient": recipient,
        "subject": subject,
        "intent": intent,
        "emoji": emoji,
        "request_context": request_context,
    }
    answer = asyncio.run(_call_notify(settings, name, {key: value for key, value in given.items() if value}))
    say_json(answer)
    if answer.get("status") == "error":
        raise typer.Exit(1)


async def _call_notify(settings: Settings, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Call the butler as any client would, by the one request MCP needs."""
    import aiohttp  # noqa: PLC0415

    from shared.rpc import request_of, tool_object  # noqa: PLC0415

    url = await url_of(settings, name)
    bearer = await mint(settings, name, timedelta(minutes=5))
    headers, body = request_of(bearer, "notify", arguments, 1)
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session,
            session.post(f"{url}/mcp", json=body, headers=headers) as response,
        ):
            return tool_object(await response.read(), name, "notify")
    except (aiohttp.ClientError, TimeoutError):
        raise Unavailable(f"{name} cannot be reached at {url}.", "Start it with `butlers up`.") from None


def pair_telegram(home_folder: HomeOption = None) -> None:
    """Print a link; opening it in Telegram makes that private chat the owner's."""
    settings = settings_of(None, home_folder)
    if settings.telegram_token is None:
        raise Misconfigured("BUTLERS_TELEGRAM_TOKEN is not set.", "Get a token from @BotFather and set it.")
    code = secrets.token_urlsafe(16)
    bot = settings.telegram_token.reveal()

    async def offer() -> str:
        name = await _bot_name(settings.telegram_base_url, bot)
        async with as_owner(settings) as connection:
            await pairing.offer(connection, code)
        return name

    bot_name = asyncio.run(offer())
    say(f"Open this within 15 minutes and press Start: https://t.me/{bot_name}?start={code}")


async def _bot_name(base_url: str, bot: str) -> str:
    import aiohttp  # noqa: PLC0415

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session,
            session.get(f"{base_url}/bot{bot}/getMe") as response,
        ):
            answer = json.loads(await response.read())
            return str(answer["result"]["username"])
    except (aiohttp.ClientError, TimeoutError):
        raise Unavailable(
            f"{base_url} cannot be reached.", "Try again, or correct BUTLERS_TELEGRAM_BASE_URL."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise Unavailable("Telegram does not know this bot.", "Check BUTLERS_TELEGRAM_TOKEN.") from None


def config_dump(home_folder: HomeOption = None) -> None:
    """Print every setting; secrets are masked."""
    for name, value in dump(settings_of(None, home_folder)).items():
        say(f"{name}={value}")
