"""The names of people, told to the sandbox: a real phone knows whom it writes to, and the sandbox reads no row."""

import asyncio

import aiohttp

from butlers.butler import Context
from messenger.storage import queries
from shared.channels import CHANNELS, realms
from shared.loops import apart, pause
from shared.telemetry.logs import logger

log = logger("messenger.maintenance.sandbox")

SLOWEST = aiohttp.ClientTimeout(total=5)


async def run(context: Context, stopping: asyncio.Event) -> None:
    """Tell the names again whenever contacts have changed, where Telegram is the sandbox."""
    told = None
    while realms.realm_of(context.settings, "telegram") == realms.SANDBOX:
        with apart(log, "nobody was named to the sandbox"):
            async with context.db.work() as connection:
                epoch, people = await queries.named(connection)
            if epoch != told and await _tell(context, people):
                told = epoch
        if await pause(stopping, context.settings.timings.unhurried):
            return
    await stopping.wait()


async def _tell(context: Context, people: dict[str, str]) -> bool:
    """Return whether the sandbox took the names; it may not be there yet."""
    url = f"{realms.sandbox_url(context.settings)}/api/people"
    private = {who: name for who, name in people.items() if CHANNELS["telegram"].address.is_private(who)}
    try:
        async with aiohttp.ClientSession(timeout=SLOWEST) as http, http.post(url, json={"people": private}) as answer:
            return answer.ok
    except (aiohttp.ClientError, TimeoutError):
        return False
