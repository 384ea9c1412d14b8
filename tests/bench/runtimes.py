"""How much memory a session takes: every runtime plays one story, and its largest process group is printed.

`python -m tests.bench.runtimes [CLAUDE]`, with the path of Claude Code's program if it is to take part.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from butlers.runtime.base import Limits
from butlers.runtime.registry import RUNTIMES
from tests.integration.runtime.small_butler import small_butler
from tests.integration.runtime.story import CHAT, COMMAND, MESSAGES, SCRIPT, Player, claude
from tests.rig.model_server import model_server

EVERY = 0.02


def resident(room: Path) -> int:
    """The megabytes of all processes that work in this folder."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == room:
                total += int((process / "statm").read_text().split()[1]) * 4096
        except OSError:
            continue  # it has ended, or is another's
    return total // 2**20


async def measured(player: Player, folder: Path) -> tuple[int, float]:
    """The most it took, and the seconds until it was over."""
    most, started = 0, time.monotonic()
    async with small_butler() as butler, model_server() as models:
        models.play(*player.answers())
        runtime = RUNTIMES[player.runtime]
        settings = runtime.config.model_validate(player.table)
        job = butler.job(folder, settings, Limits(), **player.environment(models))

        async def watching() -> None:
            nonlocal most
            while True:
                most = max(most, await asyncio.to_thread(resident, job.folder))
                await asyncio.sleep(EVERY)

        watch = asyncio.create_task(watching())
        *_, end = [event async for event in runtime.run(job, asyncio.Event())]
        watch.cancel()
    print(f"{end}", file=sys.stderr)
    return most, time.monotonic() - started


def main() -> None:
    """Print a line for each."""
    players = {"script": SCRIPT, "command (fastmcp)": COMMAND, "agent, Messages": MESSAGES, "agent, Chat": CHAT}
    if sys.argv[1:]:
        players["claude"] = claude(sys.argv[1])
    for name, player in players.items():
        with tempfile.TemporaryDirectory() as folder:
            most, seconds = asyncio.run(measured(player, Path(folder).resolve()))
        print(f"{name:<20} {most:>5} MB {seconds:>6.1f} s", flush=True)


if __name__ == "__main__":
    main()
