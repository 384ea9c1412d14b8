"""A butler as a daemon: MCP tools over ASGI, a client within the process, health, readiness and metrics."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Final, get_args
from urllib.parse import urlsplit

from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, TokenVerifier
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from butlers.butler import (
    ACTING,
    Answer,
    Arguments,
    Butler,
    Components,
    Context,
    Daemon,
    NoConfig,
    Result,
    Tool,
    ToolCall,
    joined,
)
from butlers.daemon.event_streams import EventStreams
from butlers.daemon.mcp_server import ServedTool, ToolServer, skip_header_schemas
from butlers.daemon.notify_route import add_notify_route
from butlers.refusals import note_refusal
from butlers.sessions.notices import Showing
from butlers.tools import ask_user, attachment, contacts, notices, notification_status, notify, withdraw
from butlers.tools.gated import Gated
from shared.auth.tokens import Caller, NotForHere, Unauthorized, Verifier
from shared.contracts import AnswerStatus
from shared.db.pool import ping
from shared.errors import ButlersError, Forbidden, InvalidInput, Unavailable
from shared.loops import apart
from shared.storage import session_steps
from shared.telemetry.logs import logger
from shared.telemetry.metrics import RECENT

log = logger("butlers.daemon.app")
# What every butler has.
CORE: Final = tuple(
    tool.MODULE for tool in (notify, notification_status, withdraw, contacts, attachment, ask_user, notices)
)
# Requests at once of one verified caller.
MOST_OF_ONE_CALLER: Final = 64


class Share:
    """Middleware that bounds the requests at once of one verified caller; those beyond get 503, to be tried again."""

    def __init__(self, app: ASGIApp, most: int = MOST_OF_ONE_CALLER) -> None:
        self._app = app
        self._most = most
        self._busy: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request if its caller has room; let an unknown caller through, to be refused further on."""
        user = scope.get("user")
        if scope["type"] != "http" or user is None or not user.is_authenticated:
            await self._app(scope, receive, send)
            return
        name = str(user.display_name)
        if self._busy[name] >= self._most:
            said = f"{self._most} calls of {name} are already in progress. Try again in a moment."
            await JSONResponse({"error": said}, 503, headers={"Retry-After": "1"})(scope, receive, send)
            return
        self._busy[name] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._busy[name] -= 1


class LocalClient:
    """The way into a daemon from within the process: the same token, the same verifier, the same tools."""

    def __init__(self, verifier: Verifier, tools: Sequence[Tool]) -> None:
        self._verifier = verifier
        self._tools = {tool.name: tool for tool in tools}

    async def by_clock(self, tool: str, arguments: Arguments, caller: Caller) -> Result:
        """Run a tool as the butler itself does when its time has come: nobody calls, so there is no token."""
        return await self._tools[tool].handler(ToolCall(caller, arguments, reads=False))

    async def call(self, token: str, tool: str, arguments: Arguments) -> Answer:
        """Verify the token and run the tool; raise Unauthorized, Forbidden, or what the tool raises."""
        caller = await self._verifier.verify(token)
        found = self._tools.get(tool)
        if found is None:
            raise ButlersError(f"There is no tool `{tool}` here.")
        return (await found.handler(ToolCall(caller, arguments))).answer or {}


async def run(tool: Tool, call: ToolCall) -> Result:
    """Return the handler's result; raise Forbidden if a client calls a hop tool, or a daemon any other."""
    if not (call.caller.kind == "hop" if tool.hop else call.caller.kind in ACTING):
        raise Forbidden(f"`{tool.name}` is not available to a {call.caller.kind}.")
    if tool.hop:
        _demand_text(call.arguments)
    return await tool.handler(call)


def guarded(context: Context, tool: Tool) -> Tool:
    """Return the same tool, open only to the callers it is for; note in the audit each caller it refuses."""

    async def handler(call: ToolCall) -> Result:
        try:
            return await run(tool, call)
        except Forbidden as no:
            await note_refusal(context, call.caller.name, no.message, kind=call.caller.kind, tool=tool.name)
            raise

    return replace(tool, handler=handler)


def stepped(context: Context, tool: Tool) -> Tool:
    """Return the same tool, each call of which by a session is a step in its rows, from before it begins."""

    async def handler(call: ToolCall) -> Result:
        session = call.caller.session
        if session is None:
            return await tool.handler(call)
        async with context.db.work() as connection:
            seq = await session_steps.begun(connection, context.name, session, tool.name, call.arguments)
        status = "error"
        try:
            result = await tool.handler(call)
            status = _status_of(result)
            return result
        finally:
            with apart(log, "how a step ended is not written", session=session):
                async with context.db.work() as connection:
                    await session_steps.ended(connection, context.name, session, seq, status)

    return replace(tool, handler=handler)


def _status_of(result: Result) -> str:
    """Return the status that the answer states, or whether it is an error."""
    said = (result.answer or {}).get("status")
    if isinstance(said, str) and said in get_args(AnswerStatus):
        return said
    return "error" if result.is_error else "ok"


