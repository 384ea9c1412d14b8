"""What a butler's own tools, resources and prompts may answer, as clients of both protocol eras get it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import pytest
import pytest_asyncio
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import ImageContent, ListRootsRequest, ListRootsResult, TextContent

from butlers.butler import Butler, Components, Context, Daemon, Prompt, Resource, Result, Tool, ToolCall
from butlers.daemon.app import build
from butlers.daemon.directory import Directory
from shared.auth.tokens import Verifier
from shared.errors import InvalidInput
from shared.rpc import request_of
from tests.integration.daemon.test_daemon import ERAS, Era, Served, served
from tests.integration.daemon.test_notices import begun, words
from tests.integration.house import House
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="module")
PIXEL: Final = base64.b64encode(b"a picture").decode()
ANY: Final = {"type": "object"}


async def drawn(_: ToolCall) -> Result:
    return Result({"drawn": "a cat"}, [ImageContent(type="image", data=PIXEL, mime_type="image/png")])


async def refused(call: ToolCall) -> Result:
    raise InvalidInput(f"There is no {call.arguments['what']}.", "Draw a cat.")


async def failed(_: ToolCall) -> Result:
    return Result(blocks=[TextContent(type="text", text="The pencil broke.")], is_error=True)


async def watched(call: ToolCall) -> Result:
    for step in ("sharpening", "drawing"):
        await call.progress(step)
    return Result({"streams": call.streams, "offers": sorted(call.offers)})


async def where(call: ToolCall) -> Result:
    if "roots" in call.offers and not call.inputs:
        return Result(asks={"roots": ListRootsRequest()})
    said = [answer for answer in call.inputs.values() if isinstance(answer, ListRootsResult)]
    return Result({"roots": [str(root.uri) for answer in said for root in answer.roots]})


async def listed(call: ToolCall) -> Result:
    if call.arguments.get("half"):
        return Result({str(call.arguments["key"]): "a \ud83d"}, [TextContent(type="text", text="a \ud83d")])
    return Result({str(call.arguments["key"]): frozenset[str]() if call.arguments.get("odd") else []})


async def gallery(_: ToolCall) -> Sequence[tuple[str, str | bytes]]:
    return [("application/json", json.dumps(["cat"]))]


async def picture(call: ToolCall) -> Sequence[tuple[str, str | bytes]]:
    if call.arguments["name"] != "cat":
        raise InvalidInput("There is no such picture.", "Read gallery://all.")
    return [("image/png", b"a picture"), ("application/json", '{"name": "cat"}')]


async def brief(call: ToolCall) -> str:
    return f"Draw {call.arguments['what']} for {call.caller.name}."


TOOLS: Final = [
    Tool("draw", "Draw.", ANY, drawn),
    Tool("refuse", "Refuse.", ANY, refused),
    Tool("fail", "Fail.", ANY, failed),
    Tool("watch", "Watch.", ANY, watched, waits=True),
    Tool("where", "Where.", ANY, where, waits=True),
    Tool("list", "List.", ANY, listed),
]
RESOURCES: Final = [
    Resource("gallery://all", "gallery", "All pictures.", "application/json", gallery),
    Resource("gallery://picture/{name}", "picture", "One picture.", "image/png", picture),
]
PROMPTS: Final = [Prompt("brief", "A brief for a picture.", {"what": "What to draw."}, brief)]


def painter(_: Context) -> Components:
    return Components(TOOLS, resources=RESOURCES, prompts=PROMPTS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def butler(house: House) -> AsyncIterator[Served]:
    def make(url: str) -> Daemon:
        context, directory = house.context("greeter"), house.assembly.directory
        is_live = Directory(context.db).is_live
        verifier = Verifier("greeter", directory.keys_of, directory.clock, is_live=is_live)
        return build(Butler("greeter", "Paints.", build=painter), context, verifier, [url.removeprefix("http://")])[0]

    async for one in served(house, "greeter", make):
        yield one


@pytest.mark.parametrize("era", ERAS)
async def test_a_picture_goes_out_beside_its_object(butler: Served, era: Era) -> None:
    async with butler.client(era) as client:
        answer = await client.call_tool("draw", {})
    assert answer.structured_content == {"drawn": "a cat"}
    assert [block.type for block in answer.content] == ["text", "image"]
    assert json.loads(answer.content[0].text) == {"drawn": "a cat"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_and_a_failure_are_errors_in_their_own_words(butler: Served, era: Era) -> None:
    async with butler.client(era) as client:
        with pytest.raises(ToolError, match=r"^There is no dog\. Draw a cat\.$"):
            await client.call_tool("refuse", {"what": "dog"})
        with pytest.raises(ToolError, match=r"^The pencil broke\.$"):
            await client.call_tool("fail", {})


@pytest.mark.parametrize(
    "asked", [{"key": "notifications"}, {"key": "made", "odd": True}], ids=["the key of the block", "no JSON"]
)
async def test_a_result_that_has_no_room_for_the_owners_words_takes_none(
    butler: Served, asked: Mapping[str, object]
) -> None:
    _, bearer = await begun(butler.house)
    await words(butler.house)
    assert "Make it blue." not in (await butler.post(bearer, "list", asked))[1]
    assert "Make it blue." in (await butler.post(bearer, "list", {"key": "made"}))[1]


@pytest.mark.parametrize("era", ERAS)
async def test_half_a_character_is_replaced_before_it_leaves(butler: Served, era: Era) -> None:
    async with butler.client(era) as client:
        answer = await client.call_tool("list", {"key": "cut", "half": True})
    assert answer.structured_content == {"cut": "a ?"}
    assert answer.content[1].text == "a ?"


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_waits_says_how_far_it_is(butler: Served, era: Era) -> None:
    said: list[str | None] = []

    async def heard(_: float, __: float | None, message: str | None) -> None:
        said.append(message)

    async with butler.client(era) as client:
        answer = await client.call_tool("watch", {}, progress_handler=heard)
    assert answer.structured_content == {"streams": True, "offers": []}
    assert said == ["sharpening", "drawing"]


def with_progress(house: House, tool: str) -> tuple[dict[str, str], Mapping[str, object]]:
    """The headers and the body of a raw call that asks for progress."""
    headers, body = request_of(house.tokens["greeter"], tool, {}, 1)
    whole = json.loads(json.dumps(body))
    whole["params"]["_meta"]["progressToken"] = 1
    return dict(headers), whole


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
async def test_only_a_tool_that_waits_answers_as_a_stream(butler: Served, accept: str) -> None:
    kinds = {}
    for tool in ("draw", "watch"):
        headers, body = with_progress(butler.house, tool)
        async with butler.http.post(f"{butler.url}/mcp", json=body, headers={**headers, "accept": accept}) as answer:
            kinds[tool] = answer.content_type
            await answer.read()
    streamed = "text/event-stream" if "stream" in accept else "application/json"
    assert kinds == {"draw": "application/json", "watch": streamed}


async def test_a_tool_that_waits_stays_closed_without_a_token(butler: Served) -> None:
    status, _ = await butler.post(None, "watch")
    assert status == 401
    _, said = await butler.post(butler.hop_token("health"), "watch")
    assert "not available to a hop" in said


async def test_a_client_is_asked_for_what_it_offers(butler: Served) -> None:
    transport = StreamableHttpTransport(f"{butler.url}/mcp", auth=butler.house.tokens["greeter"])
    async with Client(transport, roots=["file:///pictures"]) as client:
        assert (await client.call_tool("where", {})).structured_content == {"roots": ["file:///pictures"]}
    async with butler.client() as client:
        assert (await client.call_tool("where", {})).structured_content == {"roots": []}


@pytest.mark.parametrize("era", ERAS)
async def test_resources_and_prompts_are_listed_and_read(butler: Served, era: Era) -> None:
    async with butler.client(era) as client:
        assert [str(one.uri) for one in await client.list_resources()] == ["gallery://all"]
        assert [one.uri_template for one in await client.list_resource_templates()] == ["gallery://picture/{name}"]
        (listing,) = await client.read_resource("gallery://all")
        image, about = await client.read_resource("gallery://picture/cat")
        (prompt,) = await client.list_prompts()
        text = await client.get_prompt("brief", {"what": "a cat"})
        with pytest.raises(MCPError, match=r"There is no such picture\. Read gallery://all\."):
            await client.read_resource("gallery://picture/dog")
        with pytest.raises(MCPError, match=r"The prompt needs `what`\."):
            await client.get_prompt("brief", {})
    assert (listing.mime_type, json.loads(listing.text)) == ("application/json", ["cat"])
    assert (image.mime_type, image.blob, about.mime_type) == ("image/png", PIXEL, "application/json")
    assert [(one.name, one.required) for one in prompt.arguments or ()] == [("what", True)]
    assert text.messages[0].content.text == "Draw a cat for greeter."


async def test_a_daemon_reads_no_resource(butler: Served) -> None:
    transport = StreamableHttpTransport(f"{butler.url}/mcp", auth=butler.hop_token("health"))
    async with Client(transport) as client:
        with pytest.raises(MCPError, match="A daemon reads no resource"):
            await client.read_resource("gallery://all")


@pytest.mark.parametrize("tool", ["wait", "work"])
async def test_a_client_that_leaves_ends_only_a_tool_that_waits(house: House, tool: str) -> None:
    begun, ended, free, over = (asyncio.Event() for _ in range(4))

    async def work(_: ToolCall) -> Result:
        begun.set()
        try:
            await free.wait()
        except asyncio.CancelledError:
            ended.set()
            raise
        over.set()
        return Result({})

    tools = [Tool("work", "Work.", ANY, work), Tool("wait", "Wait.", ANY, work, waits=True)]

    def make(url: str) -> Daemon:
        context, directory = house.context("greeter"), house.assembly.directory
        verifier = Verifier("greeter", directory.keys_of, directory.clock, is_live=Directory(context.db).is_live)
        made = Butler("greeter", "Works.", build=lambda _: Components(tools))
        return build(made, context, verifier, [url.removeprefix("http://")])[0]

    async for one in served(house, "greeter", make):
        headers, body = with_progress(house, tool)
        stream = {**headers, "accept": "application/json, text/event-stream"}
        calling = asyncio.create_task(one.http.post(f"{one.url}/mcp", json=body, headers=stream))
        async with asyncio.timeout(LONGEST):
            await begun.wait()
            calling.cancel()
            if tool == "wait":
                await ended.wait()
            else:
                await asyncio.sleep(0.2)  # time for the server to notice
                free.set()
                await over.wait()
        assert not (ended.is_set() and over.is_set())
