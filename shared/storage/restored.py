"""What a backup that was put back would do a second time: it ends before anything starts, and the owner is told.

The Messenger sees to what was to be sent or to run (`messenger/delivery/restored.py`), once it runs. Until then the
brake holds it.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from shared.db import witness
from shared.db.pool import Connection
from shared.errors import Unavailable
from shared.storage import brakes

MAY_BE_DONE: Final = "A backup was restored in which this waited. It may have been done since: ask again if it was not."
# How far the beat leaps where the rows were behind: no other Messenger's file is ahead of it afterwards.
LEAP: Final = 1_000_000_000
# A home without a witness fits only rows that nobody has sent from. What another Messenger found needs no second look.
FITS: Final = f"""
CASE WHEN $1::bigint IS NULL THEN beat = 0 ELSE beat >= $1 AND (beat - $1 >= {LEAP} OR $2::bigint = 0
    OR EXISTS (SELECT FROM shared.audit_seals WHERE n = $2 AND encode(hash, 'hex') = $3)) END
"""
FIT: Final = f"SELECT {FITS} FROM messenger.witness"
LEAP_AHEAD: Final = f"UPDATE messenger.witness SET beat = greatest(beat, coalesce($1::bigint, 0)) + {LEAP}"
# What ran then is over as well. A session that classifies says nothing to the owner: the words it was asked about go on
# without it.
END_OPEN: Final = """
UPDATE shared.sessions SET status = 'lost', outcome = $1, ended_at = clock_timestamp(), holder = NULL,
    lease_until = NULL,
    untold = CASE WHEN cause <> 'classify' THEN left($1 || ' It was asked: “' || left(prompt, 200) || '”', 1000) END
WHERE status IN ('waiting', 'running') AND prompt IS NOT NULL
"""
# An agent that is shown them in its next session decides what to do; none begins for them by itself.
LET_SLEEP: Final = "UPDATE shared.notices SET wakes = false WHERE state = 'queued' AND wakes"
# As at the first start: what lies in the mailbox by now is not read.
FORGET_MAILBOXES: Final = "DELETE FROM messenger.mailboxes"


async def end_open(connection: Connection, places: Sequence[Path]) -> list[str]:
    """Put the brake on and end the sessions of a backup that was put back; return a sentence if it was one.

    Its mails stay unread.

    `places` are where the witness lies that knows of later rows.
    """
    seen = None
    with suppress(Unavailable):  # the Messenger says why, and lets nothing leave for others
        seen = witness.furthest(places)
    # A home that never had a witness, such as one of several, is nothing to go by here.
    if seen is not None and not await connection.fetchval(FIT, *witnessed(seen)):
        # INVARIANT: nothing that was let through in the backup begins before the Messenger has made it uncertain.
        await brakes.hold_markers(connection)
        known = {"beat": seen.beat, "seal": seen.seal, "system": seen.system, "at": seen.at}
        await brakes.restored(connection, "migrate", None, witness=known)
        await connection.execute(LEAP_AHEAD, seen.beat)
    elif await brakes.unhandled(connection) is None:
        return []
    ended = int((await connection.execute(END_OPEN, MAY_BE_DONE)).split()[-1])
    await connection.execute(LET_SLEEP)
    await connection.execute(FORGET_MAILBOXES)
    waited = f"{ended} session{'' if ended == 1 else 's'}"
    return [f"A backup was restored: {waited} ended that were in it, and mails that came before now stay unread."]


def witnessed(seen: witness.Seen | None) -> tuple[int | None, int, str]:
    """Return what the rows are compared with by `FITS`."""
    return (None, 0, "") if seen is None else (seen.beat, seen.seal, seen.seal_hash)
