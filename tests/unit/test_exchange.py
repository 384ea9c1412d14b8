"""An app that takes another's place: no request is lost, and none is answered by half an app."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from butlers.daemon.exchange import Front, calls_ended
from shared.errors import Misconfigured

pytestmark = pytest.mark.asyncio


class App:
    """An app that answers its name once it may, and notes its life."""

    def __init__(self, name: str, *, starts: bool = True) -> None:
        self.name, self.starts = name, starts
        self.may_answer = asyncio.Event()
        self.life: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            self.life.append("begun")
            await send({"type": f"lifespan.startup.{'complete' if self.starts else 'failed'}"})
            await receive()
            self.life.append("calls_ended")
            await send({"type": "lifespan.shutdown.complete"})
            return
        await self.may_answer.wait()
        await send({"type": "http.response.body", "body": f"{self.name} {' '.join(self.life)}".encode()})


async def ask(front: Front) -> str:
    said: list[Message] = []

    async def send(message: Message) -> None:
        said.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    await front({"type": "http"}, receive, send)
    return str(said[0]["body"].decode())


async def test_a_request_ends_in_the_app_in_which_it_began() -> None:
    old, new = App("old"), App("new")
    front = Front(old)
    told: asyncio.Queue[Message] = asyncio.Queue()
    said: asyncio.Queue[Message] = asyncio.Queue()
    living = asyncio.create_task(front({"type": "lifespan"}, told.get, said.put))
    await told.put({"type": "lifespan.startup"})
    assert (await said.get())["type"] == "lifespan.startup.complete"
    asked = asyncio.create_task(ask(front))
    await asyncio.sleep(0.01)
    before = await front.exchange(new)
    ending = asyncio.create_task(calls_ended(before, 10))
    new.may_answer.set()
    assert await ask(front) == "new begun"
    await asyncio.sleep(0.01)
    old.may_answer.set()
    assert await asked == "old begun"
    await ending
    assert old.life == ["begun", "calls_ended"]
    await told.put({"type": "lifespan.shutdown"})
    await living
    assert new.life == ["begun", "calls_ended"]


async def test_an_app_that_cannot_start_takes_no_place() -> None:
    old = App("old")
    old.may_answer.set()
    front = Front(old)
    with pytest.raises(Misconfigured, match="did not start"):
        await front.exchange(App("new", starts=False))
    assert await ask(front) == "old "
