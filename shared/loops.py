"""Waiting for the first of several things, and doing something beside others without taking them with it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from structlog.stdlib import BoundLogger

from shared.errors import ButlersError


@contextmanager
def apart(
    log: BoundLogger, what: str, *, through: tuple[type[ButlersError], ...] = (), **about: object
) -> Iterator[None]:
    """Log what goes wrong in here and go on behind it; a mistake of ours with its traceback.

    Errors of the kinds `through` concern whoever called, and are raised.
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


async def pause(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event at most so long; true if it came."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
