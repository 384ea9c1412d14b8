"""The watch over a module at work: one that cannot start, or whose loop keeps breaking, is degraded, alone."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from butlers.butler import Components, Loop, Result, Tool, ToolCall
from shared.config.timings import STANDARD, Timings
from shared.errors import ButlersError, Degraded
from shared.loops import first_of, pause
from shared.telemetry.logs import logger

T = TypeVar("T")
log = logger("butlers.modules")
FAILURES: Final = 5
START: Final = "start"


async def contained(work: Awaitable[T]) -> T:
    """Wait for what a module does; what would end more than it, such as `sys.exit`, is an error like any other.

    A cancellation counts only if it comes from outside: the module may have awaited what was cancelled.
    """
    task = asyncio.current_task()
    try:
        return await work
    except asyncio.CancelledError as stray:
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("It awaited what was cancelled.") from stray
    except Exception:
        raise
    except BaseException as broke:
        raise RuntimeError(f"A module raised {type(broke).__name__}.") from broke


async def alone(work: Awaitable[None]) -> None:
    """Wait for what a module does in a task of its own, and until it has ended where it is cut off."""
    running = asyncio.ensure_future(contained(work))
    try:
        await asyncio.wait([running])
        running.result()
    finally:
        # What is closed next, or begun in its place, must not meet it at work.
        running.cancel()
        await asyncio.wait([running], timeout=STANDARD.drain)


class Watch:
    """One module of one butler: why it cannot work, if it cannot."""

    def __init__(self, name: str, timings: Timings) -> None:
        self.name = name
        # By what is in trouble: the start, or a loop.
        self._troubles: dict[str, str] = {}
        self._again = timings.module_again
        self._within = timings.module_failures_within
        self._started = asyncio.Event()

    def over(self, parts: Components) -> Components:
        """Return the module's components, its tools refused while it is degraded and its loops begun once it works."""
        if parts.start is None:
            self._started.set()
        else:
            self._troubles[START] = "It is starting."
        loops: list[Loop] = [] if parts.start is None else [partial(self._begin, parts.start)]
        loops += [partial(self._keep, one, f"loop {number}") for number, one in enumerate(parts.loops)]
        return replace(
            parts,
            tools=[self._guarded(tool) for tool in parts.tools],
            loops=loops,
            remarks=lambda: [*parts.remarks(), *self.remarks()],
        )

    @property
    def trouble(self) -> str | None:
        """Return why the module cannot work, or None if it can."""
        return next(iter(self._troubles.values()), None)

    def remarks(self) -> list[str]:
        """Return why the module cannot work, as a sentence."""
        return [f"The module `{self.name}` is degraded. {self.trouble}"] if self.trouble else []

    def _guarded(self, tool: Tool) -> Tool:
        async def handler(call: ToolCall) -> Result:
            if self.trouble is not None:
                raise Degraded(f"`{tool.name}` cannot be used now. {self.trouble}", "Nothing was done.")
            return await contained(tool.handler(call))

        return replace(tool, handler=handler)

    async def _begin(self, start: Callable[[], Awaitable[None]], stopping: asyncio.Event) -> None:
        """Start the module, trying again and again, and then wait until stopping."""
        while not self._started.is_set():
            try:
                await alone(start())
            except ButlersError as missing:
                self._degrade(START, str(missing))
            except Exception as bug:
                log.exception("a module broke as it started", module=self.name)
                self._degrade(START, f"It broke as it started ({type(bug).__name__}); the log says where.")
            else:
                self._troubles.pop(START)
                self._started.set()
                break
            if await pause(stopping, self._again):
                return
        await stopping.wait()

    async def _keep(self, one: Loop, called: str, stopping: asyncio.Event) -> None:
        """Run a loop again whenever it breaks; a loop that breaks five times in a minute degrades its module."""
        await first_of(self._started, stopping)
        broken: deque[float] = deque(maxlen=FAILURES)
        while not stopping.is_set():
            try:
                await self._run(one, called, stopping)
            except ButlersError as failed:
                log.warning("a module's loop is started again", module=self.name, why=failed.message)
            except Exception:
                log.exception("a module's loop broke and is started again", module=self.name)
            broken.append(time.monotonic())
            if len(broken) == FAILURES and broken[-1] - broken[0] < self._within:
                self._degrade(called, "One of its loops keeps breaking; the log says why.")
            await pause(stopping, self._again if called in self._troubles else min(1.0, self._again))

    async def _run(self, one: Loop, called: str, stopping: asyncio.Event) -> None:
        """Run the loop; once it has lasted as long as failures count, its module is well again."""
        well = asyncio.get_running_loop().call_later(self._within, self._troubles.pop, called, None)
        try:
            await alone(one(stopping))
        finally:
            well.cancel()

    def _degrade(self, what: str, why: str) -> None:
        if self._troubles.get(what) != why:
            log.warning("module degraded", module=self.name, why=why)
        self._troubles[what] = why
