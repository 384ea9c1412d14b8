"""Waiting for the first of several events, and containing errors so that one task does not end the others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from shared.errors import ButlersError, Unavailable

if TYPE_CHECKING:  # the command line waits for nobody's logs
    from structlog.stdlib import BoundLogger


@contextmanager
def apart(
    log: "BoundLogger", what: str, *, through: tuple[type[ButlersError], ...] = (), **about: object
) -> Iterator[None]:
    """Log an error raised in the `with` block and go on after it; log a mistake of ours with its traceback.

    Errors of the kinds in `through` concern the caller, and are raised.
    """
    try:
        yield
    except through:
        raise
    except ButlersError as failed:
        log.warning(what, why=failed.message, **about)
    except Exception:
        log.exception(what, **about)


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def either(seconds: float, *events: asyncio.Event) -> None:
    """Wait for one of the events, at most so many seconds.

    The rows say what there is to do, so that a lost hint costs one tick.
    """
    with suppress(TimeoutError):
        await asyncio.wait_for(first_of(*events), seconds)


async def pause(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event for at most so many seconds; return whether it came."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def supervise(
    one: Callable[[asyncio.Event], Awaitable[None]], stopping: asyncio.Event, log: "BoundLogger"
) -> None:
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
