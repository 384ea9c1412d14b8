"""What one process serves: daemons that come, change and go while it runs, without a call being lost."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import uvicorn

from butlers.butler import Daemon, Loop, Result
from butlers.daemon.assembly import Assembly, Plan, assemble, sandbox
from butlers.daemon.exchange import Front, calls_ended
from butlers.daemon.sockets import bind, default_port, url_of
from butlers.fleet import Entry
from butlers.scheduler import Hand, Scheduler
from butlers.sessions.runner import Runner
from shared.auth.tokens import Caller
from shared.config.settings import Settings
from shared.config.timings import STANDARD
from shared.errors import ButlersError
from shared.loops import first_of, pause, supervise
from shared.telemetry.logs import logger

log = logger("butlers.daemon.process")
# How much of a process's memory each of the sandbox's two files may take.
ALONE, BESIDE_DAEMONS = 1 / 3, 1 / 16
# Makes the server of a daemon.
ServerOf = Callable[[Settings, Daemon], uvicorn.Server]


@dataclass(slots=True)
class Served:
    """One daemon being served; its app, loops and context may be exchanged, its socket and server stay."""

    daemon: Daemon
    url: str
    server: uvicorn.Server
    socket: socket.socket
    # None for the sandbox.
    assembly: Assembly | None = None
    # Set when this daemon stops, with the process or alone; and when what it is now is exchanged.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: "list[asyncio.Task[None]]" = field(default_factory=list)
    serving: "asyncio.Task[None] | None" = None


class Process:
    """What one process serves: daemons that come, change and go, and their clock and sessions."""

    def __init__(self, plan: Plan, stack: AsyncExitStack, stopping: asyncio.Event, server: ServerOf) -> None:
        self.plan = plan
        self.stopping = stopping
        self.served: dict[str, Served] = {}
        self.scheduler = Scheduler()
        self.runner = Runner(hears=plan.together)
        self.loops: list[Loop] = [self.scheduler.run, self.runner.run, self.heartbeats]
        self._stack = stack
        self._server = server
        self._begun = False
        self._ends: set[asyncio.Task[object]] = set()

    async def open(self, part: Plan) -> list[Served]:
        """Make the daemons of one login."""
        known = next((one.assembly for one in self.served.values() if one.assembly and part.together), None)
        if known is not None:
            known.plan = replace(part, names=[*known.plan.names, *part.names])
            await known.directory.read_keys()
        elif set(part.names) != {"sandbox"}:
            loops: list[Loop] = []
            known = await assemble(part, self._stack, self.stopping, loops, self.runner.wake)
            self.loops += loops
            if self._begun:
                for loop in loops:
                    self._later(supervise(loop, self.stopping, log))
        return [self._add(part, known, name) for name in part.names]

    def _add(self, plan: Plan, assembly: Assembly | None, name: str) -> Served:
        settings = plan.settings
        wanted = plan.port or default_port(settings, plan.entries, name)
        listening = bind(settings.host, wanted, spare=not plan.together and plan.port is None)
        port = listening.getsockname()[1]
        url = url_of(settings, port, together=plan.together, whole=plan.whole)
        ending = asyncio.Event()
        is_alone = assembly is None or name == "sandbox"
        share = BESIDE_DAEMONS if plan.together else ALONE
        daemon = sandbox(settings, url, share) if is_alone or assembly is None else assembly.daemon(name, url, ending)
        if daemon.kind == "butler":
            daemon = replace(daemon, app=Front(daemon.app))
        server = self._server(settings, daemon)
        self.served[name] = Served(daemon, url, server, listening, None if is_alone else assembly, ending=ending)
        return self.served[name]

    def start(self, one: Served) -> None:
        """Let a daemon work and be served; if it stops unasked, the process does."""
        name = one.daemon.name
        self._begun = True
        self._work(one)
        if has_heartbeat(one):
            self._later(beat(one, "ready", 4))
        one.serving = asyncio.create_task(one.server.serve(sockets=[one.socket]))
        one.serving.add_done_callback(lambda _: self.stopping.set() if self.served.get(name) is one else None)
        self._later(_with_process(self.stopping, one))

    def _work(self, one: Served) -> None:
        """Run the daemon's loops, and what it does by the clock."""
        one.tasks += [asyncio.create_task(supervise(loop, one.ending, log)) for loop in one.daemon.loops]
        context, assembly, name = one.daemon.context, one.assembly, one.daemon.name
        if one.daemon.kind == "butler" and context is not None and assembly is not None:
            client, entry = assembly.local[name], assembly.entry(name)

            async def call(tool: str, arguments: Mapping[str, object], occurrence_id: str) -> Result:
                return await client.by_clock(tool, arguments, Caller(name, "client", occurrence_id))

            place = assembly.place(name, one.url)
            self.scheduler.take(Hand(context, context.tools, call, entry.schedules, thinks=place is not None))
            if place is None:
                self.runner.remove(name)
            else:
                self.runner.add(place)

    async def exchange(self, name: str) -> None:
        """Let a butler be what its folder says now; calls in hand are answered by what it was."""
        one = self.served[name]
        front = self._front(one)
        before, tasks, was_ending = one.daemon, one.tasks, one.ending
        ending = asyncio.Event()
        assert one.assembly is not None  # noqa: S101  # a butler has one
        after = one.assembly.daemon(name, one.url, ending)
        serving = await front.exchange(after.app)
        one.daemon, one.ending = replace(after, app=front), ending
        # Whoever drains cuts off what is not over by then, whatever it belongs to.
        one.tasks = [task for task in tasks if not task.done()]
        self._work(one)

        async def end() -> None:
            await calls_ended(serving, STANDARD.drain)
            was_ending.set()
            await asyncio.gather(*tasks, return_exceptions=True)
            await close_daemons([before])

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
        self.runner.remove(name)
        if one.assembly is not None:
            one.assembly.local.pop(name, None)
            one.assembly.contexts.pop(name, None)
        await drain([one], [], STANDARD.drain)
        if one.daemon.context is not None:
            await self.runner.end_removed(one.daemon.context)
        if has_heartbeat(one):
            # Nothing thinks for it any more: whoever writes to it is told so, and nothing waits for it.
            await beat(replace(one, daemon=replace(one.daemon, has_runtime=False)), "gone", 1)
        await close_daemons([one.daemon])

    async def heartbeats(self, stopping: asyncio.Event) -> None:
        """Tell the Switchboard again and again, in one breath, who serves here, and at the end that they are gone."""
        wait = 1.0
        while not await pause(stopping, wait):
            there = await self._beat("ready", 4)
            wait = self.plan.settings.timings.heartbeat if there else 1.0
        await self._beat("gone", 1)

    async def _beat(self, status: str, seconds: float) -> bool:
        return all(
            await asyncio.gather(*(beat(one, status, seconds) for one in self.served.values() if has_heartbeat(one)))
        )

    def _later(self, work: Coroutine[None, None, object]) -> None:
        task = asyncio.create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def close(self) -> None:
        """Close what the daemons hold."""
        await asyncio.gather(*self._ends, return_exceptions=True)
        await close_daemons([one.daemon for one in self.served.values()])


