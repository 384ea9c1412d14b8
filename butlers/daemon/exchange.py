"""Exchange: an app takes the place of another while it is served, and no call is lost."""

import asyncio
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.errors import Misconfigured


class Lifespan:
    """The life of one app, begun and ended as ASGI says, in a task of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._told: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the app; raise Misconfigured if it cannot start."""
        scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        self._task = asyncio.ensure_future(_run(self._app, scope, self._told.get, self._said.put))
        await self._told.put({"type": "lifespan.startup"})
        answer = await self._said.get()
        if answer["type"] != "lifespan.startup.complete":
            raise Misconfigured("The butler's app did not start.", "See the log lines above.")

    async def end(self) -> None:
        """Stop the app, if it was started."""
        if self._task is not None:
            await self._told.put({"type": "lifespan.shutdown"})
            await self._task


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run the app's life; say that it failed where the app itself does not."""
    try:
        await app(scope, receive, send)
    finally:
        await send({"type": "lifespan.startup.failed"})


@dataclass(slots=True)
class Serving:
    """An app, its life, and the requests it has in hand."""

    app: ASGIApp
    life: Lifespan
    calls: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class Front:
    """The app of a butler as its server knows it. A request ends in the app in which it began."""

    def __init__(self, app: ASGIApp) -> None:
        self._now = Serving(app, Lifespan(app))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request by the app that is there now."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        serving = self._now
        serving.calls += 1
        try:
            await serving.app(scope, receive, send)
        finally:
            serving.calls -= 1
            if not serving.calls:
                serving.idle.set()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._now.life.begin()
        except Misconfigured as failed:
            await send({"type": "lifespan.startup.failed", "message": str(failed)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._now.life.end()
        await send({"type": "lifespan.shutdown.complete"})

    async def exchange(self, app: ASGIApp) -> Serving:
        """Serve by this app from now on; return the one before, which still has its requests in hand."""
        new = Serving(app, Lifespan(app))
        await new.life.begin()
        before, self._now = self._now, new
        return before


async def calls_ended(before: Serving, seconds: float) -> None:
    """Let an app that was exchanged answer what it has in hand, for at most so long, and stop it."""
    if before.calls:
        before.idle.clear()
        await asyncio.wait([asyncio.ensure_future(before.idle.wait())], timeout=seconds)
    await before.life.end()
