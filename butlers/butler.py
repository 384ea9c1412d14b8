"""The central types: a tool, its call and result, a loop, the context a daemon works in, and the butler of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from cachetools import TTLCache
from pydantic import BaseModel, ConfigDict

from butlers.fleet import nearest
from shared.auth.tokens import Caller
from shared.config.settings import Settings
from shared.config.timings import STANDARD
from shared.db.pool import Database
from shared.db.wake import Wake
from shared.display.visible import shortened
from shared.errors import ButlersError, Misconfigured
from shared.model import Gate, Risk
from shared.retention import Kept
from shared.rpc import DaemonClient

if TYPE_CHECKING:  # half a second that a client command does not need
    from mcp_types import ContentBlock, InputRequest, InputResponse
    from starlette.types import ASGIApp

Kind = Literal["switchboard", "messenger", "console", "sandbox", "butler"]
Answer: TypeAlias = Mapping[str, object]
Arguments: TypeAlias = Mapping[str, object]
# Of those who call as a butler only these have tools: a session that classifies has none.
ACTING: Final = frozenset({"client", "session"})
# A schema's own words quote what they refuse.
_LONGEST_MISFIT: Final = 200
# A loop runs until the event is set, and survives a lost database by itself.
Loop: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]


async def _unheard(_: str) -> None:
    """Say nothing: the caller takes no progress."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool: who calls, with what, and what the client takes and offers."""

    caller: Caller
    arguments: Arguments
    # Whether anybody reads the answer; nobody does where a schedule's time has come.
    reads: bool = True
    # Whether the client reads an event stream; where not, a tool that waits answers within 50 seconds.
    streams: bool = False
    # Tell the client what the tool is at; a client that asked for no progress hears nothing.
    progress: Callable[[str], Awaitable[None]] = _unheard
    # What `Result.asks` may ask this client for: "roots", "elicitation", both or nothing.
    offers: frozenset[str] = frozenset()
    # What the client said to an earlier result's `asks`, by the same keys.
    inputs: Mapping[str, "InputResponse"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answers: an object, content blocks, or both; or what it asks the client for before it can."""

    answer: Answer | None = None
    blocks: Sequence["ContentBlock"] = ()
    is_error: bool = False
    # The client calls again, with its answers in `ToolCall.inputs`.
    asks: Mapping[str, "InputRequest"] = field(default_factory=dict)

    @classmethod
    def refused(cls, why: ButlersError) -> "Result":
        """Answer with the error's code and both its sentences."""
        return cls({"status": "error", "code": why.code, "error": str(why)})


@dataclass(frozen=True, slots=True)
class Tool:
    """One MCP tool: its published schema, and a handler that gets the raw arguments.

    The handler checks its own arguments, so that a refusal is an answer of the contract and not a protocol error.
    Tools with `hop` are for daemons, and answer with an object; the others are for clients of this butler.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    handler: Callable[[ToolCall], Awaitable[Result]]
    hop: bool = False
    read_only: bool = False
    # Answers as an event stream with progress, to a client that reads one; given up when that client leaves.
    waits: bool = False
    # The published schema of the object it answers with, if it always answers with one.
    output: Mapping[str, object] | None = None
    # Whether a call runs at once, when a standing rule or the owner lets it, or when the owner says yes to it.
    gate: Gate = "free"
    # What is of high risk no rule lets through.
    risk: Risk = "low"
    # Whether a machine may run the same call again when nobody knows whether it ran.
    repeatable: bool = False
    # What these arguments would do, in one sentence for the owner; called before anything is asked.
    says: Callable[[Arguments], str] | None = None

    def __post_init__(self) -> None:
        """Raise Misconfigured if the gate has nothing to show the owner."""
        if self.gate != "free" and (self.says is None or self.hop):
            raise Misconfigured(f"The tool `{self.name}` cannot be gated.", "Give it `says`, and leave out `hop`.")


def unfit(tools: Mapping[str, Tool], name: str, arguments: Arguments) -> Iterator[tuple[str, str]]:
    """Yield each reason why this call of a butler's own tool cannot be made, with its remedy. Pure."""
    own = [tool.name for tool in tools.values() if not tool.hop]
    if name not in own:
        yield f"the butler has no tool `{name}`.", nearest(name, own) or f"Choose from: {', '.join(own)}."
        return
    known = tools[name].parameters.get("properties")
    named = [*known] if isinstance(known, Mapping) else [*arguments]
    unknown = [key for key in arguments if key not in named]
    for key in unknown:
        hint = nearest(key, named) or f"Choose from: {', '.join(named)}."
        yield f"`arguments`: the tool `{name}` has no `{key}`.", hint
    wrong = misfit(tools[name], {key: value for key, value in arguments.items() if key not in unknown})
    if wrong is not None:
        yield f"`arguments`: the tool `{name}` cannot take them: {wrong}.", "Follow the tool's schema."


def misfit(tool: Tool, arguments: Arguments) -> str | None:
    """Return why the tool's schema does not allow these arguments, or None if it does. Pure."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415  # few calls are looked at before they are made
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    wrong = best_match(Draft202012Validator(tool.parameters).iter_errors(arguments))
    if wrong is None:
        return None
    where = ".".join(map(str, wrong.absolute_path))
    return shortened(f"`{where}`: {wrong.message}" if where else wrong.message, _LONGEST_MISFIT)


@dataclass(frozen=True, slots=True)
class Resource:
    """Something a client may read, by a URI or a template; the template's `{names}` come as arguments.

    `read` returns each content with its MIME type, text or bytes, or raises a ButlersError that says why not.
    """

    uri: str
    name: str
    description: str
    mime_type: str
    read: Callable[[ToolCall], Awaitable[Sequence[tuple[str, str | bytes]]]]
    # Whom it is for, "user" or "assistant", as a hint to clients; nobody in particular if it is empty.
    audience: Sequence[Literal["user", "assistant"]] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text a client may start from; `arguments` maps each name to its description, and all are required."""

    name: str
    description: str
    arguments: Mapping[str, str]
    render: Callable[[ToolCall], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Context:
    """What a daemon works in: everything that its tools and loops are made from."""

    name: str
    instance: str
    home: Path
    settings: Settings
    db: Database
    daemons: DaemonClient
    # A key of this daemon alone, for tags and cookies; never in SQL, logs or answers.
    secret: bytes = field(repr=False)
    new_id: Callable[[], str]
    # By topic. Woken within the process, and by a NOTIFY where another process may know; never so for `settled`.
    wakes: Mapping[str, Wake]
    # Whom this process refused lately, why, and on what it was tried: (caller, sentence, id or nothing).
    refused: TTLCache[tuple[str, str, str], bool, float] = field(default_factory=lambda: TTLCache(1024, STANDARD.quiet))
    # Set when this process is told to stop; a call that waits is then answered with how things stand.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    # All tools of the daemon by name, once they are built.
    tools: dict[str, Tool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Components:
    """What one butler adds to what every butler has."""

    tools: Sequence[Tool] = ()
    loops: Sequence[Loop] = ()
    resources: Sequence[Resource] = ()
    prompts: Sequence[Prompt] = ()
    # Extra reasons not to be ready, each a sentence.
    troubles: Callable[[], list[str]] = list
    # What /readyz adds although calls are answered.
    remarks: Callable[[], list[str]] = list
    close: Callable[[], Awaitable[None]] | None = None
    # Of a module: make sure that it can work, or raise a ButlersError that says what is missing. Tried again and again.
    start: Callable[[], Awaitable[None]] | None = None


def joined(parts: Sequence[Components]) -> Components:
    """Return several components as one; raise Misconfigured if two of their tools have the same name."""
    tools = [tool for part in parts for tool in part.tools]
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise Misconfigured(f"Two tools are called `{name}`.", "Take one of the two modules out of butler.toml.")
    closing = [part.close for part in parts if part.close is not None]

    async def close() -> None:
        for one in closing:
            await one()

    return Components(
        tools,
        [loop for part in parts for loop in part.loops],
        [one for part in parts for one in part.resources],
        [one for part in parts for one in part.prompts],
        lambda: [said for part in parts for said in part.troubles()],
        lambda: [said for part in parts for said in part.remarks()],
        close if closing else None,
    )


class NoConfig(BaseModel):
    """The configuration of a module that takes none."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Module:
    """A set of tools a butler may be given: a value called MODULE in the code that butler.toml names.

    `build` reads and writes nothing; `config` is a pydantic model of the module's table in butler.toml.
    """

    name: str
    build: Callable[[Context, Any], Components]
    config: type[BaseModel] = NoConfig
    # The folder of its chain of revisions (alembic), which make tables in the schema of its name.
    migrations: Path | None = None
    # What becomes of the words in its tables, by column.
    retention: Sequence[Kept] = ()


@dataclass(frozen=True, slots=True)
class Butler:
    """One member of the fleet: its name, what it is for, and what it adds."""

    name: str
    description: str
    kind: Kind = "butler"
    build: Callable[[Context], Components] = field(default=lambda _: Components())
    # Who it is, for the agents that speak through it.
    persona: str = ""
    # The daemons whose hop tokens it takes; None means every daemon's.
    accepts: frozenset[str] | None = None
    # Whether something thinks for it here, so that it can be written to.
    has_runtime: bool = False


@dataclass(frozen=True, slots=True)
class Daemon:
    """Something the host serves: an ASGI app on a port, and loops beside it."""

    name: str
    kind: Kind
    app: "ASGIApp"
    loops: Sequence[Loop] = ()
    # The names of its gated tools, about which there may be rules.
    tools: Sequence[str] = ()
    parts: Components = field(default_factory=Components)
    context: Context | None = None
    has_runtime: bool = False