def _demand_text(arguments: Arguments) -> None:
    """Raise InvalidInput for a lone surrogate: JSON can name one, but no row and no other daemon can take it."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            "The arguments contain an incomplete Unicode character.", "Send complete characters."
        ) from None


class Unsure:
    """Middleware that answers 503 when nobody can tell who is calling, and 401 to a token of ours that is not for here.

    A 503 is neither a no nor a yes, and the caller may try again.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request; answer 503 if the caller cannot be checked."""
        try:
            await self._app(scope, receive, send)
        except Unavailable as unknown:
            await JSONResponse({"error": str(unknown)}, 503, headers={"Retry-After": "1"})(scope, receive, send)
        except NotForHere as refused:
            headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
            await JSONResponse({"error": str(refused)}, 401, headers=headers)(scope, receive, send)


class OwnOrigin:
    """Middleware that keeps out web pages of another origin.

    A page on another port of this computer is foreign too, but FastMCP lets every loopback origin in.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or answer 403 to a browser whose page came from elsewhere."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        origin = headers.get("origin")
        app = self._app
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            app = PlainTextResponse("This page may not talk to a butler.\n", status_code=403)
        await app(scope, receive, send)


class FleetVerifier(TokenVerifier):
    """FastMCP's view of our verifier: a request without a known caller gets 401 before MCP begins."""

    def __init__(self, verifier: Verifier) -> None:
        super().__init__()
        self._verifier = verifier

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the caller as claims, or None; raise Unavailable if the token cannot be checked."""
        try:
            caller = await self._verifier.verify(token)
        except NotForHere:
            raise
        except Unauthorized as refused:
            log.warning("token refused", why=refused.message)
            return None
        except ButlersError as unknown:
            log.warning("token could not be checked", why=unknown.message)
            raise Unavailable("The caller cannot be verified right now.", "Try again in a moment.") from None
        claims = {"name": caller.name, "kind": caller.kind, "jti": caller.jti}
        return AccessToken(token=token, client_id=caller.name, scopes=[caller.kind], claims=claims)

    def get_middleware(self) -> list[Middleware]:
        """Return what runs before the tools: the 503 of `Unsure`, the token check, and the caller's `Share`."""
        return [Middleware(Unsure), *super().get_middleware(), Middleware(Share)]


def build(butler: Butler, context: Context, verifier: Verifier, hosts: Sequence[str]) -> tuple[Daemon, LocalClient]:
    """Return the daemon with the core tools and its own, and its client for callers in the same process."""
    parts = joined([*(module.build(context, NoConfig()) for module in CORE), butler.build(context)])
    gated = Gated(context, parts.tools)
    # From here on nobody comes by a gated tool but through its gate.
    parts = replace(parts, tools=[gated.over(tool) for tool in parts.tools], loops=[*parts.loops, *gated.loops])
    context.tools.update({tool.name: tool for tool in parts.tools})
    tools = [guarded(context, stepped(context, tool)) for tool in parts.tools]
    showing = Showing(context)
    server = ToolServer(
        butler.name,
        version=version("butlers"),
        instructions="\n\n".join(filter(None, [butler.description, butler.persona])),
        auth=FleetVerifier(verifier),
        mask_error_details=True,
        tools=[ServedTool.of(tool, showing.block_for) for tool in tools],
    )
    server.add(parts.resources, parts.prompts)
    skip_header_schemas(server)
    _add_health(server, context, parts)
    add_notify_route(server, next(tool for tool in tools if tool.name == "notify"))
    app = _http_app(server, hosts, frozenset(tool.name for tool in tools if tool.waits))
    asking = [tool.name for tool in tools if tool.gate != "free"]
    daemon = Daemon(butler.name, butler.kind, app, parts.loops, asking, parts, context, butler.has_runtime)
    return daemon, LocalClient(verifier, tools)


def _http_app(server: FastMCP, hosts: Sequence[str], waiting: frozenset[str]) -> ASGIApp:
    """Return the app that answers each call as one JSON object, but for the tools that wait as an event stream."""
    serve = partial(
        server.http_app, path="/mcp", stateless_http=True, host_origin_protection=True, allowed_hosts=list(hosts)
    )
    middleware = [Middleware(OwnOrigin)]
    if waiting:
        streaming = serve(json_response=False, middleware=[Middleware(OwnOrigin)])
        middleware.append(Middleware(EventStreams, streaming=streaming, waiting=waiting))
    return serve(json_response=True, middleware=middleware)


def _add_health(server: FastMCP, context: Context, parts: Components) -> None:
    @server.custom_route("/healthz", methods=["GET"])
    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok", "name": context.name})

    @server.custom_route("/readyz", methods=["GET"])
    async def readyz(_: Request) -> Response:
        troubles = await why_not_ready(context, parts)
        return JSONResponse(
            {"status": "not ready" if troubles else "ready", "troubles": troubles, "remarks": parts.remarks()},
            status_code=503 if troubles else 200,
        )

    @server.custom_route("/metrics", methods=["GET"])
    async def metrics(_: Request) -> Response:
        return PlainTextResponse(RECENT.text(time.monotonic()), media_type="text/plain; version=0.0.4")


async def why_not_ready(context: Context, parts: Components) -> list[str]:
    """Return each reason why calls cannot be answered, as a sentence; an empty list if they can."""
    troubles = parts.troubles()
    started = time.monotonic()
    try:
        async with asyncio.timeout(2), context.db.work() as connection:
            await ping(connection)
    except (ButlersError, TimeoutError) as lost:
        waited = time.monotonic() - started
        return [*troubles, f"The database does not answer ({type(lost).__name__} after {waited:.1f} s)."]
    return troubles
