"""How a command reaches a daemon: where it is, whether it is that one, and a token for it."""

import json
import time
from datetime import timedelta

from butlers import fleet
from butlers.cli.session import as_owner
from butlers.daemon import discovery
from butlers.daemon.sockets import OFFSETS
from shared.auth import keystore
from shared.auth.tokens import Signer, mint_client_token
from shared.config.settings import Settings
from shared.db.clock import DatabaseClock
from shared.errors import InvalidInput, Unavailable


async def mint(settings: Settings, name: str, lasts: timedelta) -> str:
    """Make a fresh client token for one butler, stored by its id so that it counts and can be revoked."""
    demand_butler(settings, name)
    clock = DatabaseClock(time.monotonic)
    signer = Signer(keystore.OWNER, keystore.read(settings.home, keystore.OWNER).private_pem, clock)
    async with as_owner(settings) as connection:
        await clock.read(connection)
        made = mint_client_token(signer, name, lasts)
        await discovery.keep_token(connection, made.jti, name, lasts)
    return made.token


def demand_butler(settings: Settings, name: str) -> None:
    """Raise InvalidInput if no daemon of that name has tools."""
    names = [*fleet.SERVICES[:2], *(entry.name for entry in fleet.load(settings.fleet))]
    if name not in names:
        raise InvalidInput(f"Unknown butler `{name}`.", f"Choose from: {', '.join(names)}.")


async def url_of(settings: Settings, name: str) -> str:
    """Return where that daemon is: its own port on this computer if it answers there, else where it is registered.

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
    """Return where a daemon of this computer is, by the settings alone."""
    from butlers.daemon import host  # noqa: PLC0415
    from butlers.daemon.assembly import default_port  # noqa: PLC0415

    entries = [] if name in OFFSETS else fleet.load(settings.fleet)
    return host.url_of(settings, default_port(settings, entries, name), together=True)


async def answers_as(name: str, url: str) -> bool:
    """Return whether the server at that URL says that it is this daemon.

    It is told no secret, so its certificate is not checked.
    """
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
