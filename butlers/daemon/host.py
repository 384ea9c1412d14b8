"""The host: one process with one daemon or with all, each on its own port, from the same code."""

import asyncio
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from email.utils import formatdate
from functools import partial
from typing import Final

import uvicorn
import uvloop
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from butlers.butler import Daemon, Loop
from butlers.daemon.assembly import PATIENCE_SECONDS, Plan, once_there
from butlers.daemon.connection_limits import BoundedConnection, bounded
from butlers.daemon.process import Process, Served, drain
from butlers.daemon.sockets import demand_ready
from butlers.setup import migrate
from shared.config.settings import Settings
from shared.errors import Misconfigured
from shared.loops import apart, first_of, pause, supervise
from shared.telemetry.logs import logger

log = logger("butlers.daemon.host")
KEEP_ALIVE_SECONDS: Final = 75
# After so long a worker thread that computes lets the event loop go on. Python's own five milliseconds would be waited
# for several times in each call.
THREAD_SECONDS: Final = 0.0005
OPEN_FILES: Final = 8192
# Of these a process keeps so many for its database, its calls of other daemons and its files, but no more than a half.
OWN_FILES: Final = 256
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 64 * 1024
DRAIN_SECONDS: Final = {signal.SIGTERM: 20.0, signal.SIGINT: 4.0}


class Server(uvicorn.Server):
    """uvicorn without its own signal handling: one stop of the process stops all daemons in it.

    It waits to be told to stop, instead of looking ten times a second, which a hundred butlers at rest would feel; the
    process says the time to all of them (`say_time`).
    """

    def __init__(self, config: uvicorn.Config) -> None:
        self._asked_to_exit = asyncio.Event()
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        """Whether the server is to stop."""
        return self._asked_to_exit.is_set()

    @should_exit.setter
    def should_exit(self, asked: bool) -> None:
        if asked:
            self._asked_to_exit.set()

    async def main_loop(self) -> None:
        """Serve until the server is to stop."""
        await self.on_tick(0)
        await self._asked_to_exit.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the host."""
        yield


async def serve(
    plan: Plan,
    on_ready: Callable[[Sequence[Served]], Awaitable[None]],
    beside: Sequence[Loop] = (),
    on_hangup: "Hangup | None" = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain; raise the ButlersError of whatever prevents the start.

    `beside` are loops that belong to this process and to none of its daemons; `on_hangup` is what SIGHUP asks for.
    """
    demand_ready(plan.settings, together=plan.together)
    stopping, reason = asyncio.Event(), [signal.SIGTERM]
    outdated: list[Misconfigured] = []
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(_stop, stopping, reason, number))
    async with AsyncExitStack() as stack:
        process = await _assemble(plan, stack, stopping)
        own: list[Loop] = [partial(say_time, process), partial(end_before_a_later, process, outdated)]
        loops: list[Loop] = [*process.loops, *own, *beside]
        tasks = [asyncio.create_task(supervise(one, stopping, log)) for one in loops]
        for one in process.served.values():
            process.start(one)
        stack.push_async_callback(process.close)
        try:
            await _started([*process.served.values()])
            if on_hangup is not None:
                tasks.append(asyncio.create_task(_at_hangup(process, on_hangup)))
            await on_ready([*process.served.values()])
            await stopping.wait()
        finally:
            stopping.set()
            await drain([*process.served.values()], tasks, DRAIN_SECONDS[reason[0]])
    if outdated:
        raise outdated[0]


async def say_time(process: Process, stopping: asyncio.Event) -> None:
    """Keep the header `Date` of all answers true."""
    while not await pause(stopping, 1.0):
        date = (b"date", formatdate(usegmt=True).encode())
        for one in process.served.values():
            one.server.server_state.default_headers = [date, *one.server.config.encoded_headers]


