"""The brake, put on and lifted by the owner: the only writer of shared.brakes."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from shared.db.pool import Connection, Record, tell
from shared.storage.pending_actions import Event, record


@dataclass(frozen=True, slots=True)
class Scope:
    """What a brake is for; a field that is left out narrows nothing."""

    butler: str | None = None
    contact_id: str | None = None
    channel: str | None = None


PUT_ON: Final = """
INSERT INTO shared.brakes (butler, contact_id, channel, owner_too, until, made_by)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5, $6) RETURNING id::text
"""


async def put_on(
    connection: Connection, scope: Scope, by: str, *, lasts: timedelta | None = None, owner_too: bool = False
) -> str:
    """Put on a brake and return its id; it counts for every marker that comes after the commit."""
    contact = UUID(scope.contact_id) if scope.contact_id else None
    args = (scope.butler, contact, scope.channel, owner_too, lasts, UUID(by))
    made = str(await connection.fetchval(PUT_ON, *args))
    detail = {"brake": made, "butler": scope.butler, "contact_id": scope.contact_id, "channel": scope.channel}
    await record(connection, Event("brake_on", "owner"), **detail, owner_too=owner_too, contact=by)
    return made


# It is for everybody but the owner. One that nobody has carried out yet is enough.
RESTORED: Final = """
INSERT INTO shared.brakes (reason, made_by) SELECT 'restored', $1
WHERE NOT EXISTS (SELECT FROM shared.brakes WHERE reason = 'restored' AND handled_at IS NULL) RETURNING id::text
"""


async def restored(connection: Connection, actor: str, by: str | None, **known: object) -> str | None:
    """Put on the brake that says a backup was put back, and return its id.

    Returns None if such a brake waits already to be carried out.
    """
    made: str | None = await connection.fetchval(RESTORED, UUID(by) if by else None)
    if made is not None:
        await record(connection, Event("restored", actor), brake=made, contact=by, **known)
        await tell(connection, "cards")
    return made


# The lock that the trigger of shared.brakes takes on the authority, taken before that of any row.
HOLD_MARKERS: Final = "LOCK TABLE shared.authority IN ROW EXCLUSIVE MODE"


async def hold_markers(connection: Connection) -> None:
    """Let no marker be under way while this transaction lasts; this lock comes first in the order of locks."""
    await connection.execute(HOLD_MARKERS)


UNHANDLED: Final = """
SELECT id::text FROM shared.brakes WHERE reason = 'restored' AND handled_at IS NULL ORDER BY made_at LIMIT 1
"""


async def unhandled(connection: Connection) -> str | None:
    """Return the brake of a backup that was put back, as long as nobody has carried out what it means."""
    found: str | None = await connection.fetchval(UNHANDLED)
    return found


HANDLED: Final = (
    "UPDATE shared.brakes SET handled_at = clock_timestamp() WHERE id = $1 AND handled_at IS NULL RETURNING id"
)


async def carried_out(connection: Connection, brake: str) -> bool:
    """Note that this transaction carries out what the brake means; return False if another one was first."""
    return await connection.fetchval(HANDLED, UUID(brake)) is not None


LATEST_RESTORED: Final = """
SELECT max(made_at) FROM shared.brakes WHERE reason = 'restored' AND lifted_at IS NULL
"""


async def restored_at(connection: Connection) -> datetime | None:
    """Return when the house was last found restored, as long as the owner has not lifted that brake."""
    found: datetime | None = await connection.fetchval(LATEST_RESTORED)
    return found


LIFT: Final = """
UPDATE shared.brakes SET lifted_at = clock_timestamp()
WHERE lifted_at IS NULL AND (until IS NULL OR until > clock_timestamp()) AND ($1::text IS NULL OR butler = $1)
    AND ($2::uuid IS NULL OR contact_id = $2) AND ($3::text IS NULL OR channel = $3) RETURNING id::text
"""


async def lift(connection: Connection, scope: Scope, by: str) -> list[str]:
    """Lift the brakes that are on and fit the scope, and return their ids; what they delayed goes out at once."""
    contact = UUID(scope.contact_id) if scope.contact_id else None
    lifted = [row["id"] for row in await connection.fetch(LIFT, scope.butler, contact, scope.channel)]
    for brake in lifted:
        await record(connection, Event("brake_off", "owner"), brake=brake, contact=by)
    await tell(connection, "cards")
    return lifted


LIFT_ONE: Final = """
UPDATE shared.brakes SET lifted_at = clock_timestamp()
WHERE id = $1 AND lifted_at IS NULL AND (until IS NULL OR until > clock_timestamp()) RETURNING id::text
"""


async def lift_one(connection: Connection, brake: str, by: str) -> bool:
    """Lift this brake alone, as `lift` does; return False if it is not on."""
    if await connection.fetchval(LIFT_ONE, UUID(brake)) is None:
        return False
    await record(connection, Event("brake_off", "owner"), brake=brake, contact=by)
    await tell(connection, "cards")
    return True


STANDING: Final = """
SELECT b.id::text, b.butler, b.contact_id::text, c.name AS contact, b.channel, b.owner_too, b.until, b.made_at, b.reason
FROM shared.brakes b LEFT JOIN shared.contacts c ON c.id = b.contact_id
WHERE b.lifted_at IS NULL AND (b.until IS NULL OR b.until > clock_timestamp()) ORDER BY b.made_at
"""


async def standing(connection: Connection) -> list[Record]:
    """Return the brakes that are on, oldest first."""
    return list(await connection.fetch(STANDING))
