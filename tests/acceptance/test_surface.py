"""What a client meets before anything is sent: tools, tokens, doors, health, the registry (seed 001, registration)."""

import asyncio
import json
import resource
import time
from pathlib import Path

import aiohttp
import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError

from shared.auth import keystore
from shared.auth.tokens import Signer
from tests.rig.cluster import BUTLERS
from tests.rig.fleet import DAEMONS, Era, Fleet
from tests.rig.waiting import LONGEST, eventually

READY = """
SELECT name, url, kind, tools, clock_timestamp() - last_seen_at < interval '8 seconds' AS fresh
FROM switchboard.butlers WHERE status = 'ready'
"""
ERAS: tuple[Era, ...] = ("auto", "legacy")
OPTIONAL = ("contact_id", "recipient", "subject", "intent", "emoji")
SPEAKING = ("switchboard", "messenger", *BUTLERS)
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", SPEAKING)
async def test_every_butler_publishes_notify_as_the_contract_has_it(fleet: Fleet, name: str, era: Era) -> None:
    client = await fleet.client(name, era)
    [tool] = [tool for tool in await client.list_tools() if tool.name == "notify"]
    schema = tool.input_schema
    properties = schema["properties"]
    assert set(schema["required"]) == {"channel", "message"}
    assert set(properties) == {"channel", "message", *OPTIONAL, "request_context"}
    assert {properties[one]["type"] for one in ("channel", "message", *OPTIONAL)} == {"string"}
    assert properties["contact_id"]["format"] == "uuid"
    assert properties["request_context"]["type"] == "object"
    assert not any("anyOf" in value for value in properties.values())
    listed = {name: value["enum"] for name, value in properties.items() if "enum" in value}
    assert listed == {"channel": ["telegram", "email"], "intent": ["send", "reply", "react"]}


@pytest.mark.parametrize("name", SPEAKING)
async def test_without_a_token_nobody_gets_as_far_as_mcp(fleet: Fleet, name: str) -> None:
    async with fleet.http.post(f"{fleet.url(name)}/mcp", json=INITIALIZE, headers=ACCEPT) as answer:
        assert answer.status == 401
        assert "jsonrpc" not in await answer.text()


async def test_a_client_without_a_token_cannot_list_the_tools(fleet: Fleet) -> None:
    with pytest.raises(Exception, match=r"401|[Uu]nauthorized|error response"):
        async with Client(f"{fleet.url('health')}/mcp") as client:
            await client.list_tools()


async def test_a_token_opens_its_own_butler_only(fleet: Fleet) -> None:
    for token in (await fleet.token("greeter"), "no.token.atall", "Bearer"):
        assert await post(fleet, "health", authorization=f"Bearer {token}") == 401
    assert await post(fleet, "health", authorization=f"Bearer {await fleet.token('health')}") == 200


async def test_a_token_of_an_unknown_key_or_out_of_date_opens_nothing(fleet: Fleet) -> None:
    greeter = keystore.read(fleet.house.home, "greeter").private_pem
    claims = {"sub": "health", "aud": "switchboard", "scope": "hop"}
    forged = Signer("health", greeter, time.time).mint(claims, 60).token
    late = Signer("greeter", greeter, lambda: time.time() - 3600).token_for("switchboard")
    mine = Signer("greeter", greeter, time.time).token_for("switchboard")
    statuses = [await post(fleet, "switchboard", authorization=f"Bearer {token}") for token in (forged, late, mine)]
    assert statuses == [401, 401, 200]


@pytest.mark.slow
async def test_a_revoked_token_counts_no_more(fleet: Fleet) -> None:
    code, token, said = await fleet.house.butlers("token", "greeter", "--for", "1h")
    assert code == 0, said
    newest = await fleet.value("SELECT jti FROM shared.client_tokens ORDER BY made_at DESC LIMIT 1")
    bearer = f"Bearer {token.strip()}"
    assert await post(fleet, "greeter", authorization=bearer) == 200
    await fleet.sql("UPDATE shared.client_tokens SET revoked_at = clock_timestamp() WHERE jti = $1", newest)
    revoked = asked = time.monotonic()
    async with asyncio.timeout(LONGEST):
        while await post(fleet, "greeter", authorization=bearer) != 401:
            # A verifier believes for five seconds what it looked up; how slowly it then answers is another matter.
            assert asked - revoked < 8
            await asyncio.sleep(0.1)
            asked = time.monotonic()


