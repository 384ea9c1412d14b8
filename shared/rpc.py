"""Calls of another daemon's tools: within the process, or by one MCP request over HTTP.

Both ways present the same token to the same verifier and get the same object back. The request is the
self-contained tools/call of MCP 2026-07-28; a client object per daemon would die with its connection.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from shared.auth.tokens import Signer, Unauthorized
from shared.config.timings import STANDARD, Timings
from shared.errors import ButlersError, Forbidden, HopFailed
from shared.telemetry.metrics import hop_seconds

# Idle connections live shorter here than at the server (75 s), so that none is used half-closed.
KEPT_SECONDS: Final = 60
PROTOCOL: Final = "2026-07-28"
# What is no answer of a daemon that takes our calls; nobody goes where another end sends a call on to.
REFUSED: Final = frozenset({300, 301, 302, 303, 304, 305, 307, 308, 401, 403, 404, 421})
TOO_LARGE: Final = 413
# Files go by the database, so an answer holds what one call says of itself, far below this.
LONGEST_ANSWER: Final = 2**20
Answer: TypeAlias = Mapping[str, object]
# name -> base URLs of its ready instances, freshest first
Finder: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
M = TypeVar("M", bound=BaseModel)


class HopRefused(HopFailed):
    """What listens at the other end does not take our calls."""


class HopTooLarge(HopFailed):
    """What was brought is more than the other end takes, now and later."""


class Local(Protocol):
    """A daemon in this process."""

    async def call(self, token: str, tool: str, arguments: Mapping[str, object]) -> Answer:
        """Verify the token as over HTTP, then run the tool."""


class DaemonClient:
    """One daemon's way to call all others; holds its signer and its connections."""

    def __init__(
        self, signer: Signer, find: Finder, local: Mapping[str, Local] | None = None, timings: Timings = STANDARD
    ) -> None:
        self._signer = signer
        self._find = find
        self._local = local if local is not None else {}
        self._session: aiohttp.ClientSession | None = None
        self._ids = 0
        self._waiting: set[asyncio.Timeout] = set()
        self._hurried = False
        self._timings = timings

    async def call(self, target: str, tool: str, arguments: Mapping[str, object], timeout: float) -> Answer:
        """Call a tool and return its object.

        Raises HopFailed for everything else, tool errors and strange answers included.
        """
        started = time.perf_counter()
        try:
            async with self._patience(timeout):
                if target in self._local:
                    return await self._call_local(target, tool, arguments)
                return await self._call_remote(target, tool, arguments)
        except TimeoutError:
            raise HopFailed(f"{target} did not answer {tool} within {timeout:.0f} s.", timed_out=True) from None
        finally:
            hop_seconds.labels(target=target, tool=tool).observe(time.perf_counter() - started)

    @asynccontextmanager
    async def _patience(self, timeout: float) -> AsyncIterator[None]:
        async with asyncio.timeout(min(timeout, self._timings.hurried) if self._hurried else timeout) as scope:
            self._waiting.add(scope)
            try:
                yield
            finally:
                self._waiting.discard(scope)

    def hurry(self) -> None:
        """Let each call of another daemon end within a moment, with its answer or none, because this process stops."""
        self._hurried = True
        soon = asyncio.get_running_loop().time() + self._timings.hurried
        for scope in self._waiting:
            scope.reschedule(min(soon, scope.when() or soon))

    async def call_for(
        self, target: str, tool: str, arguments: Mapping[str, object], timeout: float, model: type[M]
    ) -> M:
        """Call a tool and read its object as `model`; raise HopFailed, never return an ok, if it is none."""
        answer = await self.call(target, tool, arguments, timeout)
        try:
            return model.model_validate(answer)
        except ValidationError:
            raise HopFailed(f"{target} answered {tool} with an invalid {model.__name__}.") from None

    async def _call_local(self, target: str, tool: str, arguments: Mapping[str, object]) -> Answer:
        try:
            return await self._local[target].call(self._signer.token_for(target), tool, arguments)
        except (Unauthorized, Forbidden) as refused:
            raise HopFailed(f"{target} refused {tool}: {refused.message}") from None
        except ButlersError as failed:
            raise HopFailed(f"{target} failed at {tool}: {failed.message}") from None

    async def _call_remote(self, target: str, tool: str, arguments: Mapping[str, object]) -> Answer:
        urls = await self._find(target)
        if not urls:
            raise HopFailed(f"No {target} is running.", proved_not_begun=True)
        refused: HopRefused | None = None
        for url in urls:
            try:
                return await self._post(url, target, tool, arguments)
            except aiohttp.ClientConnectorError:
                continue
            except HopRefused as said:
                # Nothing began; a stale row may point at another process that listens there today.
                refused = said
            except (aiohttp.ClientError, ConnectionError, json.JSONDecodeError) as lost:
                # It may have begun: like one that did not answer in time, the rows say how it stands.
                raise HopFailed(f"{target} dropped {tool}: {type(lost).__name__}.", timed_out=True) from None
        raise refused or HopFailed(f"{target} cannot be reached.", proved_not_begun=True)

    async def _post(self, url: str, target: str, tool: str, arguments: Mapping[str, object]) -> Answer:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=64, keepalive_timeout=KEPT_SECONDS)
            # What is packed has no bound that its bytes say, and no daemon packs.
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        self._ids += 1
        headers, body = request_of(self._signer.token_for(target), tool, arguments, self._ids)
        headers |= {"content-type": "application/json", "accept-encoding": "identity"}
        # Whoever says where to go next would be told the words, and would have them told to anybody.
        asked = self._session.post(f"{url}/mcp", data=_encoded(body), headers=headers, allow_redirects=False)
        async with asked as response:
            if response.status in REFUSED:
                raise HopRefused(f"{target} refused this daemon ({response.status}).")
            if response.status == TOO_LARGE:
                raise HopTooLarge(f"{target} takes no request to {tool} of this size.")
            if response.status == 503:  # noqa: PLR2004
                raise HopRefused(f"{target} is overloaded.", proved_not_begun=True)
            return tool_object(await _whole(response, target, tool), target, tool)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


