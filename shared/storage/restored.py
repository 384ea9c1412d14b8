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
from shared.storage.session_list import WAS_ASKED

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
LEAPT_TO: Final = f"{LEAP_AHEAD} RETURNING beat"


async def end_open(connection: Connection, places: Sequence[Path]) -> list[str]:
    """Look whether a backup was put back; put the brake on and end what is open in it; return a sentence if it was one.

    `places` are where the witness lies that knows of later rows.
    """
    try:
        seen = witness.furthest(places)
    except Unavailable as unread:
        return [str(unread)]
    if await connection.fetchval(FIT, *witnessed(seen)):
        return []
    # INVARIANT: nothing that was let through in the backup begins before the Messenger has made it uncertain.
    await brakes.hold_markers(connection)
    known = {"beat": seen.beat, "seal": seen.seal, "system": seen.system, "at": seen.at} if seen else None
    await brakes.restored(connection, "migrate", None, witness=known)
    leapt = await connection.fetchval(LEAPT_TO, seen.beat if seen else None)
    if seen is None:
        # A home without a witness has one from now on, so that this is found once.
        with suppress(Unavailable):  # the Messenger says why, and lets nothing leave for others
            witness.write(places[:1], witness.Seen(leapt))
    return [await _end(connection)]


async def by_word(connection: Connection, by: str) -> str | None:
    """Put the brake on by the owner's word, end what is open, and return a sentence.

    Returns None if such a brake waits already: what is open by now was asked since.
    """
    if await brakes.restored(connection, "owner", by) is None:
        return None
    return await _end(connection)


# What ran then is over as well; what its butler holds at this moment is not of a backup, and keeps nobody waiting. A
# session that classifies says nothing to the owner: the words it was asked about go on without it.
END_OPEN: Final = f"""
UPDATE shared.sessions SET status = 'lost', outcome = $1, ended_at = clock_timestamp(), holder = NULL,
    lease_until = NULL,
    untold = CASE WHEN cause <> 'classify' THEN left($1 || {WAS_ASKED}, 1000) END
WHERE id IN (SELECT id FROM shared.sessions
    WHERE status IN ('waiting', 'running') AND prompt IS NOT NULL FOR UPDATE SKIP LOCKED)
"""
# As at the first start: what lies in the mailbox by now is not read. There ten minutes before are read too, as clocks
# differ; what came in these is done already here, but for half a minute in which nothing ran.
FORGET_MAILBOXES: Final = """
UPDATE messenger.mailboxes SET uidvalidity = 0, last_uid = 0, read_at = clock_timestamp(),
    mails_from = clock_timestamp() + interval '9.5 minutes'
"""


async def _end(connection: Connection) -> str:
    ended = int((await connection.execute(END_OPEN, MAY_BE_DONE)).split()[-1])
    await connection.execute(FORGET_MAILBOXES)
    waited = f"{ended} session{'' if ended == 1 else 's'}"
    return f"A backup was restored: {waited} ended that were in it, and mails that came before now stay unread."


def witnessed(seen: witness.Seen | None) -> tuple[int | None, int, str]:
    """Return what the rows are compared with by `FITS`."""
    return (None, 0, "") if seen is None else (seen.beat, seen.seal, seen.seal_hash)
