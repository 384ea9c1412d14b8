"""A stand-in for servers of models: Anthropic's Messages API and OpenAI's Chat Completions API on real HTTP.

It plays a list of answers, one for each turn, and keeps every request. What a test asserts is what the model read.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from aiohttp import web

Json: TypeAlias = Mapping[str, object]
Wire = Literal["messages", "chat"]
Fault = Literal["429", "529", "401", "cut", "nonsense", "slow"]

MESSAGES = "/v1/messages"
CHAT = "/v1/chat/completions"
INPUT, OUTPUT = 100, 20
"""The tokens that every answer says it took."""


@dataclass(frozen=True, slots=True)
class Words:
    """An answer of words alone, which ends the agent's turn."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """An answer that calls a tool."""

    tool: str
    arguments: Json = field(default_factory=dict)


CUT = Words("This sentence is cut in its middle.")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it came."""

    wire: Wire
    headers: Mapping[str, str]
    body: Json

    @property
    def key(self) -> str:
        """The key it bore."""
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def tools(self) -> list[str]:
        """The names of the tools the model is offered."""
        tools = cast("Sequence[Mapping[str, Mapping[str, str]]]", self.body.get("tools") or ())
        return [str(tool["function"]["name"] if self.wire == "chat" else tool["name"]) for tool in tools]

    @property
    def system(self) -> str:
        """Who the model is told to be."""
        if self.wire == "messages":
            return _text(self.body.get("system"))
        return "\n".join(_text(one["content"]) for one in self._messages if one["role"] in {"system", "developer"})

    @property
    def said(self) -> list[str]:
        """The texts of its user."""
        return [_text(one["content"]) for one in self._messages if one["role"] == "user"]

    @property
    def results(self) -> list[str]:
        """What the tools answered, as the model reads it."""
        if self.wire == "chat":
            return [_text(one["content"]) for one in self._messages if one["role"] == "tool"]
        return [_text(one) for one in self.blocks]

    @property
    def blocks(self) -> list[object]:
        """The same as they came, with their pictures; of the Messages API alone."""
        blocks = [block for one in self._messages if isinstance(one["content"], list) for block in one["content"]]
        return [block.get("content") for block in blocks if block["type"] == "tool_result"]

    @property
    def _messages(self) -> Sequence[Json]:
        return cast("Sequence[Json]", self.body["messages"])


Thinks: TypeAlias = Callable[[Asked], Words | Call]


def _text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(str(block.get("text", "")) for block in content)
    return str(content or "")


class ModelServer:
    """What it will answer, and what it was asked; once the answers are used up, the last one is given again."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.answers: list[Words | Call | Fault | Thinks] = []

    def play(self, *answers: Words | Call | Fault | Thinks) -> None:
        """Forget what was, and answer with these from now on; one that thinks is handed what is asked."""
        self.asked.clear()
        self.answers[:] = answers

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Note the request, and answer it with what comes next."""
        wire: Wire = "chat" if request.path == CHAT else "messages"
        asked = Asked(wire, {name.lower(): one for name, one in request.headers.items()}, await request.json())
        self.asked.append(asked)
        next_one = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        now = next_one(asked) if callable(next_one) else next_one
        match now:
            case "429" | "529" | "401":
                return _refused(wire, int(now))
            case "nonsense":
                return web.Response(text="<html>this is no model</html>", content_type="text/html")
            case "slow":
                await asyncio.sleep(3600)
                raise web.HTTPGatewayTimeout
            case "cut":
                return await _streamed(request, len(self.asked), asked, CUT)
            case Words() | Call():
                if asked.body.get("stream"):
                    return await _streamed(request, len(self.asked), asked, now)
                return web.json_response(_whole(wire, now, len(self.asked)))


@asynccontextmanager
async def model_server() -> AsyncIterator[ModelServer]:
    """One on a free port of 127.0.0.1, until the block is left."""
    made, app = ModelServer(), web.Application(client_max_size=20_000_000)
    app.router.add_post(MESSAGES, made.answer)
    app.router.add_post(CHAT, made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


def _refused(wire: Wire, status: int) -> web.Response:
    kinds = {429: "rate_limit_error", 529: "overloaded_error", 401: "authentication_error"}
    error = {"type": kinds[status], "message": f"The stand-in says {status}."}
    body = {"error": error} if wire == "chat" else {"type": "error", "error": error}
    return web.json_response(body, status=status, headers={"retry-after": "0"})


async def _streamed(request: web.Request, number: int, asked: Asked, now: Words | Call) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    events = list(_message_events(now, number) if asked.wire == "messages" else _chat_events(now))
    for event in events[: len(events) // 2] if now is CUT else events:
        await response.write(event.encode())
    if now is CUT and request.transport is not None:
        request.transport.abort()
    return response


def _message_events(now: Words | Call, number: int) -> Iterator[str]:
    """Yield the events of one message as Anthropic's servers send them."""
    usage = {"input_tokens": INPUT, "output_tokens": 1}
    start: Json = {**_message(now, number), "content": [], "stop_reason": None, "usage": usage}
    if isinstance(now, Words):
        empty: Json = {"type": "text", "text": ""}
        half = len(now.text) // 2
        deltas: list[Json] = [{"type": "text_delta", "text": part} for part in (now.text[:half], now.text[half:])]
    else:
        empty = {**_block(now), "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(now.arguments)}]
    delta = {"stop_reason": _message(now, number)["stop_reason"], "stop_sequence": None}
    events: list[Json] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        *({"type": "content_block_delta", "index": 0, "delta": one} for one in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": OUTPUT}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _chat_events(now: Words | Call) -> Iterator[str]:
    """Yield the chunks of one completion as OpenAI's servers send them."""
    if isinstance(now, Words):
        half = len(now.text) // 2
        deltas: list[Json] = [{"role": "assistant", "content": now.text[:half]}, {"content": now.text[half:]}]
    else:
        call: Json = {"index": 0, **_tool_call(now)}
        deltas = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    choices: list[list[Json]] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices += [[{"index": 0, "delta": {}, "finish_reason": _finish(now)}], []]
    for number, choice in enumerate(choices):
        usage = _chat_usage() if number == len(choices) - 1 else None
        chunk: Json = {**_completion("chat.completion.chunk"), "choices": choice, "usage": usage}
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


def _whole(wire: Wire, now: Words | Call, number: int) -> Json:
    if wire == "messages":
        return _message(now, number)
    message: dict[str, object] = {"role": "assistant", "content": now.text if isinstance(now, Words) else None}
    if isinstance(now, Call):
        message["tool_calls"] = [_tool_call(now)]
    choice = {"index": 0, "message": message, "finish_reason": _finish(now), "logprobs": None}
    return {**_completion("chat.completion"), "choices": [choice], "usage": _chat_usage()}


def _message(now: Words | Call, number: int) -> Json:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [_block(now)],
        "stop_reason": "end_turn" if isinstance(now, Words) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT, "output_tokens": OUTPUT},
    }


def _block(now: Words | Call) -> Json:
    if isinstance(now, Words):
        return {"type": "text", "text": now.text}
    return {"type": "tool_use", "id": f"toolu_{id(now)}", "name": now.tool, "input": now.arguments}


def _completion(kind: str) -> Json:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_790_000_000, "model": "gpt-5"}


def _tool_call(now: Call) -> Json:
    function = {"name": now.tool, "arguments": json.dumps(now.arguments)}
    return {"id": f"call_{id(now)}", "type": "function", "function": function}


def _finish(now: Words | Call) -> str:
    return "stop" if isinstance(now, Words) else "tool_calls"


def _chat_usage() -> Json:
    return {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
