"""The refusals of a daemon itself, each with its line in the audit."""

from typing import Final

from butlers.butler import Context
from shared.errors import ButlersError
from shared.storage.refusals import Refused, keep
from shared.telemetry.logs import logger

log = logger("butlers.refusals")
# Of one caller in the time that a process remembers them, so that nobody fills the audit by ever new things.
MOST_LINES: Final = 100


async def note_refusal(context: Context, caller: str, why: str, about: str = "", **detail: object) -> None:
    """Write to the audit what this daemon refused; if the database is lost, log it, and the refusal stands."""
    tried = (caller, why, about)
    if tried in context.refused or sum(one == caller for one, _, _ in context.refused) >= MOST_LINES:
        return
    context.refused[tried] = True
    try:
        async with context.db.work() as connection:
            await keep(connection, Refused(context.name, caller, why, about), context.new_id(), **detail)
    except ButlersError as lost:
        context.refused.pop(tried, None)
        log.warning("a refusal is not in the audit", caller=caller, refused=why, why=lost.message)
