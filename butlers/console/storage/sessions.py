"""Sign-in links, sessions and failed sign-ins: the only writer of the schema `console`.

Only SHA-256 of a code or session id is ever stored, so that a copy of the database signs nobody in.
"""

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Final, Literal
from urllib.parse import quote

from shared.db.pool import Connection
from shared.storage.pending_actions import Event, record

LINK_LASTS: Final = timedelta(minutes=10)
SESSION_LASTS: Final = timedelta(days=30)
# How long after signing in a session may change what leaves without asking.
PROOF_LASTS: Final = timedelta(minutes=10)
FAILURES: Final = 5
WITHIN: Final = timedelta(minutes=1)


def sha(code: str) -> str:
    """Return what is stored of a code or of a session id."""
    return sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


MAKE_LINK = """
INSERT INTO console.sign_in_links (code_sha, made_at, expires_at, for_uids)
SELECT $1, now, now + $2::interval, $3::bigint[] FROM clock_timestamp() AS now
"""


async def make_sign_in_link(
    connection: Connection, base_url: str, code: str, for_uids: Sequence[int] | None = None
) -> str:
    """Make a link that signs in once, within 10 minutes; of the users of the console's computer only these.

    `code` must be unguessable (32 random bytes as text).
    """
    await connection.execute(MAKE_LINK, sha(code), LINK_LASTS, for_uids)
    return f"{base_url.rstrip('/')}/sign-in?code={quote(code, safe='')}"


MAKE_DESK_CODE = """
INSERT INTO console.sign_in_links (code_sha, made_at, expires_at, purpose)
SELECT $1, now, now + $2::interval, 'desk' FROM clock_timestamp() AS now
"""


async def make_desk_code(connection: Connection, code: str) -> None:
    """Let this code sign in one desk, within 10 minutes; it signs no browser in."""
    await connection.execute(MAKE_DESK_CODE, sha(code), LINK_LASTS)


USE_LINK = """
WITH link AS (SELECT code_sha, coalesce($3::bigint = ANY (for_uids), true) AS theirs FROM console.sign_in_links
    WHERE code_sha = $1 AND purpose = $2 AND used_at IS NULL AND expires_at > clock_timestamp() FOR UPDATE),
used AS (UPDATE console.sign_in_links l SET used_at = clock_timestamp() FROM link
    WHERE l.code_sha = link.code_sha AND link.theirs)
SELECT theirs FROM link
"""


async def use_link(
    connection: Connection, code: str, purpose: Literal["browser", "desk"] = "browser", uid: int | None = None
) -> bool | None:
    """Use the code up; return whether it was good for this, which it never is again.

    False if it is another user's of this computer, who may still use it; None if it is spent or none.
    """
    theirs: bool | None = await connection.fetchval(USE_LINK, sha(code), purpose, uid)
    return theirs


BEGIN = """
INSERT INTO console.sessions (id_sha, made_at, expires_at, proved_at, peer_uid)
SELECT $1, now, now + $2::interval, now, $3::bigint FROM clock_timestamp() AS now
"""
SWEEP_SESSIONS = "DELETE FROM console.sessions WHERE expires_at < clock_timestamp()"
SWEEP_FAILURES = "DELETE FROM console.failed_sign_ins WHERE at < clock_timestamp() - interval '1 day'"


async def begin(connection: Connection, session_id: str, peer_uid: int | None, by: str) -> None:
    """Begin a session for 30 days, proved by this sign-in; sweep away what has expired.

    It belongs to that user of this computer alone, or, if `peer_uid` is None, to anybody who holds its id. `by` says
    what the owner signed in with.
    """
    await connection.execute(BEGIN, sha(session_id), SESSION_LASTS, peer_uid)
    await record(connection, Event("signed_in", "owner"), by=by, surface="console")
    for sweep in (SWEEP_SESSIONS, SWEEP_FAILURES):
        await connection.execute(sweep)


SWEEP_LINKS = "DELETE FROM console.sign_in_links WHERE expires_at < clock_timestamp()"


