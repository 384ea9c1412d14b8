"""The host: one process with one daemon or with all, each on its own port, from the same code."""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import uvicorn
import uvloop
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from butlers.butler import Context, Loop
from butlers.daemon.app import Daemon
from butlers.daemon.assembly import (
    PATIENCE_SECONDS,
    Assembly,
    Plan,
    database,
    listening_dsn,
    once_there,
    sandbox,
)
from butlers.daemon.connection_limits import (
    BoundedConnection,
    bounded,
    end_of_memory,
    fitting,
    no_core_dumps,
    room_for_connections,
)
from butlers.daemon.sockets import bind, default_port, demand_ready, url_of
from shared.config.settings import Settings
from shared.db.wake import listen
from shared.errors import ButlersError, Misconfigured, Unavailable
from shared.loops import pause
from shared.telemetry.logs import logger

log = logger("butlers.daemon.host")
KEEP_ALIVE_SECONDS: Final = 75
DRAIN_SECONDS: Final = {signal.SIGTERM: 20.0, signal.SIGINT: 4.0}


class Server(uvicorn.Server):
    """uvicorn without its own signal handling: one stop of the process stops all daemons in it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the host."""
        yield


@dataclass(slots=True)
class Served:
    """One daemon being served."""

    daemon: Daemon
    url: str
    server: Server
    socket: socket.socket


# A daemon of this process, and where it is reached.
Beating: TypeAlias = tuple[Context, Daemon, str]


async def serve(
    plan: Plan, on_ready: Callable[[Sequence[Served]], Awaitable[None]], beside: Sequence[Loop] = ()
) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain; raise the ButlersError of whatever prevents the start.

    `beside` are loops that belong to this process and to none of its daemons.
    """
    demand_ready(plan.settings)
    stopping, reason = asyncio.Event(), [signal.SIGTERM]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(_stop, stopping, reason, number))
    async with AsyncExitStack() as stack:
        served, loops = await _assemble(plan, stack, stopping)
        tasks = [asyncio.create_task(_supervise(one, stopping)) for one in (*loops, *beside)]
        servers = [asyncio.create_task(one.server.serve(sockets=[one.socket])) for one in served]
        stack.push_async_callback(_close, served)
        try:
            await _started(served, servers)
            await on_ready(served)
            await asyncio.wait([asyncio.create_task(stopping.wait()), *servers], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.set()
            await _drain(served, servers, tasks, DRAIN_SECONDS[reason[0]])


def _stop(stopping: asyncio.Event, reason: list[signal.Signals], number: signal.Signals) -> None:
    """Drain at the first signal; end at once at a second one, such as another Ctrl-C."""
    if stopping.is_set():
        raise KeyboardInterrupt
    reason[0] = number
    stopping.set()


async def _assemble(plan: Plan, stack: AsyncExitStack, stopping: asyncio.Event) -> tuple[list[Served], list[Loop]]:
    settings, loops, served, beating = plan.settings, list[Loop](), list[Served](), list[Beating]()
    http = fitting(len(plan.names))
    if http.MOST < BoundedConnection.MOST:
        log.warning("this process may open few files, so that each daemon has few connections", most=http.MOST)
    for part in plan.by_login():
        assembly = await _connect(part, stack, stopping, loops) if set(part.names) != {"sandbox"} else None
        for name in part.names:
            wanted = plan.port or default_port(settings, plan.entries, name)
            listening = bind(settings.host, wanted, spare=not plan.together and plan.port is None)
            port, several = listening.getsockname()[1], len(plan.names) > 1
            url = url_of(settings, port, together=plan.together, several=several)
            daemon = sandbox(settings, url) if assembly is None or name == "sandbox" else assembly.daemon(name, url)
            served.append(Served(daemon, url, _server(settings, daemon, http), listening))
            loops.extend(daemon.loops)
            if assembly is not None and name in assembly.contexts:
                beating.append((assembly.contexts[name], daemon, url))
    return served, [*loops, partial(heartbeats, beating)] if beating else loops


async def _connect(plan: Plan, stack: AsyncExitStack, stopping: asyncio.Event, loops: list[Loop]) -> Assembly:
    """Connect by the plan's login; add the loops by which its daemons know keys and hear of work."""
    db = await stack.enter_async_context(database(plan, stopping))
    assembly = Assembly(plan, db, stopping)
    await once_there(assembly.directory.read_keys, stopping, PATIENCE_SECONDS)
    loops.append(assembly.directory.keep_keys)
    if topics := assembly.heard():
        loops.append(partial(listen, partial(listening_dsn, plan), topics))
    return assembly