async def _whole(response: aiohttp.ClientResponse, target: str, tool: str) -> bytes:
    """Return the body; raise HopFailed, and read no further, if it is longer than any answer."""
    try:
        await response.content.readexactly(LONGEST_ANSWER + 1)
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    raise HopFailed(f"{target} answered {tool} with more than {LONGEST_ANSWER:,} bytes.")


def request_of(
    token: str, tool: str, arguments: Mapping[str, object], number: int
) -> tuple[dict[str, str], dict[str, object]]:
    """Return the headers and the body of one self-contained tools/call (MCP 2026-07-28)."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": PROTOCOL,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "authorization": f"Bearer {token}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": PROTOCOL,
        "mcp-method": "tools/call",
        "mcp-name": tool,
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return headers, {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def _encoded(body: Mapping[str, object]) -> bytes:
    """Encode the body in UTF-8, which takes as little as a third of what it would take in ASCII.

    So what one daemon took fits into the next. Only a body that holds half a character is sent in ASCII; the next
    daemon refuses it.
    """
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()


def tool_object(body: bytes, target: str, tool: str) -> Answer:
    """Return the structured object of a tools/call answer.

    Raises HopFailed for a tool error or a missing object.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise HopFailed(f"{target} answered {tool} with invalid JSON.") from None
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict):
        raise HopFailed(f"{target} answered {tool} with a protocol error.")
    if result.get("isError"):
        raise HopFailed(f"{target} answered {tool} with a tool error.")
    found = result.get("structuredContent")
    if not isinstance(found, dict):
        raise HopFailed(f"{target} answered {tool} without an object.")
    return found