async def sweep_links(connection: Connection) -> None:
    """Remove the links that have expired, so that a clock put back makes none of them good again."""
    await connection.execute(SWEEP_LINKS)


FIND = """
SELECT peer_uid IS NULL OR peer_uid IS NOT DISTINCT FROM $2::bigint FROM console.sessions
WHERE id_sha = $1 AND ended_at IS NULL AND expires_at > clock_timestamp()
"""


async def is_live(connection: Connection, session_id: str, peer_uid: int | None) -> bool:
    """Return whether this session was begun, has not ended or expired, and is of the user who brings it."""
    theirs = await connection.fetchval(FIND, sha(session_id), peer_uid)
    if theirs is False:
        from shared.telemetry.logs import logger  # noqa: PLC0415  # the command line waits for nobody's logs

        log = logger("butlers.console")
        if peer_uid is None:  # often a browser that has left the page meanwhile, whom the kernel knows no more
            log.info("a session's cookie came by a connection that no user of this computer has")
        else:
            log.warning("a session's cookie came from another user than signed in", uid=peer_uid)
    return theirs is True


PROVED = """
SELECT true FROM console.sessions WHERE id_sha = $1 AND ended_at IS NULL AND expires_at > clock_timestamp()
    AND proved_at > clock_timestamp() - $2::interval
"""


async def has_proved(connection: Connection, session_id: str) -> bool:
    """Return whether this live session was signed in to within the last ten minutes."""
    return await connection.fetchval(PROVED, sha(session_id), PROOF_LASTS) is True


END = "UPDATE console.sessions SET ended_at = clock_timestamp() WHERE id_sha = $1 AND ended_at IS NULL RETURNING true"


async def sign_out(connection: Connection, session_id: str) -> None:
    """Sign out; a second time changes nothing."""
    if await connection.fetchval(END, sha(session_id)) is True:
        await record(connection, Event("signed_out", "owner"), surface="console")


# Each that has not ended, those over by the clock too: one that is put back brings them to life again. The links first:
# who waited for one that was being used then sees the session that it began.
USE_ALL = """
WITH used AS (UPDATE console.sign_in_links SET used_at = clock_timestamp() WHERE used_at IS NULL
    RETURNING expires_at > clock_timestamp() AS live)
SELECT count(*) FROM used WHERE live
"""
END_ALL = """
WITH ended AS (UPDATE console.sessions SET ended_at = clock_timestamp() WHERE ended_at IS NULL
    RETURNING expires_at > clock_timestamp() AS live)
SELECT count(*) FROM ended WHERE live
"""


async def end_all(connection: Connection) -> int:
    """Sign out every browser, and use up every sign-in link; return how many sessions that ended."""
    links = await connection.fetchval(USE_ALL)
    ended: int = await connection.fetchval(END_ALL)
    await record(connection, Event("sessions_ended", "owner"), sessions=ended, links=links)
    return ended


# One attempt at a time. No butler may lock this table, and keep the owner out.
ONE_BY_ONE = "LOCK TABLE console.failed_sign_ins IN SHARE ROW EXCLUSIVE MODE"
RESERVE = """
INSERT INTO console.failed_sign_ins (at) SELECT clock_timestamp()
WHERE (SELECT count(*) FROM console.failed_sign_ins WHERE at > clock_timestamp() - $1::interval) < $2
RETURNING ctid::text
"""


async def reserve_attempt(connection: Connection) -> str | None:
    """Book a sign-in as failed before the password is looked at; return None if there were five in the last minute.

    Booking first holds the limit also for guesses that come at the same time. `forgive` undoes it.
    """
    await connection.execute(ONE_BY_ONE)
    attempt: str | None = await connection.fetchval(RESERVE, WITHIN, FAILURES)
    return attempt


FORGIVE = "DELETE FROM console.failed_sign_ins WHERE ctid = $1::text::tid"


async def forgive(connection: Connection, attempt: str) -> None:
    """Remove the attempt, which was no failure."""
    await connection.execute(FORGIVE, attempt)
