"""The contract, leaf by leaf, as tools, resources and prompts are published and answered, over each way in."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import pytest_asyncio
import yaml
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp.client.client import Client as SdkClient
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    GetPromptResult,
    ListRootsResult,
    Prompt,
    Resource,
    ResourceTemplate,
    Root,
    TextContent,
    TextResourceContents,
    Tool,
)

from butlers.daemon.mcp_server import with_room
from butlers.modules.manictime import ManicTime
from butlers.modules.manictime.answers import form
from butlers.modules.manictime.tools.screenshots import Desk
from tests.integration.daemon.test_daemon import READ_ONLY
from tests.integration.house import opened as house_opened
from tests.manictime.desks import asked
from tests.manictime.test_over_http import timekeeper
from tests.rig.cluster import Cluster

HERE = Path(__file__).parent
ROOT = Path(__file__).parents[2]
CONTRACT: Final[Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "contract.yaml").read_text())
TOOLS, RESOURCES, PROMPTS = (CONTRACT[name] for name in ("tools", "resources", "prompts"))
CORE: Final = {*READ_ONLY, "notify", "withdraw", "ask_user"}
KNOWN: Final = {
    "": {"blocks", "tools", "resources", "prompts", "capabilities", "removed"},
    "tools": {"takes", "gives", "blocks", "held", "writes"},
    "takes": {"type", "default", "required", "most", "choices"},
    "resources": {"mime", "has"},
    "prompts": {"takes", "wrong", "says"},
}
Opened: TypeAlias = "Client[Any] | OfficialClient"
# Over both transports, of both clients, in both eras of the protocol.
FIRST, *OTHERS = itertools.product(("stdio", "http"), ("fastmcp", "sdk"), ("auto", "legacy"))
WAYS: Final = (FIRST, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS))
# What a whole record need not have.
ABSENT: Final = {"name", "groupId", "tags", "totalAvailable", "reasonCode", "remediationHint", "application"}
SOME: Final[dict[str, object]] = {"startDate": "2025-01-20", "endDate": "2025-01-23"}
pytestmark = pytest.mark.asyncio(loop_scope="module")


class OfficialClient:
    """The official Python SDK's client, asked as FastMCP's is."""

    def __init__(self, client: SdkClient) -> None:
        self._client = client

    async def list_tools(self) -> list[Tool]:
        return (await self._client.list_tools()).tools

    async def call_tool(self, name: str, given: Mapping[str, object], *, raise_on_error: bool = True) -> CallToolResult:
        made = await self._client.call_tool(name, dict(given))
        assert not (raise_on_error and made.is_error), made.content
        return made

    async def list_resources(self) -> list[Resource]:
        return (await self._client.list_resources()).resources

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        return (await self._client.list_resource_templates()).resource_templates

    async def read_resource(self, uri: str) -> list[TextResourceContents | BlobResourceContents]:
        return (await self._client.read_resource(uri)).contents

    async def list_prompts(self) -> list[Prompt]:
        return (await self._client.list_prompts()).prompts

    async def get_prompt(self, name: str, given: dict[str, str]) -> GetPromptResult:
        return await self._client.get_prompt(name, given)


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[Cluster | None, str, Any]:
    """The database of a butler that is asked over HTTP, the kind of client, and its era."""
    transport, kind, era = request.param
    return request.getfixturevalue("cluster") if transport == "http" else None, kind, era


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(real: Path, way: tuple[Cluster | None, str, Any]) -> AsyncIterator[Opened]:
    """A client of either kind and era that started the server itself, or is let in by a butler."""
    cluster, kind, era = way
    root = (real / "saved").as_uri()
    ways = by_a_butler(real, kind, cluster) if cluster else by_itself(real, kind)
    async for opening in ways:
        if kind == "fastmcp":
            async with Client(opening, mode=era, roots=[root]) as made:
                yield made
        else:
            async for official in opened(SdkClient(opening, mode=era, list_roots_callback=partial(roots, root))):
                yield OfficialClient(official)


async def by_itself(real: Path, kind: str) -> AsyncIterator[Any]:
    """How a client of this kind starts the server itself."""
    arguments = ["-m", "butlers.cli", "manictime", "mcp", "--data", str(real), "--timezone", "Europe/Vienna"]
    program, root = str(ROOT / ".venv/bin/python"), str(ROOT)
    if kind == "fastmcp":
        yield StdioTransport(program, arguments, cwd=root)
    else:
        yield StdioServerParameters(command=program, args=arguments, cwd=root)


async def by_a_butler(real: Path, kind: str, cluster: Cluster) -> AsyncIterator[Any]:
    """How a client of this kind reaches a butler that has the module, which no older client can tell its roots."""
    config = ManicTime(data=real, timezone="Europe/Vienna", roots=[real / "saved"])
    async with house_opened(cluster) as house:
        async for butler in timekeeper(house, config):
            url, token = f"{butler.url}/mcp", house.tokens["greeter"]
            if kind == "fastmcp":
                yield StreamableHttpTransport(url, auth=token)
            else:
                async with create_mcp_http_client(headers={"authorization": f"Bearer {token}"}) as http:
                    yield streamable_http_client(url, http_client=http)


async def roots(root: str, _: ClientRequestContext) -> ListRootsResult:
    return ListRootsResult(roots=[Root.model_validate({"uri": root})])


async def opened(client: SdkClient) -> AsyncIterator[SdkClient]:
    """Hold a client in one task from its beginning to its end, as its task groups need it."""
    ready, over = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def hold() -> None:
        async with client as made:
            ready.set_result(made)
            await over.wait()

    holding = asyncio.create_task(hold())
    await asyncio.wait([ready, holding], return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        await holding
    yield ready.result()
    over.set()
    await holding


@cache
def held() -> list[tuple[str, str]]:
    return [(tool, test) for tool, said in TOOLS.items() for test in said.get("held", {}).values()]


async def test_no_leaf_is_left_out() -> None:
    """Every key of the contract is one that a test here looks at."""
    assert set(CONTRACT) == KNOWN[""]
    for section, parts in (("tools", TOOLS), ("resources", RESOURCES), ("prompts", PROMPTS)):
        for name, said in parts.items():
            assert set(said) <= KNOWN[section], name
    for name, said in TOOLS.items():
        for param in said["takes"].values():
            assert set(param) <= KNOWN["takes"], name


@pytest.mark.parametrize(("tool", "test"), held())
async def test_each_fact_is_held_by_a_test(tool: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in await asyncio.to_thread((HERE / file).read_text), tool


async def test_there_are_these_tools_and_no_other(client: Opened) -> None:
    names = {one.name for one in await client.list_tools()}
    core = {"recall", *CORE} if "notify" in names else set[str]()
    assert names - core == set(TOOLS)
    assert len(TOOLS) == 14
    assert not set(CONTRACT["removed"]) & set(names)


@pytest.mark.parametrize("name", TOOLS)
async def test_a_tool_is_published_as_promised(client: Opened, name: str) -> None:
    tools = {one.name: one for one in await client.list_tools()}
    tool, said = tools[name], TOOLS[name]
    published = tool.input_schema["properties"]
    assert list(published) == list(said["takes"])
    assert tool.input_schema["required"] == [one for one, param in said["takes"].items() if param.get("required")]
    for one, param in said["takes"].items():
        assert published[one]["type"] == param["type"]
        assert published[one].get("default") == param.get("default")
        assert published[one].get("enum") == param.get("choices")
        if "most" in param:
            assert published[one]["minimum"] == 1
            assert f"At most {param['most']};" in published[one]["description"]
    blocks = CONTRACT["blocks"] if said.get("blocks", True) else {}
    promised = form({**said["gives"], **blocks})
    assert tool.output_schema == (with_room(promised) if "notify" in tools else promised)
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint == (not said.get("writes", False))


async def arguments_of(client: Opened, name: str) -> dict[str, object]:
    """What makes the tool answer."""
    if "screenshotRef" not in TOOLS[name]["takes"]:
        return taken(name)
    listed = await client.call_tool("list_screenshots", SOME)
    assert listed.structured_content is not None
    return taken(name, listed.structured_content["screenshots"][0]["screenshotRef"])


def taken(name: str, ref: str = "") -> dict[str, object]:
    """What the tool takes, of what makes every tool answer."""
    place = {"screenshotRef": ref, "x": 50, "y": 50, "width": 25, "height": 25}
    whole = {"date": "2025-01-20", "timelineId": 3, "includeSummary": True, "includeHourlyWebBreakdown": True}
    return {one: value for one, value in (SOME | place | whole).items() if one in TOOLS[name]["takes"]}


@pytest.mark.parametrize("name", TOOLS)
async def test_a_tool_answers_as_promised(client: Opened, name: str) -> None:
    """The client checks the answer against its form; what may be absent is there in one answer of a whole record."""
    made = await client.call_tool(name, await arguments_of(client, name))
    assert made.structured_content is not None
    text = made.content[0]
    assert isinstance(text, TextContent)
    assert json.loads(text.text) == made.structured_content
    assert "null" not in text.text
    assert keys(form_of(name)) - keys(made.structured_content) <= ABSENT


def form_of(name: str) -> dict[str, object]:
    said = TOOLS[name]
    return {**said["gives"], **(CONTRACT["blocks"] if said.get("blocks", True) else {})}


def keys(value: object) -> set[str]:
    """The names anywhere in it."""
    if isinstance(value, Mapping):
        return {str(name).removesuffix("?") for name in value}.union(*map(keys, value.values()))
    return set[str]().union(*map(keys, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("name", [name for name, said in TOOLS.items() if not said.get("writes")])
async def test_either_form_of_the_record_answers_as_promised(desk: Desk, name: str) -> None:
    shot = (await asked(desk, "list_screenshots", **SOME))["screenshots"][0]
    made = await asked(desk, name, **taken(name, shot["screenshotRef"]))
    assert keys(form_of(name)) - keys(dict(made)) <= ABSENT


async def test_an_error_is_a_result_with_its_code(client: Opened) -> None:
    made = await client.call_tool("get_daily_summary", {"date": "today"}, raise_on_error=False)
    assert made.is_error
    [text] = made.content
    assert isinstance(text, TextContent)
    sentence, _, program = text.text.partition("\n")
    assert sentence.startswith("Invalid date format. Expected ISO-8601")
    assert json.loads(program)["error"]["code"] == "invalid_date"


async def test_a_list_leads_to_a_picture_a_part_and_a_file(client: Opened, real: Path) -> None:
    given = await arguments_of(client, "save_screenshot")
    shown = await client.call_tool("get_screenshot", given)
    assert [block.type for block in shown.content] == ["text", "image", "image"]
    part = await client.call_tool("crop_screenshot", given | {"x": 0, "y": 0, "width": 50, "height": 50})
    assert [block.type for block in part.content] == ["text", "image"]
    saved = await client.call_tool("save_screenshot", given | {"outputPath": "assets/shot"})
    assert saved.structured_content is not None
    path = real / "saved/assets/shot.jpg"
    assert saved.structured_content == {"path": str(path), "size": len(await asyncio.to_thread(path.read_bytes))}
    assert shown.content[2].data == base64.b64encode(path.read_bytes()).decode()  # type: ignore[union-attr]
    outside = await client.call_tool("save_screenshot", given | {"outputPath": "../x"}, raise_on_error=False)
    assert outside.is_error


async def test_resources_are_listed_as_promised(client: Opened) -> None:
    fixed = {str(one.uri): one.mime_type for one in await client.list_resources()}
    [template] = await client.list_resource_templates()
    assert template.annotations is not None
    assert template.annotations.audience == ["user"]
    found = fixed | {template.uri_template: template.mime_type}
    assert found == {f"manictime://{name}": said["mime"] for name, said in RESOURCES.items()}


@pytest.mark.parametrize("name", RESOURCES)
async def test_a_resource_reads_as_promised(client: Opened, name: str) -> None:
    ref = str((await arguments_of(client, "get_screenshot"))["screenshotRef"])
    *blobs, text = await client.read_resource(f"manictime://{name.format(screenshotRef=ref)}")
    assert isinstance(text, TextResourceContents)
    assert [type(one) for one in blobs] == ([BlobResourceContents] if "{" in name else [])
    if RESOURCES[name]["mime"] == "text/markdown":
        assert [said for said in RESOURCES[name]["has"] if said not in text.text] == []
        assert [tool for tool in TOOLS if f"`{tool}" not in text.text] == []
        return
    made = json.loads(text.text)
    first = made[0] if isinstance(made, list) else made
    assert set(RESOURCES[name]["has"]) - set(first) == set()


async def test_health_tells_every_capability(client: Opened) -> None:
    [text] = await client.read_resource("manictime://health")
    assert isinstance(text, TextResourceContents)
    made = json.loads(text.text)
    assert sorted(one["name"] for one in made["capabilities"]) == sorted(CONTRACT["capabilities"])
    assert all(one["available"] for one in made["capabilities"])
    assert made["screenshots"] == {"status": "available", "reason": "none"}
    assert (made["schemaStatus"], made["databaseExists"]) == ("valid", True)


async def test_an_unknown_picture_is_an_error_in_words(client: Opened) -> None:
    [text] = await client.read_resource("manictime://screenshot/AAAAAAAAAAAAAAAAAAAAAA")
    assert isinstance(text, TextResourceContents)
    assert json.loads(text.text)["error"]["code"] == "unknown_screenshot_ref"


@pytest.mark.parametrize("name", PROMPTS)
async def test_a_prompt_says_what_it_should_and_checks_what_it_takes(client: Opened, name: str) -> None:
    said = PROMPTS[name]
    prompt = next(one for one in await client.list_prompts() if one.name == name)
    assert [(one.name, one.required) for one in prompt.arguments or ()] == [(one, True) for one in said["takes"]]
    text = (await client.get_prompt(name, said["takes"])).messages[0].content
    assert isinstance(text, TextContent)
    assert [words for words in said["says"] if words not in text.text] == []
    for wrong in said["wrong"]:
        with pytest.raises(MCPError):
            await client.get_prompt(name, wrong)
