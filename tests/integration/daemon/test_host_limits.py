"""A process opens as many files as its daemons need, and gives back the memory that a flood has left."""

import asyncio
import resource
import sys
from asyncio.subprocess import PIPE

from butlers.daemon.host import OPEN_FILES, room_for_connections

# Large pieces between small ones that stay, as a flood of bodies leaves them.
CUT_UP = """
from pathlib import Path
from butlers.daemon.host import give_back_memory
give_back_memory()
held = [(bytes(100_000), bytearray(600)) for _ in range(1000)]
held = [small for _, small in held]
print(int(Path("/proc/self/statm").read_text().split()[5]) * 4096)
"""


async def test_large_pieces_of_memory_are_given_back() -> None:
    asked = await asyncio.create_subprocess_exec(sys.executable, "-c", CUT_UP, stdout=PIPE)
    said, _ = await asked.communicate()
    assert 0 < int(said) < 90_000_000


async def test_a_process_may_open_what_its_daemons_may_have() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        room_for_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(OPEN_FILES, before[1]), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
