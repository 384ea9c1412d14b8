"""The host: one process with one daemon or with all, each on its own port, from the same code."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import uvicorn
import uvloop
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from butlers.butler import Loop, Result
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
from butlers.daemon.exchange import Front, ended
from butlers.daemon.sockets import bind, default_port, demand_ready, url_of
from butlers.fleet import Entry
from butlers.scheduler import Hand, Scheduler
from shared.auth.tokens import Caller
from shared.config.settings import Settings
from shared.db.wake import listen
from shared.errors import ButlersError, Misconfigured, Unavailable
from shared.loops import apart, first_of, pause
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
    """One daemon being served; its app, loops and context may be exchanged, its socket and server stay."""

    daemon: Daemon
    url: str
    server: Server
    socket: socket.socket
    # None for the sandbox.
    assembly: Assembly | None = None
    # Set when this daemon stops, with the process or alone; and when what it is now is exchanged.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: "list[asyncio.Task[None]]" = field(default_factory=list)
    serving: "asyncio.Task[None] | None" = None


async def serve(
    plan: Plan,
    on_ready: Callable[[Sequence[Served]], Awaitable[None]],
    beside: Sequence[Loop] = (),
    on_hangup: "Hangup | None" = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain; raise the ButlersError of whatever prevents the start.

    `beside` are loops that belong to this process and to none of its daemons; `on_hangup` is what SIGHUP asks for.
    """
    demand_ready(plan.settings)
    stopping, reason = asyncio.Event(), [signal.SIGTERM]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(_stop, stopping, reason, number))
    async with AsyncExitStack() as stack:
        process = await _assemble(plan, stack, stopping)
        tasks = [asyncio.create_task(_supervise(one, stopping)) for one in (*process.loops, *beside)]
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
            await _drain([*process.served.values()], tasks, DRAIN_SECONDS[reason[0]])


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


class Process:
    """What one process serves: daemons that come, change and go, and one scheduler for the butlers among them."""

    def __init__(
        self, plan: Plan, stack: AsyncExitStack, stopping: asyncio.Event, http: type[BoundedConnection]
    ) -> None:
        self.plan = plan
        self.stopping = stopping
        self.served: dict[str, Served] = {}
        self.scheduler = Scheduler()
        self.loops: list[Loop] = [self.scheduler.run]
        self._stack = stack
        self._http = http
        self._ends: set[asyncio.Task[None]] = set()

    async def open(self, part: Plan) -> list[Served]:
        """Make the daemons of one login."""
        known = next((one.assembly for one in self.served.values() if one.assembly and part.together), None)
        if known is not None:
            known.plan = replace(part, names=[*known.plan.names, *part.names])
            await known.directory.read_keys()
        elif set(part.names) != {"sandbox"}:
            known = await _connect(part, self._stack, self.stopping, self.loops)
        return [self._add(part, known, name) for name in part.names]

    def _add(self, plan: Plan, assembly: Assembly | None, name: str) -> Served:
        settings = plan.settings
        wanted = plan.port or default_port(settings, plan.entries, name)
        listening = bind(settings.host, wanted, spare=not plan.together and plan.port is None)
        port, several = listening.getsockname()[1], len(self.plan.names) > 1
        url = url_of(settings, port, together=plan.together, several=several)
        ending = asyncio.Event()
        is_alone = assembly is None or name == "sandbox"
        daemon = sandbox(settings, url) if is_alone or assembly is None else assembly.daemon(name, url, ending)
        if daemon.kind == "butler":
            daemon = replace(daemon, app=Front(daemon.app))
        server = _server(settings, daemon, self._http)
        self.served[name] = Served(daemon, url, server, listening, None if is_alone else assembly, ending=ending)
        return self.served[name]

    def start(self, one: Served) -> None:
        """Let a daemon work and be served; if it stops unasked, the process does."""
        name = one.daemon.name
        self._work(one)
        if one.daemon.context is not None and name in (one.assembly.contexts if one.assembly else ()):
            one.tasks.append(asyncio.create_task(_supervise(partial(heartbeat, one), one.stopping)))
        one.serving = asyncio.create_task(one.server.serve(sockets=[one.socket]))
        one.serving.add_done_callback(lambda _: self.stopping.set() if self.served.get(name) is one else None)
        self._later(_with_process(self.stopping, one))

    def _work(self, one: Served) -> None:
        """Run the daemon's loops, and what it does by the clock."""
        one.tasks += [asyncio.create_task(_supervise(loop, one.ending)) for loop in one.daemon.loops]
        context, assembly, name = one.daemon.context, one.assembly, one.daemon.name
        if one.daemon.kind == "butler" and context is not None and assembly is not None:
            client, entry = assembly.local[name], assembly.entry(name)
            tools = {tool.name: tool for tool in one.daemon.parts.tools}

            async def call(tool: str, arguments: Mapping[str, object], occurrence_id: str) -> Result:
                return await client.by_clock(tool, arguments, Caller(name, "client", occurrence_id))

            self.scheduler.take(Hand(context, tools, call, entry.schedules))

    async def exchange(self, name: str) -> None:
        """Let a butler be what its folder says now; calls in hand are answered by what it was."""
        one = self.served[name]
        front = self._front(one)
        before, tasks, was_ending = one.daemon, one.tasks, one.ending
        ending = asyncio.Event()
        assert one.assembly is not None  # noqa: S101  # a butler has one
        after = one.assembly.daemon(name, one.url, ending)
        serving = await front.exchange(after.app)
        one.daemon, one.ending, one.tasks = replace(after, app=front), ending, []
        self._work(one)
        heartbeats = tasks[-1:]
        one.tasks += heartbeats

        async def end() -> None:
            await ended(serving, DRAIN_SECONDS[signal.SIGTERM])
            was_ending.set()
            await asyncio.gather(*tasks[:-1], return_exceptions=True)
            await _close([before])

        self._later(end())

    @staticmethod
    def _front(one: Served) -> Front:
        assert isinstance(one.daemon.app, Front)  # noqa: S101  # as _add makes every butler
        return one.daemon.app

    def know(self, entries: Sequence[Entry]) -> None:
        """Let daemons made from now on be what the fleet says now."""
        self.plan = replace(self.plan, entries=entries)
        for one in self.served.values():
            if one.assembly is not None:
                one.assembly.plan = replace(one.assembly.plan, entries=entries)

    async def remove(self, name: str) -> None:
        """Stop serving a butler: it takes no new call, and answers those in hand."""
        one = self.served.pop(name)
        self.scheduler.drop(name)
        if one.assembly is not None:
            one.assembly.local.pop(name, None)
            one.assembly.contexts.pop(name, None)
        one.stopping.set()
        one.ending.set()
        await _drain([one], [], DRAIN_SECONDS[signal.SIGTERM])
        await _close([one.daemon])

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def close(self) -> None:
        """Close what the daemons hold."""
        await asyncio.gather(*self._ends, return_exceptions=True)
        await _close([one.daemon for one in self.served.values()])


