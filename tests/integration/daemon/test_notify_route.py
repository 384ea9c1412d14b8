"""`POST /notify`, and what a token that is not for here is told: for `curl`, and for whoever reads its answer."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from shared.auth import keystore
from shared.auth.tokens import Signer, mint_client_token
from tests.integration.daemon.test_daemon import Served, served
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def greeter(house: House) -> AsyncIterator[Served]:
    async for one in served(house, "greeter"):
        yield one


async def posted(
    greeter: Served, body: object, token: str | None = None, kind: str = "application/json"
) -> tuple[int, Mapping[str, object]]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with greeter.http.post(
        f"{greeter.url}/notify", data=data, headers={**headers, "content-type": kind}
    ) as answer:
        return answer.status, await answer.json()


async def test_it_is_the_tool(greeter: Served) -> None:
    token, message = greeter.house.tokens["greeter"], f"by curl {uuid4()}"
    call = {"channel": "telegram", "message": message}
    status, answer = await posted(greeter, call, token)
    assert (status, answer["status"]) == (200, "ok")
    async with greeter.client() as client:
        again = (await client.call_tool("notify", call)).structured_content
    assert again == {**answer, "duplicate": True}
    assert len(greeter.house.sent(message)) == 1


async def test_what_is_no_call_of_a_client_sends_nothing(greeter: Served) -> None:
    token, message = greeter.house.tokens["greeter"], f"refused {uuid4()}"
    call = {"channel": "telegram", "message": message}
    for status, body, bearer, kind in (
        (401, call, None, "application/json"),
        (401, call, "a.b.c", "application/json"),
        (403, call, greeter.hop_token("health"), "application/json"),
        (415, call, token, "text/plain"),
        (400, [call], token, "application/json"),
        (400, b'{"channel": ', token, "application/json"),
        (400, {**call, "channel": "\ud800"}, token, "application/json"),
        (400, {**call, "\ud800": 1}, token, "application/json"),
        (400, {**call, "chanel": "telegram"}, token, "application/json"),
    ):
        found, answer = await posted(greeter, body, bearer, kind)
        assert (found, bool(answer["error"])) == (status, True), answer
    assert greeter.house.sent(message) == []


async def test_a_token_for_another_butler_is_told_where_that_is(greeter: Served) -> None:
    status, answer = await posted(greeter, {}, greeter.house.tokens["health"])
    assert (status, answer["error"]) == (
        401,
        "The token is not for `greeter`. `butlers mcp-config health` prints the address of `health`.",
    )


async def test_a_token_that_is_over_is_told_so_and_what_makes_a_new_one(greeter: Served) -> None:
    keys = keystore.read(greeter.house.settings.home, keystore.OWNER)
    signer = Signer(keystore.OWNER, keys.private_pem, lambda: time.time() - 7200)
    over = mint_client_token(signer, "greeter", timedelta(hours=1))
    status, answer = await posted(greeter, {}, over.token)
    assert (status, answer["error"]) == (401, "The token has expired. Create a new one with `butlers token NAME`.")
