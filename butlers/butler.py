"""The central types: a tool, a loop, the context a daemon works in, and the butler made of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from cachetools import TTLCache

from shared.auth.tokens import Caller
from shared.config.settings import Settings
from shared.config.timings import STANDARD
from shared.db.pool import Database
from shared.db.wake import Wake
from shared.rpc import DaemonClient

Kind = Literal["switchboard", "messenger", "console", "sandbox", "butler"]
Answer: TypeAlias = Mapping[str, object]
Arguments: TypeAlias = Mapping[str, object]
# A loop runs until the event is set, and survives a lost database by itself.
Loop: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Tool:
    """One MCP tool: its published schema, and a handler that gets the caller and the raw arguments.

    The handler checks its own arguments, so that a refusal is an answer of the contract and not a protocol error.
    Tools with `hop` are for daemons, the others for clients of this butler.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    handler: Callable[[Caller, Arguments], Awaitable[Answer]]
    hop: bool = False
    read_only: bool = False


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
    # Whom this process refused lately, and why: (caller, sentence).
    refused: TTLCache[tuple[str, str], bool, float] = field(default_factory=lambda: TTLCache(1024, STANDARD.quiet))
    # Set when this process is told to stop; a call that waits is then answered with how things stand.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


class Module(Protocol):
    """A set of tools a butler may be given."""

    def tools(self, context: Context) -> list[Tool]:
        """Return the tools, bound to this context."""


@dataclass(frozen=True, slots=True)
class Components:
    """What one butler adds to what every butler has."""

    tools: list[Tool] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    # Extra reasons not to be ready, each a sentence.
    troubles: Callable[[], list[str]] = list
    # What /readyz adds although calls are answered.
    remarks: Callable[[], list[str]] = list
    close: Callable[[], Awaitable[None]] | None = None


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
