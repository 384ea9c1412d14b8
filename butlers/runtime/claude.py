"""The runtime `claude`: the Claude Code command line, with none of its own tools, settings or memories."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from butlers.runtime import child
from butlers.runtime.base import ANTHROPIC_KEY, BASE_URL, Called, Ended, Event, Job, Limits, Runtime, Said, Used
from butlers.runtime.command import PERSONA, found, not_found

MEMORY_MB: Final = 4096
# It waits for its butler before it asks the model, as otherwise the model may be offered no tool; and it gives up soon.
QUIET: Final = {
    "MCP_CONNECTION_NONBLOCKING": "0",
    "CLAUDE_CODE_MAX_RETRIES": "3",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}
# What it says where it ended for a limit that it was given.
OF_LIMITS: Final = {
    "error_max_turns": "The session reached its limit of {0.turns} turns.",
    "error_max_budget_usd": "The session reached its limit of {0.dollars:g} dollars.",
}


class ClaudeSettings(BaseModel):
    """The table of a butler for which Claude Code thinks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[str, Field(min_length=1)] = Field("claude", description="Found on PATH, or a full path.")
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]*$")] | None = Field(
        None, description="Claude Code's own choice if it is left out."
    )


def missing(settings: ClaudeSettings, keys: Mapping[str, str]) -> str | None:
    """Return what is missing here in one sentence, or None."""
    if ANTHROPIC_KEY not in keys:
        return f"Claude Code has no key: set {ANTHROPIC_KEY}, or {ANTHROPIC_KEY}_FILE."
    return not_found(settings.command)


def run(job: Job, stop: asyncio.Event) -> AsyncIterator[Event]:
    """Run the command line once, with its butler as the only source of tools."""
    settings = ClaudeSettings.model_validate(job.settings)
    environment = {**QUIET, "ANTHROPIC_API_KEY": job.environment.get(ANTHROPIC_KEY, "")}
    if BASE_URL in job.environment:
        environment["ANTHROPIC_BASE_URL"] = job.environment[BASE_URL]
    files = {child.MCP_CONFIG: child.mcp_config, PERSONA: lambda job, _: job.persona}
    command = child.Command(_words(job, settings), job.prompt, MEMORY_MB, environment, files, paid=True)
    return child.played(job, command, _Reader(job).read, stop)


def _words(job: Job, settings: ClaudeSettings) -> list[str]:
    """Return the command; what is secret or private stands in files that it names."""
    words = [found(settings.command), "--print", "--bare", "--no-session-persistence", "--strict-mcp-config"]
    words += ["--output-format=stream-json", "--verbose", "--tools", ""]
    words += [f"--mcp-config={job.folder / child.MCP_CONFIG}", f"--allowedTools=mcp__{job.butler}"]
    words += [f"--system-prompt-file={job.folder / PERSONA}"]
    words += [f"--max-turns={job.limits.turns}", f"--max-budget-usd={job.limits.dollars}"]
    return [*words, f"--model={settings.model}"] if settings.model else words


class _Reader:
    """What the lines of one run tell: turns and tokens are counted by the model's messages."""

    def __init__(self, job: Job) -> None:
        self._prefix = f"mcp__{job.butler}__"
        self._limits: Limits = job.limits
        self._tokens: dict[str, int] = {}

    def read(self, line: bytes) -> Iterator[Event]:
        """Read one JSON line; what is none tells nothing."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        match message:
            case {"type": "assistant", "message": {"model": "<synthetic>"}}:
                return  # an error of its own, which its result tells
            case {"type": "assistant", "message": {"id": str(number), "content": list(blocks), **rest}}:
                yield from self._assistant(number, blocks, rest.get("usage"))
            case {"type": "system", "subtype": "init", "mcp_servers": servers} if not _connected(servers):
                yield Ended("failed", "Claude Code could not reach its butler, or its token was refused.")
            case {"type": "result", "subtype": str(subtype)}:
                yield from self._result(subtype, message)
            case _:
                pass

    def _assistant(self, number: str, blocks: list[object], usage: object) -> Iterator[Event]:
        for block in blocks:
            match block:
                case {"type": "text", "text": str(text)} if text.strip():
                    yield Said(text)
                case {"type": "tool_use", "name": str(name)}:
                    yield Called(name.removeprefix(self._prefix))
                case _:
                    pass
        self._tokens[number] = _total(usage)
        # Only its end says what it cost. What has none may have cost all that it was allowed.
        yield Used(len(self._tokens), sum(self._tokens.values()), self._limits.dollars)

    def _result(self, subtype: str, message: Mapping[str, object]) -> Iterator[Event]:
        cost = message.get("total_cost_usd")
        tokens = max(_total(message.get("usage")), sum(self._tokens.values()))
        yield Used(len(self._tokens), tokens, float(cost) if isinstance(cost, int | float) else 0.0)
        text = str(message.get("result") or "")
        if subtype in OF_LIMITS:
            yield Ended("limit", OF_LIMITS[subtype].format(self._limits))
        elif subtype == "success" and not message.get("is_error"):
            yield Ended("done", text)
        else:
            why = text or "; ".join(str(one) for one in _listed(message.get("errors"))) or subtype
            yield Ended("failed", f"Claude Code failed: {why[: child.LONGEST_SENTENCE]}")


def _connected(servers: object) -> bool:
    """Return whether its one server is there."""
    return [one.get("status") for one in _listed(servers) if isinstance(one, dict)] == ["connected"]


def _total(usage: object) -> int:
    """Return all tokens of a usage, read from a cache or not."""
    counted = usage if isinstance(usage, dict) else {}
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(one for name in names if isinstance(one := counted.get(name), int))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


CLAUDE: Final = Runtime("claude", ClaudeSettings, missing, run)