def hung_up(app: ASGIApp) -> ASGIApp:
    """Wrap the app so that a caller gone before its request was read leaves no traceback; it needs no answer."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):
            await app(scope, receive, send)

    return served


def _server(settings: Settings, daemon: Daemon, http: type[BoundedConnection] = BoundedConnection) -> Server:
    # The sandbox plays providers that cut connections, and needs the server's own.
    app = daemon.app if daemon.kind == "sandbox" else bounded(daemon.app)
    return Server(
        uvicorn.Config(
            hung_up(app),
            http=http,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=3,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
    )


async def _started(served: Sequence[Served], servers: Sequence["asyncio.Task[None]"]) -> None:
    while not all(one.server.started for one in served):
        if any(task.done() for task in servers):
            raise Misconfigured("A daemon stopped while starting.", "See the log lines above.")
        await asyncio.sleep(0.01)


async def _supervise(one: Loop, stopping: asyncio.Event) -> None:
    """Run an outermost loop again whenever it ends; log a bug in it, which must not take the others down."""
    while not stopping.is_set():
        try:
            await one(stopping)
        except Unavailable as lost:
            log.warning("a loop is started again", why=lost.message)
            await pause(stopping, 1)
        except Exception:
            log.exception("a loop broke and is started again")
            await pause(stopping, 1)


async def heartbeats(beating: Sequence[Beating], stopping: asyncio.Event) -> None:
    """Tell the Switchboard again and again, in one breath, who serves here, and at the end that they are gone."""
    wait = 0.0
    while not await pause(stopping, wait):
        there = await asyncio.gather(*(_beat(one, "ready", 4) for one in beating))
        wait = beating[0][0].settings.timings.heartbeat if all(there) else 1.0
    await asyncio.gather(*(_beat(one, "gone", 1) for one in beating))


async def _beat(one: Beating, status: str, patience: float) -> bool:
    """Say in the daemon's own name how it stands; return whether that was noted."""
    context, daemon, url = one
    told: dict[str, object] = {"url": url, "kind": daemon.kind, "tools": list(daemon.tools), "status": status}
    if daemon.is_default:
        told["default"] = True
    try:
        await context.daemons.call("switchboard", "heartbeat", told, patience)
    except ButlersError as failed:
        log.info("no heartbeat", daemon=context.name, why=failed.message)
        return False
    return True


async def _drain(
    served: Sequence[Served],
    servers: Sequence["asyncio.Task[None]"],
    tasks: Sequence["asyncio.Task[None]"],
    seconds: float,
) -> None:
    """Let loops finish what they hold and requests get their answers, within `seconds`."""
    for one in served:
        if one.daemon.context is not None:
            one.daemon.context.daemons.hurry()
        if one.daemon.kind != "sandbox":
            one.server.should_exit = True
    ours = [task for one, task in zip(served, servers, strict=True) if one.daemon.kind != "sandbox"]
    pending: set[asyncio.Task[None]] = {*tasks, *ours}
    if pending:
        _, pending = await asyncio.wait(pending, timeout=seconds)
    await _end_sandbox(served, servers)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, *servers, return_exceptions=True)


async def _end_sandbox(served: Sequence[Served], servers: Sequence["asyncio.Task[None]"]) -> None:
    """Stop the sandbox last: it stands in for the providers, and what is in hand still gets its receipt."""
    for one, task in zip(served, servers, strict=True):
        if one.daemon.kind == "sandbox":
            one.daemon.app.state.sandbox.stop()  # type: ignore[attr-defined]  # the sandbox's Starlette app
            one.server.should_exit = True
            await asyncio.wait([task], timeout=2)


async def _close(served: Sequence[Served]) -> None:
    for one in served:
        if one.daemon.parts.close is not None:
            await one.daemon.parts.close()
        if one.daemon.context is not None:
            await one.daemon.context.daemons.close()


def run_plan(plan: Plan, on_ready: Callable[[Sequence[Served]], Awaitable[None]], beside: Sequence[Loop] = ()) -> None:
    """Serve in this process's own event loop, under its limits of memory, files and core dumps."""
    no_core_dumps()
    room_for_connections()
    end_of_memory(plan.settings.memory_mb)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(plan, on_ready, beside))
