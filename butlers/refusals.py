"""The refusals of a daemon itself, each with its line in the audit."""

from butlers.butler import Context
from shared.errors import ButlersError
from shared.storage.refusals import Refused, keep
from shared.telemetry.logs import logger

log = logger("butlers.refusals")


async def note_refusal(context: Context, caller: str, why: str, **detail: object) -> None:
    """Write to the audit what this daemon refused; if the database is lost, log it, and the refusal stands."""
    tried = (caller, why)
    if tried in context.refused:
        return
    context.refused[tried] = True
    try:
        async with context.db.work() as connection:
            await keep(connection, Refused(context.name, caller, why), context.new_id(), **detail)
    except ButlersError as lost:
        context.refused.pop(tried, None)
        log.warning("a refusal is not in the audit", caller=caller, refused=why, why=lost.message)
