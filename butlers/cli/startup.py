"""What `butlers up` does before it serves: it stops between steps, and migrates in a copy of itself."""

import asyncio
import multiprocessing
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from shared.errors import Unavailable

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOKS_SECONDS = 0.1


class Stop:
    """A stop by Ctrl-C or SIGTERM while starting, which takes effect between steps only.

    Within an import it could leave a lock behind.
    """

    def __init__(self) -> None:
        self._asked = False
        for number in SIGNALS:
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def look(self) -> None:
        """Raise KeyboardInterrupt if a signal came."""
        if self._asked:
            raise KeyboardInterrupt

    async def run(self, work: Coroutine[None, None, None]) -> None:
        """Do the work, which ends where a signal comes: a server that hangs may take for ever.

        The event loop takes over no signal, since it would lose one that comes while it ends.
        """
        task = asyncio.create_task(work)
        while not task.done():
            await asyncio.wait([task], timeout=LOOKS_SECONDS)
            if self._asked and not task.cancelling():
                task.cancel()
        await task


def in_a_copy(work: Callable[[], None], stop: Stop) -> None:
    """Do the work in a copy of this process, so that the memory of what only migrations import ends with it.

    A copy needs a process without threads of its own, which this one is until it serves, and a system that allows it.
    """
    if sys.platform != "linux":
        work()
        return
    sys.stdout.flush()
    copied = multiprocessing.get_context("fork")
    outcome, sending = copied.Pipe(duplex=False)
    copy = copied.Process(target=_send_outcome, args=(work, sending), daemon=True)
    copy.start()
    sending.close()
    try:
        while not outcome.poll(LOOKS_SECONDS):
            stop.look()
        failed = outcome.recv()
    except EOFError:
        stop.look()
        raise Unavailable("The preparation of the database was ended from outside.", "Start again.") from None
    finally:
        copy.kill()
        copy.join()
    if failed is not None:
        raise failed


def _send_outcome(work: Callable[[], None], sending: "Connection[Exception | None]") -> None:
    failed: Exception | None = None
    try:
        work()
    except (KeyboardInterrupt, asyncio.CancelledError):
        return  # a signal, which came to the process that waits as well
    except Exception as broken:  # noqa: BLE001  # the process that waits for the outcome raises it
        failed = broken
    sending.send(failed)
