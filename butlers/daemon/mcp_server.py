"""A butler's tools, resources and prompts as FastMCP serves them, and the one way out for results."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from fastmcp import FastMCP
from fastmcp.exceptions import PromptError, ResourceError
from fastmcp.prompts import Prompt as McpPrompt
from fastmcp.prompts.base import PromptArgument, PromptResult
from fastmcp.resources import Resource as McpResource
from fastmcp.resources import ResourceContent, ResourceResult, ResourceTemplate
from fastmcp.server.dependencies import get_access_token, get_context, get_http_headers
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.tools.base import Tool as McpTool
from mcp_types import Annotations, InputRequiredResult, ListRootsRequest, ListRootsResult, TextContent, ToolAnnotations
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import AnyUrl, PrivateAttr

from butlers.butler import ACTING, Arguments, Components, Prompt, Resource, Result, Tool, ToolCall
from shared.auth.tokens import Caller, CallerKind, Unauthorized
from shared.db.decoding import storable
from shared.errors import ButlersError, Forbidden

if TYPE_CHECKING:
    from mcp_types import ContentBlock, InputRequest, InputResponse

# What a client may be asked for in the middle of a call, by the capability it declares.
ASKABLE: Final = ("roots", "elicitation")
# Who calls where no token can be: the program that started this process and holds its pipe. Only `over_stdio` sets it.
AT_THE_PIPE: Final[ContextVar[Caller | None]] = ContextVar("at_the_pipe", default=None)


# The block of notices that goes out with this caller's result of that tool, whose call began then (monotonic).
BlockFor: TypeAlias = Callable[[Caller, str, float], Awaitable[str | None]]
# Under which name it stands in an object.
KEY: Final = "notifications"
# So many characters of a result Claude Code shows its model if it is told to, and of more the beginning alone.
SHOWN_WHOLE: Final = {"anthropic/maxResultSizeChars": 200_000}
# INVARIANT: a block is taken only where its reader is shown it; it stands last. A character may count twice there.
LONGEST_BESIDE: Final = 90_000


async def nothing_waits(_caller: Caller, _tool: str, _began: float) -> None:
    """Return None: nobody is shown notices here."""


class ServedTool(McpTool):
    """A tool with our own published schema, whose handler gets the arguments as they came."""

    _tool: Tool = PrivateAttr()
    _block_for: BlockFor = PrivateAttr()

    @classmethod
    def of(cls, tool: Tool, block_for: BlockFor = nothing_waits) -> "ServedTool":
        """Wrap the tool as FastMCP lists and runs it; `block_for` says what goes out with a caller's result."""
        served = cls(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            output_schema=_published(tool.output, block_for),
            annotations=ToolAnnotations(read_only_hint=tool.read_only, open_world_hint=not tool.read_only),
            meta=dict(SHOWN_WHOLE),
        )
        served._tool, served._block_for = tool, block_for
        return served

    @property
    def is_for_daemons(self) -> bool:
        """Return whether only daemons may call it."""
        return self._tool.hop

    async def run(self, arguments: dict[str, object]) -> ToolResult:
        """Run the tool for the verified caller; return every answer of the contract as an ordinary result."""
        began, call = time.monotonic(), None
        try:
            call = call_of(arguments, waits=self._tool.waits)
            result = await self._tool.handler(call)
            if result.asks and get_context().session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                result = await self._tool.handler(replace(call, inputs=await _answers(result.asks)))
        except ButlersError as refused:
            result = Result(blocks=[TextContent(type="text", text=str(refused))], is_error=True)
        # Made before a block is taken, since what cannot leave would swallow one; so would an object with a key for it.
        bare = leave(result)
        if result.asks or call is None or (result.answer is not None and KEY in result.answer):
            return bare
        if sum(len(one.text) for one in bare.content if isinstance(one, TextContent)) > LONGEST_BESIDE:
            return bare
        block = await self._block_for(call.caller, self._tool.name, began)
        return bare if block is None else leave(result, block)