async def _with_process(stopping: asyncio.Event, one: Served) -> None:
    """Stop a daemon when its process stops."""
    await first_of(stopping, one.stopping)
    one.stopping.set()
    one.ending.set()


def has_heartbeat(one: Served) -> bool:
    """Return whether the Switchboard is told that this daemon is there: not of the sandbox, which knows no key."""
    return one.daemon.context is not None and one.assembly is not None


async def beat(one: Served, status: str, seconds: float) -> bool:
    """Tell the Switchboard in the daemon's own name how it stands; return whether that was noted."""
    daemon, context = one.daemon, one.daemon.context
    assert context is not None  # noqa: S101  # only those have a heartbeat
    told: dict[str, object] = {"url": one.url, "kind": daemon.kind, "tools": list(daemon.tools), "status": status}
    if daemon.has_runtime:
        told["runtime"] = True
    try:
        await context.daemons.call("switchboard", "heartbeat", told, seconds)
    except ButlersError as failed:
        log.info("no heartbeat", daemon=context.name, why=failed.message)
        return False
    return True


async def drain(served: Sequence[Served], tasks: Sequence["asyncio.Task[None]"], seconds: float) -> None:
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


async def close_daemons(daemons: Sequence[Daemon]) -> None:
    """Close what these hold open."""
    for one in daemons:
        if one.parts.close is not None:
            await one.parts.close()
        if one.context is not None:
            await one.context.daemons.close()
