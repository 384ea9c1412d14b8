"""A butler as a daemon: MCP tools over ASGI, a client within the process, health, readiness and metrics."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import AccessToken, TokenVerifier
from fastmcp.server.dependencies import get_access_token
from fastmcp.tools.base import Tool as McpTool
from fastmcp.tools.base import ToolResult
from mcp_types import TextContent, ToolAnnotations
from pydantic import PrivateAttr
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from butlers.butler import Answer, Arguments, Butler, Components, Context, Kind, Loop, Tool
from butlers.daemon.connection_limits import Share
from butlers.daemon.notify_route import add_notify_route
from butlers.refusals import note_refusal
from butlers.tools.contacts import contacts_tool
from butlers.tools.notification_status import status_tool
from butlers.tools.notify import notify_tool
from butlers.tools.withdraw import withdraw_tool
from shared.auth.tokens import Caller, NotForHere, Unauthorized, Verifier
from shared.db.pool import ping
from shared.errors import ButlersError, Forbidden, InvalidInput, Unavailable
from shared.telemetry.logs import logger
from shared.telemetry.metrics import metrics_text

log = logger("butlers.daemon.app")


@dataclass(frozen=True, slots=True)
class Daemon:
    """Something the host serves: an ASGI app on a port, and loops beside it."""

    name: str
    kind: Kind
    app: ASGIApp
    loops: Sequence[Loop] = ()
    tools: Sequence[str] = ()
    parts: Components = field(default_factory=Components)
    context: Context | None = None


class LocalClient:
    """The way into a daemon from within the process: the same token, the same verifier, the same tools."""

    def __init__(self, verifier: Verifier, tools: Sequence[Tool]) -> None:
        self._verifier = verifier
        self._tools = {tool.name: tool for tool in tools}

    async def call(self, token: str, tool: str, arguments: Arguments) -> Answer:
        """Verify the token and run the tool; raise Unauthorized, Forbidden, or what the tool raises."""
        caller = await self._verifier.verify(token)
        found = self._tools.get(tool)
        if found is None:
            raise ButlersError(f"There is no tool `{tool}` here.")
        return await found.handler(caller, arguments)


async def run(tool: Tool, caller: Caller, arguments: Arguments) -> Answer:
    """Return the handler's answer; raise Forbidden if a client calls a hop tool, or a daemon any other."""
    if tool.hop != (caller.kind == "hop"):
        raise Forbidden(f"`{tool.name}` is not available to a {caller.kind}.")
    if tool.hop:
        _demand_text(arguments)
    return await tool.handler(caller, arguments)


def guarded(context: Context, tool: Tool) -> Tool:
    """Return the same tool, open only to the callers it is for; note in the audit each caller it refuses."""

    async def handler(caller: Caller, arguments: Arguments) -> Answer:
        try:
            return await run(tool, caller, arguments)
        except Forbidden as no:
            await note_refusal(context, caller.name, no.message, kind=caller.kind, tool=tool.name)
            raise

    return replace(tool, handler=handler)


def _demand_text(arguments: Arguments) -> None:
    """Raise InvalidInput for a lone surrogate: JSON can name one, but no row and no other daemon can take it."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            "The arguments contain an incomplete Unicode character.", "Send complete characters."
        ) from None


class ServedTool(McpTool):
    """A tool with our own published schema, whose handler gets the arguments as they came."""

    _tool: Tool = PrivateAttr()

    @classmethod
    def of(cls, tool: Tool) -> "ServedTool":
        """Wrap the tool as FastMCP lists and runs it."""
        served = cls(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            annotations=ToolAnnotations(read_only_hint=tool.read_only, open_world_hint=not tool.read_only),
        )
        served._tool = tool
        return served

    async def run(self, arguments: dict[str, object]) -> ToolResult:
        """Run the tool for the verified caller; return every answer of the contract as an ordinary result."""
        token = get_access_token()
        if token is None:
            raise Unauthorized("No token was sent.")
        try:
            answer = dict(await self._tool.handler(_caller(token.claims), arguments))
        except ButlersError as refused:
            raise ToolError(str(refused)) from None
        text = json.dumps(answer, ensure_ascii=False)
        return ToolResult(content=[TextContent(type="text", text=text)], structured_content=answer)


def _caller(claims: Mapping[str, object]) -> Caller:
    kind = "hop" if claims["kind"] == "hop" else "client"
    return Caller(str(claims["name"]), kind, str(claims["jti"]))  # type: ignore[arg-type]  # one of the two literals


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


class NoState:
    """The session state of a server whose tools keep none."""

    async def get(self, key: str) -> None:
        """Return None: nothing was ever stored."""


NO_STATE: Final = NoState()


class ToolServer(FastMCP):
    """FastMCP without session state: asking its store costs every call, and the first one two seconds of imports."""

    @property
    def _state_store(self) -> NoState:  # type: ignore[override]  # no public hook; test_daemon fails if it goes
        return NO_STATE


def skip_header_schemas(server: FastMCP) -> None:
    """Keep FastMCP from listing all tools on each call; we publish no Mcp-Param headers that it would check."""
    low = server._mcp_server  # noqa: SLF001  # no public hook; test_daemon fails if it goes
    if not hasattr(low, "get_tool_input_schema"):
        raise AttributeError("get_tool_input_schema")
    low.get_tool_input_schema = lambda _name: None


def build(butler: Butler, context: Context, verifier: Verifier, hosts: Sequence[str]) -> tuple[Daemon, LocalClient]:
    """Return the daemon with the core tools and its own, and its client for callers in the same process."""
    parts = butler.build(context)
    core = [make(context) for make in (notify_tool, status_tool, withdraw_tool, contacts_tool)]
    tools = [guarded(context, tool) for tool in (*core, *parts.tools)]
    server = ToolServer(
        butler.name,
        version=version("butlers"),
        instructions="\n\n".join(filter(None, [butler.description, butler.persona])),
        auth=FleetVerifier(verifier),
        mask_error_details=True,
        tools=[ServedTool.of(tool) for tool in tools],
    )
    skip_header_schemas(server)
    _add_health(server, context, parts)
    add_notify_route(server, next(tool for tool in tools if tool.name == "notify"))
    app = server.http_app(
        path="/mcp",
        json_response=True,
        stateless_http=True,
        host_origin_protection=True,
        allowed_hosts=list(hosts),
        middleware=[Middleware(OwnOrigin)],
    )
    names = [tool.name for tool in tools]
    return Daemon(butler.name, butler.kind, app, parts.loops, names, parts, context), LocalClient(verifier, tools)


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
        return PlainTextResponse(metrics_text(), media_type="text/plain; version=0.0.4")


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