async def _answers(asks: Mapping[str, "InputRequest"]) -> dict[str, "InputResponse"]:
    """Ask a client of the older protocol at once, by the one request of it that is known here."""
    session = get_context().session
    return {
        key: await session.send_request(one, ListRootsResult)
        for key, one in asks.items()
        if isinstance(one, ListRootsRequest)
    }


def leave(result: Result, block: str | None = None) -> ToolResult:
    """Return a result as it leaves for a client: the one way out of every tool call, errors included.

    The block of notices is a text of its own, the last; beside an object it is a key of that too, since some clients
    hand a model nothing else.
    """
    if result.asks:
        return InputRequiredToolResult(InputRequiredResult(input_requests=dict(result.asks)))
    last = [TextContent(type="text", text=f"\n\n{block}")] if block is not None else []
    blocks = [_readable(one) for one in result.blocks]
    if result.answer is None:
        return ToolResult(content=[*blocks, *last], is_error=result.is_error)
    answer = dict(result.answer)
    said = json.dumps(answer, ensure_ascii=False)
    if (whole := storable(said)) != said:
        said, answer = whole, json.loads(whole)
    if block is not None:
        answer[KEY] = block
    text = TextContent(type="text", text=said)
    return ToolResult(content=[text, *blocks, *last], structured_content=answer, is_error=result.is_error)


def _readable(block: "ContentBlock") -> "ContentBlock":
    """Return the block without half characters: no client reads a result that holds one."""
    if not isinstance(block, TextContent) or (whole := storable(block.text)) == block.text:
        return block
    return block.model_copy(update={"text": whole})


def _published(output: Mapping[str, object] | None, block_for: BlockFor) -> dict[str, object] | None:
    """Return the schema of a tool's object, with room where notices may come."""
    if output is None:
        return None
    return dict(output) if block_for is nothing_waits else with_room(output)


