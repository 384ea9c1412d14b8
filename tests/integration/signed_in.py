"""The console of a whole house with its owner signed in, and its pages as a person reads them."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from html import unescape
from secrets import token_hex

from butlers.console.storage.sessions import make_sign_in_link
from tests.integration.console_runner import Running, browsing, served
from tests.integration.house import House

HIDDEN = re.compile(r'name="(attempt|csrf|revision|shown|type)" value="([^"]*)"')


@asynccontextmanager
async def signed_in(house: House) -> AsyncIterator[Running]:
    """The house's console, and a browser's session in it."""
    async with AsyncExitStack() as held:
        daemon = house.assembly.daemon("console", "http://127.0.0.1:1")
        assert daemon.context is not None
        url = await held.enter_async_context(served(daemon.app))  # type: ignore[arg-type]  # it is a Starlette app
        http = await held.enter_async_context(browsing())
        running = Running(url, daemon.app, daemon.context, house.sql, http)  # type: ignore[arg-type]
        async with daemon.context.db.work() as connection:
            await make_sign_in_link(connection, url, code := token_hex(8))
        assert (await running.post("/sign-in", code=code)).status == 303
        yield running
        await daemon.context.daemons.close()


async def page(console: Running, path: str, status: int = 200) -> str:
    """The HTML of a page, which must be answered so."""
    answer = await console.get(path)
    assert answer.status == status, await answer.text()
    return await answer.text()


def plain(html: str) -> str:
    """What a person reads."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))


def fields(html: str) -> dict[str, str]:
    """The hidden fields of a page's forms, the first of each name."""
    return {name: unescape(value) for name, value in reversed(HIDDEN.findall(html))}
