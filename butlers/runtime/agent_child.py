"""The process of a session for which a model thinks; nothing else of ours is in it, and it is run by its path.

On standard input it gets one JSON object, its key is in its environment; each line that it prints is a JSON object with
one event.
"""

import asyncio
import json
import re
import sys
import warnings
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import ModelHTTPError, ModelRetry, UsageLimitExceeded
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.usage import UsageLimits

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.mcp import CallToolFunc, ToolResult
    from pydantic_ai.models import Model

T = TypeVar("T")
LONGEST_SENTENCE = 300
NOTIFICATION_TOOL = "_system_notification"
# What every model takes beside words; a file of any other type would end the session.
READ = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


def model_of(name: str) -> "Model":
    """Return the model; only its provider's library is loaded, which takes tens of megabytes."""
    provider, _, model = name.partition(":")
    if provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415  # as said above

        return AnthropicModel(model)
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415  # as said above

    return OpenAIChatModel(model)


class Apart:
    """Notices as events of their own: a call that the model did not make, with the block as its result.

    There is no tool of that name, so the model cannot call it. A block counts if it bears the session's nonce: what a
    tool answers may hold a text that looks like one. The block of an error stays with it.
    """

    def __init__(self, nonce: str) -> None:
        self._genuine = re.compile(rf'<notifications? [^<>]*\bnonce="{re.escape(nonce)}"[^<>]*>')
        # By the call with whose result it came.
        self._blocks: dict[str, tuple[str, str]] = {}

    async def take(
        self, ctx: "RunContext[Any]", call: "CallToolFunc", name: str, arguments: dict[str, object]
    ) -> "ToolResult":
        """Call the tool, and keep the block out of its result."""
        result = await call(name, arguments)
        if isinstance(result, dict) and self._is_genuine(result.get("notifications")):
            self._keep(ctx, result["notifications"])
            return {key: value for key, value in result.items() if key != "notifications"}
        if isinstance(result, list) and len(result) > 1 and self._is_genuine(result[-1]):
            self._keep(ctx, result[-1])
            return result[:-1]
        return result

    def _is_genuine(self, last: object) -> bool:
        return isinstance(last, str) and self._genuine.match(last.lstrip()) is not None

    def _keep(self, ctx: "RunContext[Any]", block: str) -> None:
        self._blocks[str(ctx.tool_call_id)] = (f"notif_{uuid4()}", block.lstrip())

    def told(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return the history with each block behind the results that it came with, once."""
        known = {part.tool_call_id for one in messages for part in one.parts if isinstance(part, ToolCallPart)}
        whole = list[ModelMessage]()
        for one in messages:
            whole.append(one)
            came = [part.tool_call_id for part in one.parts if isinstance(part, ToolReturnPart)]
            for notice, block in (self._blocks[call] for call in came if call in self._blocks):
                if notice not in known:
                    whole.append(ModelResponse([ToolCallPart(NOTIFICATION_TOOL, {}, notice)]))
                    whole.append(ModelRequest([ToolReturnPart(NOTIFICATION_TOOL, block, notice)]))
        return whole


def readable(one: T) -> T | str:
    """Return a part of a tool's answer, or in place of a file that no model takes a sentence for the model."""
    if isinstance(one, BinaryContent) and one.media_type not in READ:
        return f"(A file of the type {one.media_type}, which cannot be read here.)"
    return one


def has_done(ctx: "RunContext[Any]", said: str | None) -> str | None:
    """Let a session end without a word once something is done, and ask the model again where nothing is."""
    if said is None and ctx.usage.tool_calls == 0:
        raise ModelRetry("Say something, or call a tool.")
    return said


async def think(job: Mapping[str, object], limits: Mapping[str, float]) -> str:
    """Ask the model, carry out what it calls, and so on until it has said its last; return that."""
    apart = Apart(str(job["synthetic"])) if job.get("synthetic") else None

    async def take(
        ctx: "RunContext[Any]", call: "CallToolFunc", name: str, arguments: dict[str, object]
    ) -> "ToolResult":
        answer = await (call(name, arguments) if apart is None else apart.take(ctx, call, name, arguments))
        return [readable(one) for one in answer] if isinstance(answer, list) else readable(answer)

    butler = MCPToolset(str(job["url"]), auth=str(job["token"]), tool_error_behavior="failed", process_tool_call=take)
    abilities = [ProcessHistory(apart.told)] if apart is not None else []
    agent: Agent[object, str | None] = Agent(
        model_of(str(job["model"])),
        output_type=[str, type(None)],
        instructions=str(job["persona"]),
        toolsets=[butler],
        capabilities=abilities,
        # A slip is told to the model, which may go on: its turns bound it.
        retries={"tools": int(limits["turns"])},
    )
    agent.output_validator(has_done)
    most = UsageLimits(
        request_limit=int(limits["turns"]),
        total_tokens_limit=int(limits["tokens"]),
        cost_limit=Decimal(str(limits["dollars"])),
    )
    async with butler, agent.iter(str(job["prompt"]), usage_limits=most) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                try:
                    async with node.stream(run.ctx) as stream:
                        async for _ in stream:
                            pass
                finally:
                    # What exceeds a limit, or breaks off, is paid for all the same.
                    say(used=[run.usage.requests, run.usage.total_tokens, float(run.usage.cost or 0)])
            elif Agent.is_call_tools_node(node):
                tell(node.model_response)
        return str(run.result.output or "") if run.result else ""


def tell(response: ModelResponse) -> None:
    """Say what the model said and calls."""
    for part in response.parts:
        if isinstance(part, TextPart) and part.content.strip():
            say(said=part.content)
        elif isinstance(part, ToolCallPart):
            say(called=part.tool_name)


def main() -> None:
    """Play the job, and say how it ended."""
    warnings.simplefilter("ignore")
    job = json.load(sys.stdin)
    job["token"] = Path(job["token_file"]).read_text(encoding="utf-8").strip()
    try:
        last = asyncio.run(think(job, job["limits"]))
    except UsageLimitExceeded:
        # Of tokens and dollars what was used says it.
        say(ended="limit", text=f"The session reached its limit of {job['limits']['turns']} turns.")
    else:
        say(ended="done", text=last)


def sentence_of(failed: BaseException) -> str:
    """Return what went wrong in one line: of several, the first."""
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    if isinstance(failed, ModelHTTPError):
        return f"The model's server refused the request ({failed.status_code})."
    return f"The model's session failed: {' '.join(str(failed).split()) or type(failed).__name__}"[:LONGEST_SENTENCE]


def give_up(_kind: type[BaseException], failed: BaseException, _trace: object) -> None:
    """Say what nothing else has caught, in place of a traceback."""
    say(ended="failed", text=sentence_of(failed))


def say(**event: object) -> None:
    """Print one event."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.excepthook = give_up
    main()
