"""The sealer of the audit: once a minute it binds what no seal covers yet into the next link of a signed chain.

Any number of Messengers may do so at once: a link has one number, and the first insert of it wins. Nothing here waits
for the gate, and the gate never waits for it.
"""

import asyncio
from datetime import timedelta
from functools import partial

from butlers.butler import Context
from shared.audit import Cover, Seal
from shared.auth import keystore
from shared.auth.keypairs import sign
from shared.errors import ButlersError
from shared.loops import pause
from shared.storage import audit_seals
from shared.telemetry.logs import logger

log = logger("messenger.maintenance.sealer")


async def run(context: Context, stopping: asyncio.Event) -> None:
    """Seal at once, so that nothing waits from before the start, then again and again."""
    while not stopping.is_set():
        try:
            await seal(context)
        except ButlersError as failed:
            log.warning("the audit was not sealed", why=failed.message)
        await pause(stopping, context.settings.timings.seal)


async def seal(context: Context, most: int = audit_seals.MOST) -> Seal | None:
    """Make the next link and return it; None if there is nothing to seal, if the last is too young, or if another did.

    The last is too young if it is younger than half the time between two. So two links lie at least half a minute
    apart, however many Messengers there are, and a line that was written before the first of them and committed after
    it is found by the next or the one after that. A link covers `most` lines, the lowest first, and the next goes on
    from there: a flood of lines waits, and nothing grows with it.
    """
    key = keystore.read(context.home, context.name).private_pem
    async with context.db.work() as connection:
        last = await audit_seals.last(connection, timedelta(seconds=context.settings.timings.seal / 2))
        if not last.due:
            return None
        cover = Cover()
        async for line in audit_seals.unsealed(connection, last, most):
            cover.add(line)
        made = cover.sealed(last.n + 1, last.hash, await audit_seals.now(connection), partial(sign, key))
        if made is None or not await audit_seals.append(connection, made):
            return None
    # With these log lines kept elsewhere one can tell if the newest seals were removed together with what they cover.
    log.info("audit sealed", seal=made.n, hash=made.hash.hex())
    return made