@pytest.mark.parametrize(
    ("header", "value", "refusal"),
    [("host", "evil.test", {421, 403, 400}), ("origin", "http://evil.test", {403})],
)
async def test_a_foreign_page_gets_no_answer(fleet: Fleet, header: str, value: str, refusal: set[int]) -> None:
    bearer = f"Bearer {await fleet.token('health')}"
    for name in ("health", "messenger"):
        assert await post(fleet, name, **{"authorization": bearer, header: value}) in {*refusal, 401}
    assert await post(fleet, "health", **{"authorization": bearer, header: value}) in refusal


async def test_the_one_tool_of_the_messenger_is_for_the_switchboard(fleet: Fleet) -> None:
    signer = Signer("health", keystore.read(fleet.house.home, "health").private_pem, time.time)
    assert await post(fleet, "messenger", authorization=f"Bearer {signer.token_for('messenger')}") == 401


async def test_a_client_cannot_use_a_tool_for_daemons(fleet: Fleet) -> None:
    client = await fleet.client("switchboard")
    for tool in ("route", "heartbeat", "ingest"):
        with pytest.raises(ToolError):
            await client.call_tool(tool, {})


async def test_every_daemon_tells_health_readiness_and_metrics(fleet: Fleet) -> None:
    for name in DAEMONS:
        for url in fleet.urls(name):
            assert await fleet.status(f"{url}/healthz") == 200, name
            assert await fleet.status(f"{url}/readyz") == 200, name
            if name not in {"console", "sandbox"}:
                async with fleet.http.get(f"{url}/metrics") as answer:
                    assert "butlers_notifications" in await answer.text()


@pytest.mark.every_mode
async def test_every_instance_is_in_the_registry_with_a_fresh_heartbeat(fleet: Fleet) -> None:
    expected = {url: name for name in DAEMONS if name != "sandbox" for url in fleet.urls(name)}

    async def heard() -> bool:
        """The registry, once all of it is fresh: a starved daemon tells a little later that it is there."""
        found = {row["url"]: row["name"] for row in await fleet.sql(READY) if row["fresh"]}
        return expected.items() <= found.items()

    await eventually(heard)
    assert len(expected) == (10 if fleet.mode == "two" else 5)


async def test_every_process_has_an_end_to_its_memory_and_needs_a_quarter(fleet: Fleet) -> None:
    living = [process for process in fleet.started if process.alive]
    assert living
    for process in living:
        assert resource.prlimit(process.pid, resource.RLIMIT_DATA)[0] == 2**30
        assert 4 * data_of(process.pid) < 2**30, process.order.argv


def data_of(pid: int) -> int:
    """How much data a process holds, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData:")) * 1024


async def test_status_token_and_config_are_there_for_scripts(fleet: Fleet) -> None:
    code, said, _ = await fleet.house.butlers("status", "--json")
    assert code == 0
    assert all(f'"name": "{name}"' in said for name in DAEMONS)
    code, said, _ = await fleet.house.butlers("mcp-config", "health")
    assert code == 0
    assert json.loads(said)["mcpServers"]["health"]["url"] in {f"{url}/mcp" for url in fleet.urls("health")}
    code, _, said = await fleet.house.butlers("token", "nobody")
    assert code == 1
    assert "Choose from" in said
    assert "Traceback" not in said


async def post(fleet: Fleet, name: str, **headers: str) -> int:
    """The status of a tools/list with these headers."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    sent = {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list", **headers}
    async with aiohttp.ClientSession() as http, http.post(f"{fleet.url(name)}/mcp", json=body, headers=sent) as answer:
        return answer.status


META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