def with_room(output: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of a tool's object with room for the block of notices."""
    properties = output.get("properties")
    room = {"type": "string", "description": "What happened meanwhile, if anything did."}
    return {**output, "properties": {**(properties if isinstance(properties, Mapping) else {}), KEY: room}}


def call_of(arguments: Arguments, *, waits: bool = False) -> ToolCall:
    """Return the call under way, by the caller its token proved; raise Unauthorized without one.

    Only a tool that waits looks at what its client takes and offers: the look costs as much as a short tool.
    """
    token = get_access_token()
    caller = caller_of(token.claims) if token is not None else AT_THE_PIPE.get()
    if caller is None:
        raise Unauthorized("No token was sent.")
    return _waiting(caller, arguments) if waits else ToolCall(caller, arguments)


def caller_of(claims: Mapping[str, object]) -> Caller:
    """Return the caller of the claims that FleetVerifier made."""
    return Caller(str(claims["name"]), cast("CallerKind", claims["kind"]), str(claims["jti"]))


def _waiting(caller: Caller, arguments: Arguments) -> ToolCall:
    context = get_context()
    done = 0

    async def progress(message: str) -> None:
        nonlocal done
        done += 1
        await context.report_progress(done, message=message)

    capable = context.session.client_capabilities
    return ToolCall(
        caller,
        arguments,
        streams="text/event-stream" in get_http_headers(include={"accept"}).get("accept", ""),
        progress=progress,
        offers=frozenset(name for name in ASKABLE if getattr(capable, name, None) is not None),
        inputs=dict(context.input_responses or {}),
    )


class ServedResource(McpResource):
    """A resource at one URI."""

    _resource: Resource = PrivateAttr()

    @classmethod
    def of(cls, one: Resource) -> "ServedResource":
        """Wrap the resource as FastMCP lists and reads it."""
        served = cls(uri=AnyUrl(one.uri), name=one.name, description=one.description, mime_type=one.mime_type)
        served._resource = one
        return served

    async def read(self) -> ResourceResult:
        """Read it for the verified caller."""
        return await _read(self._resource, {})


class ServedTemplate(ResourceTemplate):
    """A resource whose URI has names in it."""

    _resource: Resource = PrivateAttr()

    @classmethod
    def of(cls, one: Resource) -> "ServedTemplate":
        """Wrap the template as FastMCP lists and reads it."""
        served = cls(
            uri_template=one.uri,
            parameters={},
            name=one.name,
            description=one.description,
            mime_type=one.mime_type,
            annotations=Annotations(audience=list(one.audience)) if one.audience else None,
        )
        served._resource = one
        return served

    async def _read(self, uri: str, params: dict[str, object]) -> ResourceResult:  # noqa: ARG002  # FastMCP's signature
        """Read what the URI names for the verified caller."""
        return await _read(self._resource, params)


class ServedPrompt(McpPrompt):
    """A prompt whose arguments are all required."""

    _prompt: Prompt = PrivateAttr()

    @classmethod
    def of(cls, prompt: Prompt) -> "ServedPrompt":
        """Wrap the prompt as FastMCP lists and renders it."""
        needed = [PromptArgument(name=name, description=says, required=True) for name, says in prompt.arguments.items()]
        served = cls(name=prompt.name, description=prompt.description, arguments=needed)
        served._prompt = prompt
        return served

    async def render(self, arguments: dict[str, object] | None = None) -> PromptResult:
        """Render it for the verified caller."""
        given = arguments or {}
        missing = [name for name in self._prompt.arguments if name not in given]
        if missing:
            raise PromptError(f"The prompt needs `{missing[0]}`.")
        try:
            return PromptResult(await self._prompt.render(_for_client(given)))
        except ButlersError as refused:
            raise PromptError(str(refused)) from None


async def _read(resource: Resource, arguments: Arguments) -> ResourceResult:
    try:
        contents = await resource.read(_for_client(arguments))
    except ButlersError as refused:
        raise ResourceError(str(refused)) from None
    return ResourceResult([ResourceContent(content, mime_type=mime_type) for mime_type, content in contents])


def _for_client(arguments: Arguments) -> ToolCall:
    call = call_of(arguments)
    if call.caller.kind not in ACTING:
        raise Forbidden("A daemon reads no resource and no prompt, and neither does a classifier.")
    return call


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

    async def list_tools(self, *, run_middleware: bool = True) -> Sequence[McpTool]:
        """List the tools that whoever asks may call: those for daemons to a daemon alone, to a classifier none."""
        listed, token = await super().list_tools(run_middleware=run_middleware), get_access_token()
        kind = caller_of(token.claims).kind if token is not None else "client"
        is_daemon = kind == "hop"
        if not is_daemon and kind not in ACTING:
            return []
        return [tool for tool in listed if not isinstance(tool, ServedTool) or tool.is_for_daemons == is_daemon]

    def add(self, resources: Sequence[Resource], prompts: Sequence[Prompt]) -> None:
        """Serve these resources and prompts to clients."""
        for one in resources:
            if "{" in one.uri:
                self.add_template(ServedTemplate.of(one))
            else:
                self.add_resource(ServedResource.of(one))
        for prompt in prompts:
            self.add_prompt(ServedPrompt.of(prompt))


async def over_stdio(name: str, instructions: str, parts: Components) -> None:
    """Serve these tools, resources and prompts on this process's pipe until it closes."""
    AT_THE_PIPE.set(Caller(name, "client", "stdio"))
    tools = [ServedTool.of(tool) for tool in parts.tools]
    server = ToolServer(
        name, version=version("butlers"), instructions=instructions, mask_error_details=True, tools=tools
    )
    server.add(parts.resources, parts.prompts)
    await server.run_stdio_async(show_banner=False)


def skip_header_schemas(server: FastMCP) -> None:
    """Keep FastMCP from listing all tools on each call; we publish no Mcp-Param headers that it would check."""
    low = server._mcp_server  # noqa: SLF001  # no public hook; test_daemon fails if it goes
    if not hasattr(low, "get_tool_input_schema"):
        raise AttributeError("get_tool_input_schema")
    low.get_tool_input_schema = lambda _name: None