# What a process does at SIGHUP, begun once it may come.
Hangup = Callable[[Process], Callable[[], Awaitable[None]]]


async def _with_process(stopping: asyncio.Event, one: Served) -> None:
    """Stop a daemon when its process stops."""
    await first_of(stopping, one.stopping)
    one.stopping.set()
    one.ending.set()


async def _assemble(plan: Plan, stack: AsyncExitStack, stopping: asyncio.Event) -> Process:
    http = fitting(len(plan.names))
    if http.MOST < BoundedConnection.MOST:
        log.warning("this process may open few files, so that each daemon has few connections", most=http.MOST)
    process = Process(plan, stack, stopping, http)
    for part in plan.by_login():
        await process.open(part)
    return process


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


async def _started(served: Sequence[Served]) -> None:
    while not all(one.server.started for one in served):
        if any(one.serving is not None and one.serving.done() for one in served):
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


async def heartbeat(one: Served, stopping: asyncio.Event) -> None:
    """Tell the Switchboard again and again that this instance is there, and at the end that it is gone."""

    async def tell(status: str, seconds: float) -> float:
        daemon, context = one.daemon, one.daemon.context
        assert context is not None  # noqa: S101  # only those have a heartbeat
        told: dict[str, object] = {"url": one.url, "kind": daemon.kind, "tools": list(daemon.tools), "status": status}
        try:
            await context.daemons.call("switchboard", "heartbeat", told, seconds)
        except ButlersError as failed:
            log.info("no heartbeat", daemon=context.name, why=failed.message)
            return 1.0
        return context.settings.timings.heartbeat

    wait = 0.0
    while not await pause(stopping, wait):
        wait = await tell("ready", 4)
    await tell("gone", 1)


async def _drain(served: Sequence[Served], tasks: Sequence["asyncio.Task[None]"], seconds: float) -> None:
    """Let loops finish what they hold and requests get their answers, within `seconds`."""
    for one in served:
        one.stopping.set()
        one.ending.set()
        if one.daemon.context is not None:
            one.daemon.context.daemons.hurry()
        if one.daemon.kind != "sandbox":
            one.server.should_exit = True
    tasks = [*tasks, *(task for one in served for task in one.tasks)]
    servers = [one.serving for one in served if one.serving is not None]
    ours = [one.serving for one in served if one.serving is not None and one.daemon.kind != "sandbox"]
    pending: set[asyncio.Task[None]] = {*tasks, *ours}
    if pending:
        _, pending = await asyncio.wait(pending, timeout=seconds)
    await _end_sandbox(served)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, *servers, return_exceptions=True)


async def _end_sandbox(served: Sequence[Served]) -> None:
    """Stop the sandbox last: it stands in for the providers, and what is in hand still gets its receipt."""
    for one in served:
        if one.daemon.kind == "sandbox" and one.serving is not None:
            one.daemon.app.state.sandbox.stop()  # type: ignore[attr-defined]  # the sandbox's Starlette app
            one.server.should_exit = True
            await asyncio.wait([one.serving], timeout=2)


async def _close(daemons: Sequence[Daemon]) -> None:
    for one in daemons:
        if one.parts.close is not None:
            await one.parts.close()
        if one.context is not None:
            await one.context.daemons.close()


def run_plan(
    plan: Plan,
    on_ready: Callable[[Sequence[Served]], Awaitable[None]],
    beside: Sequence[Loop] = (),
    on_hangup: "Hangup | None" = None,
) -> None:
    """Serve in this process's own event loop, under its limits of memory, files and core dumps."""
    no_core_dumps()
    room_for_connections()
    end_of_memory(plan.settings.memory_mb)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(plan, on_ready, beside, on_hangup))
