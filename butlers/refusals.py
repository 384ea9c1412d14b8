"""The refusals of a daemon itself, each with its line in the audit."""

import time
from typing import Final

from butlers.butler import Ground
from shared.errors import ButlersError
from shared.storage.refusals import Refused, keep
from shared.telemetry.logs import logger

log = logger("butlers.refusals")
# As long as the rows remember it: a caller that goes on trying costs no unit of work.
QUIET_SECONDS: Final = 300.0


async def note_refusal(ground: Ground, caller: str, why: str, **detail: object) -> None:
    """Write to the audit what this daemon refused; if the database is lost, log it, and the refusal stands."""
    tried, now = (caller, why), time.monotonic()
    if ground.refused.get(tried, now) is not None:
        return
    ground.refused.put(tried, now, now + QUIET_SECONDS)
    try:
        async with ground.db.work() as connection:
            await keep(connection, Refused(ground.name, caller, why), ground.new_id(), **detail)
    except ButlersError as lost:
        ground.refused.put(tried, now, now)
        log.warning("a refusal is not in the audit", caller=caller, refused=why, why=lost.message)
