"""What a runtime is: one job in, a stream of events out, of which the last and only the last is the end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel

ANTHROPIC_KEY: Final = "BUTLERS_ANTHROPIC_API_KEY"
OPENAI_KEY: Final = "BUTLERS_OPENAI_API_KEY"
BASE_URL: Final = "BUTLERS_MODEL_BASE_URL"

Outcome: TypeAlias = Literal["done", "failed", "limit"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one session may take; the first that is reached ends it."""

    minutes: float = 10
    turns: int = 30
    tokens: int = 200_000
    dollars: float = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """One session's work: who it is, what it is asked, and its one way out, which is MCP to its own butler at `url`.

    `folder` is the session's own and is removed after it; `environment` holds the keys there are, by their variable's
    name, of which a runtime hands its child those that it needs.
    """

    session_id: str
    butler: str
    persona: str
    prompt: str
    url: str
    token_file: Path
    folder: Path
    limits: Limits
    settings: BaseModel
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    # The word by which its agent knows what of the notices is genuine; empty if it is shown none.
    nonce: str = ""
    # The words of the prompt as they were written, without the blocks that tell a model whose they are.
    words: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """Words of the agent's, the final ones too."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """The agent calls this tool of its butler; said before the answer."""

    tool: str


@dataclass(frozen=True, slots=True)
class Used:
    """All that the session has used so far."""

    turns: int
    tokens: int
    dollars: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended: the agent's final words if it is done, else one sentence that says why."""

    outcome: Outcome
    text: str
    # The process was killed: what ran did not decide that it ends.
    died: bool = False


Event: TypeAlias = Said | Called | Used | Ended


@dataclass(frozen=True, slots=True)
class Runtime:
    """One kind of runtime: its name, what its table in butler.toml may hold, and how it runs.

    `missing` says in one sentence why it cannot run here, or None if it can; it is handed its settings and the keys.
    `run` plays one job until the event is set, and close it (`aclosing`) to end the child at once. It raises nothing:
    whatever goes wrong is its last event.
    """

    name: str
    config: type[BaseModel]
    missing: Callable[[Any, Mapping[str, str]], str | None]
    run: Callable[[Job, asyncio.Event], AsyncIterator[Event]]
    # Whether what stands beside its tool's result is read, and whether the owner's words may be told it there, instead
    # of beginning a session: whoever is told has to see to them before it ends.
    hears: bool = True
    is_told: bool = True
    # Whether it says what its sessions use; where it does not, of their limits the minutes alone bind them.
    is_counted: bool = True


def reached(limits: Limits, used: Used) -> str | None:
    """Return the sentence of the first limit that is exceeded, or None."""
    if used.turns > limits.turns:
        return f"The session reached its limit of {limits.turns} turns."
    if used.tokens > limits.tokens:
        return f"The session reached its limit of {limits.tokens} tokens."
    if used.dollars > limits.dollars:
        return f"The session reached its limit of {limits.dollars:g} dollars."
    return None
