"""A process opens as many files as its daemons need."""

import resource

from butlers.daemon.host import OPEN_FILES, room_for_connections


async def test_a_process_may_open_what_its_daemons_may_have() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        room_for_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(OPEN_FILES, before[1]), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
