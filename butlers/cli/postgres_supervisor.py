"""The supervisor of the embedded PostgreSQL, which starts it again when its process is gone."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

from shared.errors import PostgresFailed
from shared.loops import pause
from shared.postgres import server
from shared.postgres.files import SYSTEM_FOLDER
from shared.telemetry.logs import logger

log = logger("butlers.cli.postgres_supervisor")
# Between two looks, and between two tries to start a server that does not start.
LOOK_SECONDS: Final = 0.5
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0


async def keep_serving(home: Path, stopping: asyncio.Event, *, system_folder: Path = SYSTEM_FOLDER) -> None:
    """Start the server of this BUTLERS_HOME again whenever it is gone; the daemons reconnect by themselves."""
    wait = FIRST_WAIT
    while not await pause(stopping, LOOK_SECONDS):
        try:
            if not server.is_gone(home):
                continue
            log.error("PostgreSQL is gone and is started again")
            await asyncio.to_thread(partial(server.revive, home, system_folder=system_folder))
        except PostgresFailed as failed:
            log.error("PostgreSQL cannot be started", why=failed.message, remedy=failed.remedy)  # noqa: TRY400
            await pause(stopping, wait)
            wait = min(2 * wait, LONGEST_WAIT)
        else:
            log.warning("PostgreSQL serves again")
            wait = FIRST_WAIT
