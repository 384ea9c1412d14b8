"""An ASGI app on a free port of 127.0.0.1, within the test's own loop."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from tests.rig.waiting import LONGEST


class Server(uvicorn.Server):
    """uvicorn that leaves the test process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to pytest."""
        yield


@asynccontextmanager
async def served(app: ASGIApp, lifespan: Literal["auto", "off"] = "auto") -> AsyncIterator[str]:
    """Its URL; it has ended when the block is left."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        log_level="error",
        ws="none",
        proxy_headers=False,
        lifespan=lifespan,
        timeout_graceful_shutdown=1,
    )
    server = Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, LONGEST)
