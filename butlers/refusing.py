"""A daemon's own refusals, each with its line in the audit."""

from butlers.butler import Ground
from shared.errors import ButlersError
from shared.refusals import Refused, keep
from shared.telemetry import logger

log = logger("butlers.refusing")


async def note_refusal(ground: Ground, caller: str, why: str, **detail: object) -> None:
    """Say in the audit what this daemon refused; it stays refused where the database is lost, which the log tells."""
    try:
        async with ground.db.work() as connection:
            await keep(connection, Refused(ground.name, caller, why), ground.new_id(), **detail)
    except ButlersError as lost:
        log.warning("a refusal is not in the audit", caller=caller, refused=why, why=lost.message)
