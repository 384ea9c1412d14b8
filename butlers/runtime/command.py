"""The runtime `command`: any program that reads a prompt, speaks MCP, and prints its words."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from butlers.runtime import child
from butlers.runtime.base import ANTHROPIC_KEY, OPENAI_KEY, Ended, Event, Job, Runtime, Said

CONFIG: Final = "{config}"
PERSONA: Final = "persona.md"
KEYS: Final = {"anthropic": ANTHROPIC_KEY, "openai": OPENAI_KEY}
_VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"


class CommandSettings(BaseModel):
    """The table of a butler for which a program thinks.

    Of its variables the child gets those in `environment`, and of `keys` the providers' own, such as OPENAI_API_KEY.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, max_length=100)] = Field(
        description="The program and its arguments; `{config}` becomes the path of its MCP configuration."
    )
    environment: dict[Annotated[str, Field(pattern=_VARIABLE)], str] = Field({}, description="More variables for it.")
    keys: frozenset[Literal["anthropic", "openai"]] = Field(frozenset(), description="Which keys it is given.")
    memory_mb: Annotated[int, Field(ge=64, le=65_536)] = Field(1024, description="The memory it may use, in MB.")


def missing(settings: CommandSettings, keys: Mapping[str, str]) -> str | None:
    """Return what is missing here in one sentence, or None."""
    for name in sorted(settings.keys):
        if KEYS[name] not in keys:
            return f"There is no {name} key: set {KEYS[name]}, or {KEYS[name]}_FILE."
    return not_found(settings.command[0])


def not_found(program: str) -> str | None:
    """Return that this program is not there, or None if it is."""
    if shutil.which(program):
        return None
    return f"`{program}` is not a program of this computer: install it, or give its full path as `command`."


def run(job: Job, stop: asyncio.Event) -> AsyncIterator[Event]:
    """Run the program with the prompt on its standard input; what it prints is what it says."""
    settings = CommandSettings.model_validate(job.settings)
    program, *words = settings.command
    config = job.folder / child.MCP_CONFIG
    handed = {f"{name.upper()}_API_KEY": job.environment.get(KEYS[name], "") for name in settings.keys}
    command = child.Command(
        (found(program), *(word.replace(CONFIG, str(config)) for word in words)),
        job.prompt,
        settings.memory_mb,
        {**settings.environment, **handed},
        {child.MCP_CONFIG: child.mcp_config, PERSONA: lambda job, _: job.persona},
    )
    said = _Said()
    return child.played(job, command, said.read, stop, said.finish)


def found(program: str) -> str:
    """Return the full path of a program, or its name where there is none."""
    where = shutil.which(program)
    return str(Path(where).absolute()) if where else program


class _Said:
    """All lines of a program so far."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def read(self, line: bytes) -> Iterator[Event]:
        """Say the line."""
        text = line.decode("utf-8", "replace").rstrip()
        self._lines.append(text)
        if text:
            yield Said(text)

    def finish(self, code: int | None) -> Ended | None:
        """Return the end of a program that ended well."""
        return Ended("done", "\n".join(self._lines).strip()) if code == 0 else None


COMMAND: Final = Runtime("command", CommandSettings, missing, run, is_told=False, is_counted=False)
