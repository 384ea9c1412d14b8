"""A daemon's own refusals, each with its line in the audit."""

import time
from typing import Final

from butlers.butler import Ground
from shared.errors import ButlersError
from shared.storage.refusals import Refused, keep
from shared.telemetry.logs import logger

log = logger("butlers.refusals")
# As long as the rows remember it: whoever goes on trying costs no unit of work.
QUIET_SECONDS: Final = 300.0


async def note_refusal(ground: Ground, caller: str, why: str, **detail: object) -> None:
    """Say in the audit what this daemon refused; it stays refused where the database is lost, which the log tells."""
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