async def end_before_a_later(process: Process, outdated: list[Misconfigured], stopping: asyncio.Event) -> None:
    """Stop this process, and note why, once a later program has brought the schema up.

    INVARIANT: nobody decides for long by a gate that knows less than the one the owner has installed.
    """
    while not await pause(stopping, process.plan.settings.timings.heartbeat):
        contexts = [one.daemon.context for one in process.served.values() if one.daemon.context is not None]
        try:
            with apart(log, "the schema's number was not read", through=(Misconfigured,)):
                for context in contexts[:1]:
                    async with context.db.work() as connection:
                        migrate.demand_not_newer(await migrate.schema_version(connection))
        except Misconfigured as later:
            outdated.append(later)
            stopping.set()


async def _at_hangup(process: "Process", on_hangup: "Hangup") -> None:
    """Do what SIGHUP asks for, one after the other; where it means that the terminal was closed, stop."""
    asked, terminal = asyncio.Event(), os.isatty(0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    then = on_hangup(process)
    while not process.stopping.is_set():
        await first_of(asked, process.stopping)
        if asked.is_set() and terminal and not os.isatty(0):
            process.stopping.set()
        elif asked.is_set():
            asked.clear()
            with apart(log, "the fleet was not taken up"):
                await then()


def _stop(stopping: asyncio.Event, reason: list[signal.Signals], number: signal.Signals) -> None:
    """Drain at the first signal; end at once at a second one, such as another Ctrl-C."""
    if stopping.is_set():
        raise KeyboardInterrupt
    reason[0] = number
    stopping.set()


# What a process does at SIGHUP, begun once it may come.
Hangup = Callable[[Process], Callable[[], Awaitable[None]]]


async def _assemble(plan: Plan, stack: AsyncExitStack, stopping: asyncio.Event) -> Process:
    http = fitting(len(plan.names))
    if http.MOST < BoundedConnection.MOST:
        log.warning("this process may open few files, so that each daemon has few connections", most=http.MOST)
    process = Process(plan, stack, stopping, partial(_server, http=http))
    for part in plan.by_login():
        await process.open(part)
    messenger = process.served.get("messenger")
    if messenger is not None and messenger.assembly is not None:
        # Once it has its port, and before anybody of this process asks.
        await once_there(messenger.assembly.write_channels, stopping, PATIENCE_SECONDS)
    return process


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


async def _started(served: Sequence[Served]) -> None:
    while not all(one.server.started for one in served):
        if any(one.serving is not None and one.serving.done() for one in served):
            raise Misconfigured("A daemon stopped while starting.", "See the log lines above.")
        await asyncio.sleep(0.01)


def run_plan(
    plan: Plan,
    on_ready: Callable[[Sequence[Served]], Awaitable[None]],
    beside: Sequence[Loop] = (),
    on_hangup: "Hangup | None" = None,
) -> None:
    """Serve in this process's own event loop, under its limits of memory, files and core dumps."""
    no_core_dumps()
    room_for_connections()
    give_back_memory()
    end_of_memory(plan.settings.memory_mb)
    sys.setswitchinterval(THREAD_SECONDS)
    # What is imported stays: to look among it for garbage would stop all calls for a tenth of a second now and then.
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(plan, on_ready, beside, on_hangup))


def no_core_dumps() -> None:
    """Forbid core dumps: a process that crashes must leave no copy of its memory, which holds keys and messages."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_of_memory(megabytes: int) -> None:
    """Limit the data of this process, so that no request makes it grow further; keep a limit that is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [one for one in (soft, hard) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([megabytes * 2**20, *limits]), hard))


def give_back_memory() -> None:
    """Let the C library, where it is GNU's, give each large piece of memory back to the system once it is free.

    It would keep them otherwise, cut up by small ones, so that a flood of bodies takes several times what they hold.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)


def fitting(daemons: int) -> type[BoundedConnection]:
    """Return connections of which each of so many daemons has no more than this process can open files for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return BoundedConnection

    class Fitting(BoundedConnection):
        MOST = min(BoundedConnection.MOST, max(1, (soft - min(OWN_FILES, soft // 2)) // daemons))

    return Fitting


def room_for_connections() -> None:
    """Let this process open as many files as its daemons need for connections, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
