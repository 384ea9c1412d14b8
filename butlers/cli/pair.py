"""pair: make a channel known as the owner's."""

import asyncio
import json
import secrets
from datetime import timedelta

import typer

from butlers.cli.options import HomeOption
from butlers.cli.terminal import as_owner, owner_id, say, settings_of
from shared.errors import Misconfigured, Unavailable
from shared.storage import pairings

app = typer.Typer(help="Link a channel to you.", no_args_is_help=True)


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="pair")


@app.callback()
def _() -> None:
    """Keep `telegram` a word of its own while it is the only one."""


@app.command("telegram")
def pair_telegram(home_folder: HomeOption = None) -> None:
    """Print a link; open it in Telegram to receive your messages there."""
    settings = settings_of(None, home_folder)
    if settings.telegram_token is None:
        raise Misconfigured("BUTLERS_TELEGRAM_TOKEN is not set.", "Get a token from @BotFather and set it.")
    code, lasts = secrets.token_urlsafe(16), settings.timings.pairing
    bot = settings.telegram_token.reveal()

    async def offer() -> str:
        name = await bot_name(settings.telegram_base_url, bot)
        async with as_owner(settings) as connection:
            await owner_id(connection)  # whose the chat would be
            await pairings.offer(connection, code, lasts)
        return name

    named = asyncio.run(offer())
    say(f"Open this within {lasts // timedelta(minutes=1)} minutes and press Start: https://t.me/{named}?start={code}")


async def bot_name(base_url: str, bot: str) -> str:
    """Ask the provider for the bot's name, which also says whether the token is right."""
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
