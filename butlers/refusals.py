"""The refusals of a daemon itself, each with its line in the audit."""

from butlers.butler import Ground
from shared.errors import ButlersError
from shared.storage.refusals import Refused, keep
from shared.telemetry.logs import logger

log = logger("butlers.refusals")


async def note_refusal(ground: Ground, caller: str, why: str, **detail: object) -> None:
    """Write to the audit what this daemon refused; if the database is lost, log it, and the refusal stands."""
    tried = (caller, why)
    if tried in ground.refused:
        return
    ground.refused[tried] = True
    try:
        async with ground.db.work() as connection:
            await keep(connection, Refused(ground.name, caller, why), ground.new_id(), **detail)
    except ButlersError as lost:
        ground.refused.pop(tried, None)
        log.warning("a refusal is not in the audit", caller=caller, refused=why, why=lost.message)
