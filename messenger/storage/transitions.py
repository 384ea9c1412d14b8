"""Changes of deliveries that wait: what ends unsent, what is asked for again, what the owner says of the uncertain.

Beside `messenger/storage/deliveries.py` the only writer of deliveries, parts and attempts; here it moves only what
nobody holds.
"""

from datetime import timedelta
from typing import Final
from uuid import UUID

from messenger.storage import queries
from messenger.storage.deliveries import Claimed, ended, note_ends
from shared.db.pool import Connection, Record
from shared.storage import brakes, resolutions, withdrawals

# A parked delivery whose question got a no, or no answer, ends with it.
CLOSE_ANSWERED: Final = f"""
UPDATE messenger.deliveries d SET status = 'cancelled', reason = 'answered', settled_at = clock_timestamp()
FROM shared.notifications n WHERE n.id = d.notification_id AND d.status = 'parked' AND n.status = 'error'
RETURNING {ended("d")}
"""


async def close_answered(connection: Connection) -> None:
    """End the parked deliveries that nobody waits for any more."""
    await note_ends(connection, await connection.fetch(CLOSE_ANSWERED))


CANCEL: Final = f"""
WITH was AS (
    SELECT id, status FROM messenger.deliveries
    WHERE notification_id = $1 AND status IN ('queued', 'parked', 'cancelled') FOR UPDATE)
UPDATE messenger.deliveries d SET status = 'cancelled', reason = 'withdrawn', settled_at = clock_timestamp()
FROM was WHERE d.id = was.id RETURNING was.status AS was, {ended("d")}
"""


async def cancel(connection: Connection, notification_id: str) -> bool:
    """End the delivery of a notification before anybody took it; return False while somebody holds it."""
    row = await connection.fetchrow(CANCEL, UUID(notification_id))
    await note_ends(connection, [row] if row is not None and row["was"] != "cancelled" else [])
    return row is not None


# What is queued past its time was tried in vain, or never: the authority's own time counts.
OUT_OF_TIME: Final = f"""
UPDATE messenger.deliveries d SET status = CASE WHEN tried.times > 0 THEN 'dead' ELSE 'expired' END,
    reason = 'too_late', settled_at = clock_timestamp()
FROM shared.notifications n CROSS JOIN LATERAL (
    SELECT count(DISTINCT a.attempt) AS times,
        (array_agg(coalesce(a.outcome, '') ORDER BY a.attempt DESC, a.n DESC))[1] AS last
    FROM messenger.deliveries o JOIN messenger.attempts a ON a.delivery_id = o.id WHERE o.notification_id = n.id) tried
WHERE n.id = $1 AND n.not_after <= clock_timestamp() AND d.notification_id = n.id AND d.status = 'queued'
RETURNING d.channel, d.status, tried.times, tried.last, n.admitted_by = n.origin_butler AS again, {ended("d")}
"""


async def out_of_time(connection: Connection, notification_id: str) -> Record | None:
    """End its delivery if it lies in the queue past its time, and return how it ended.

    The fields are channel, status, times tried, the last outcome, and whether the same call may begin it anew.
    """
    row = await connection.fetchrow(OUT_OF_TIME, UUID(notification_id))
    await note_ends(connection, [row])
    return row


# From here on it is like anything that waited: `parked` is put in the queue by the next route. It is an attempt of its
# own, so that no earlier card or word speaks of it, though it may end before anybody takes it.
ASKED_AGAIN: Final = """
UPDATE messenger.deliveries SET status = 'parked', reason = 'asked_again', settled_at = NULL, attempt = attempt + 1
WHERE notification_id = $1 AND status IN ('failed', 'expired', 'dead', 'cancelled', 'parked') RETURNING id
"""


async def ask_again(connection: Connection, notification_id: str) -> None:
    """Let its delivery, if it had one, wait again for what is decided afresh."""
    await connection.execute(ASKED_AGAIN, UUID(notification_id))


# Butlers take turns, and what is one's own comes in random order, so that what cannot be let go keeps nobody waiting.
SHORT_OF_AN_IDENTIFIER: Final = """
SELECT n.id::text FROM shared.notifications n
JOIN shared.pending_actions a ON a.notification_id = n.id AND a.status = 'pending' AND a.expires_at > clock_timestamp()
WHERE n.status = 'pending_missing_identifier' AND EXISTS (SELECT FROM shared.contact_info i
    WHERE i.contact_id = n.contact_id AND i.type = n.envelope #>> '{delivery,channel}')
ORDER BY row_number() OVER (PARTITION BY n.origin_butler ORDER BY random()) LIMIT 50
"""


async def identified(connection: Connection) -> list[str]:
    """Return the ids of notifications that waited for an identifier which is there now."""
    return [row["id"] for row in await connection.fetch(SHORT_OF_AN_IDENTIFIER)]


# What was asked of another account can never leave by the one that is live now; a sandbox may be live again.
OF_ANOTHER_ACCOUNT: Final = """
SELECT n.id::text FROM shared.notifications n
JOIN shared.pending_actions a ON a.notification_id = n.id AND a.status = 'pending' AND a.expires_at > clock_timestamp()
JOIN shared.channels c ON c.channel = n.envelope #>> '{delivery,channel}' AND c.realm NOT IN ('sandbox', n.realm)
WHERE n.status IN ('pending_approval', 'pending_missing_identifier')
ORDER BY row_number() OVER (PARTITION BY n.origin_butler ORDER BY random()) LIMIT 50
"""


async def of_another_account(connection: Connection) -> list[str]:
    """Return the ids of notifications that wait in vain for a yes, since their channel has another account now."""
    return [row["id"] for row in await connection.fetch(OF_ANOTHER_ACCOUNT)]


# What the rechecker does, in the order in which it does it, each by the statement that its step begins with.
TO_LOOK_AT = f"""
SELECT EXISTS ({brakes.UNHANDLED}) AS restored, EXISTS ({withdrawals.UNANSWERED}) AS withdrawn,
    EXISTS ({OF_ANOTHER_ACCOUNT}) AS of_another_account,
    EXISTS ({SHORT_OF_AN_IDENTIFIER}) AS identified, EXISTS ({resolutions.WAITING}) AS carry_out,
    EXISTS ({queries.TO_REPEAT}) AS repeat_to_owner
"""


async def to_look_at(connection: Connection, owner_repeat: timedelta) -> list[str]:
    """Return the names of the rechecker's steps that have anything to do, in their order."""
    row = await connection.fetchrow(TO_LOOK_AT, owner_repeat)
    assert row is not None  # noqa: S101  # it has no FROM
    return [name for name, due in row.items() if due]


# The three answers. Each asks for the attempt it speaks of, so that of two words only the first finds its state. What
# follows the part that arrived has not been tried yet and goes on.
ARRIVED: Final = f"""
WITH d AS (
    SELECT id FROM messenger.deliveries WHERE id = $1 AND status = 'uncertain' AND attempt = $2 FOR UPDATE),
p AS (
    UPDATE messenger.parts SET status = 'sent', provider_id = coalesce(provider_id, $3) FROM d
    WHERE delivery_id = d.id AND parts.status = 'uncertain'),
rest AS (
    SELECT count(*) > 0 AS waits FROM messenger.parts WHERE delivery_id = $1 AND status IN ('queued', 'failed'))
UPDATE messenger.deliveries SET reason = 'owner_said', status = CASE WHEN rest.waits THEN 'queued' ELSE 'sent' END,
    send_at = clock_timestamp(), settled_at = CASE WHEN rest.waits THEN NULL ELSE clock_timestamp() END,
    not_after = CASE WHEN rest.waits THEN clock_timestamp() + $4 ELSE not_after END
FROM d, rest WHERE deliveries.id = d.id RETURNING {ended("deliveries")}
"""


async def arrived(connection: Connection, delivery_id: str, attempt: int, receipt: str, rest: timedelta) -> str | None:
    """End a delivery that the owner says arrived, and return `sent`; None if that comes too late.

    Return `queued` where parts follow that nobody has tried; `rest` is the time there is for them.
    """
    return await _state(connection, ARRIVED, UUID(delivery_id), attempt, receipt, rest)


async def _state(connection: Connection, statement: str, *args: object) -> str | None:
    """Return what the statement has made of its delivery, None if nothing; log the end if it is one."""
    row = await connection.fetchrow(statement, *args)
    await note_ends(connection, [row])
    return str(row["ended"]["state"]) if row is not None else None


LEAVE: Final = f"""
UPDATE messenger.deliveries SET status = 'abandoned', reason = 'left', settled_at = clock_timestamp()
WHERE id = $1 AND status = 'uncertain' AND attempt = $2 RETURNING {ended("deliveries")}
"""


async def leave(connection: Connection, delivery_id: str, attempt: int) -> bool:
    """Abandon the delivery, and return whether this word ended it.

    Nobody will know whether it arrived, and nobody sends it again.
    """
    return await _state(connection, LEAVE, UUID(delivery_id), attempt) is not None


# What goes to the owner is repeated whole, as the words that mark it move the ends of its parts.
AGAIN: Final = """
WITH d AS (
    UPDATE messenger.deliveries SET status = 'queued', reason = 'again', repeated = repeated + 1,
        send_at = clock_timestamp(), settled_at = NULL, not_after = coalesce(clock_timestamp() + $3, not_after)
    WHERE id = $1 AND status = 'uncertain' AND attempt = $2 RETURNING id, class),
p AS (
    UPDATE messenger.parts SET status = 'queued' FROM d
    WHERE delivery_id = d.id AND (parts.status = 'uncertain' OR d.class = 'owner'))
SELECT id FROM d
"""


async def again(connection: Connection, delivery_id: str, attempt: int, lasts: timedelta | None) -> bool:
    """Put the delivery in the queue once more, and return whether this did.

    The owner's word lasts for `lasts`; a machine's, None, gives no new time.
    """
    return await connection.fetchval(AGAIN, UUID(delivery_id), attempt, lasts) is not None


# A receipt says that its part arrived, whatever was tried or said since: what waits to be sent again is not, whoever
# has taken it, and what is uncertain is so no more; a question goes on waiting if anything is left, and an answered
# one keeps its answer. A repeat to the owner begins with its first part, and is let go.
EVIDENT: Final = f"""
WITH d AS (
    SELECT id, status, status = 'parked' AS asks FROM messenger.deliveries WHERE id = $1
        AND (status = 'uncertain' OR (status IN ('queued', 'claimed', 'parked') AND class = 'third_party'))
        AND NOT (status = 'parked' AND EXISTS (
            SELECT FROM shared.notifications n WHERE n.id = notification_id AND n.status = 'error')) FOR UPDATE),
p AS (
    UPDATE messenger.parts SET status = 'sent', provider_id = $3 FROM d
    WHERE delivery_id = d.id AND n = $2
        AND parts.status = CASE d.status WHEN 'uncertain' THEN 'uncertain' ELSE 'queued' END RETURNING n),
rest AS (
    SELECT count(*) > 0 AS waits FROM messenger.parts WHERE delivery_id = $1 AND n <> $2 AND status <> 'sent')
UPDATE messenger.deliveries SET reason = NULL, send_at = clock_timestamp(), claimed_by = NULL, lease_until = NULL,
    status = CASE WHEN NOT rest.waits THEN 'sent' WHEN d.asks THEN 'parked' ELSE 'queued' END,
    settled_at = CASE WHEN NOT rest.waits THEN clock_timestamp() END
FROM d, p, rest WHERE deliveries.id = d.id RETURNING {ended("deliveries")}
"""


async def evident(connection: Connection, claimed: Claimed, n: int, receipt: str) -> str | None:
    """Apply a receipt for a part that has gone on.

    Return what that makes of its delivery: `sent`, `queued` or `parked`, or None.
    """
    return await _state(connection, EVIDENT, UUID(claimed.id), n, receipt)


# Where a later attempt came to its marker, both may have arrived.
LATE: Final = """
UPDATE messenger.attempts a SET outcome = 'late_receipt', detail = $4
WHERE delivery_id = $1 AND n = $2 AND attempt = $3 AND EXISTS (SELECT FROM messenger.attempts later
    WHERE later.delivery_id = $1 AND later.n = $2 AND later.attempt > $3 AND later.marked_at IS NOT NULL) RETURNING n
"""


async def late(connection: Connection, claimed: Claimed, n: int, receipt: str) -> bool:
    """Note that the part was sent again before this receipt came; return whether it was."""
    args = (UUID(claimed.id), n, claimed.attempt, f"Receipt {receipt}.")
    return await connection.fetchval(LATE, *args) is not None


# A report of what came back proves that the mail server had taken what nobody answered for.
TAKEN: Final = f"""
WITH d AS (
    UPDATE messenger.deliveries SET status = 'sent', reason = NULL, settled_at = clock_timestamp()
    WHERE id = $1 AND status IN ('uncertain', 'abandoned') RETURNING id, {ended("deliveries")}),
p AS (
    UPDATE messenger.parts SET status = 'sent', provider_id = $2 FROM d
    WHERE delivery_id = d.id AND parts.status = 'uncertain')
SELECT ended FROM d
"""


async def taken(connection: Connection, delivery_id: str, receipt: str) -> None:
    """Note that the provider had taken what nobody knew of."""
    await _state(connection, TAKEN, UUID(delivery_id), receipt)


BOUNCED: Final = f"""
UPDATE messenger.deliveries SET status = 'bounced', reason = $2, settled_at = clock_timestamp()
WHERE id = $1 AND status = 'sent' RETURNING {ended("deliveries")}
"""


async def bounced(connection: Connection, delivery_id: str, status: str) -> bool:
    """Note that a sent delivery came back, with that status code; return whether it was noted."""
    return await _state(connection, BOUNCED, UUID(delivery_id), status) is not None


# No wait is longer than that ($1), and nothing is made or tried in the future: such a row was written by a wrong clock.
SOONER: Final = """
UPDATE messenger.deliveries d SET send_at = clock_timestamp() WHERE status = 'queued'
    AND send_at > clock_timestamp() AND (send_at > clock_timestamp() + $1::interval
        OR created_at > clock_timestamp() OR EXISTS (SELECT FROM messenger.attempts a
            WHERE a.delivery_id = d.id AND a.ended_at > clock_timestamp())) RETURNING id
"""


async def sooner(connection: Connection, longest: timedelta) -> int:
    """Make due what waits only because the database's clock was put back; return how many."""
    return len(await connection.fetch(SOONER, longest))


# A backup was put back: what waited for somebody else then may have left since. It is an attempt of its own, so that no
# earlier card, word or answer speaks of it.
RESTORED: Final = f"""
WITH d AS (
    UPDATE messenger.deliveries SET status = 'uncertain', reason = 'restored', attempt = attempt + 1, claimed_by = NULL,
        lease_until = NULL, settled_at = clock_timestamp()
    WHERE notification_id = $1 AND class = 'third_party' AND status IN ('queued', 'claimed', 'sending')
    RETURNING id, {ended("deliveries")}),
a AS (
    UPDATE messenger.attempts SET ended_at = clock_timestamp(), outcome = 'restored' FROM d
    WHERE delivery_id = d.id AND (ended_at IS NULL OR outcome = 'lease_lost')),
p AS (
    UPDATE messenger.parts SET status = 'uncertain' FROM d WHERE delivery_id = d.id AND parts.status <> 'sent')
SELECT ended FROM d
"""


async def make_uncertain(connection: Connection, notification_id: str) -> bool:
    """Make the delivery uncertain if it waited, and return whether it did."""
    return await _state(connection, RESTORED, UUID(notification_id)) is not None


# Stateless, so that any Messenger may do it: whatever is delayed is asked again for a while after a brake was lifted.
DELAYED_NO_MORE: Final = """
UPDATE messenger.deliveries SET send_at = clock_timestamp()
WHERE status = 'queued' AND reason = 'braked' AND send_at > clock_timestamp()
    AND EXISTS (SELECT FROM shared.brakes WHERE lifted_at > clock_timestamp() - $1::interval) RETURNING id
"""


async def delayed_no_more(connection: Connection, lately: timedelta) -> int:
    """Make due what a lifted brake had delayed; return how many."""
    return len(await connection.fetch(DELAYED_NO_MORE, lately))


# What is waiting only because its channel did not work.
DUE_AGAIN: Final = """
UPDATE messenger.deliveries SET send_at = clock_timestamp() WHERE channel = $1 AND status = 'queued'
    AND send_at > clock_timestamp() AND reason IN ('unauthorized', 'unavailable', 'server_error') RETURNING id
"""


async def due_again(connection: Connection, channel: str) -> None:
    """Make due at once what waited for a channel that works again."""
    await connection.execute(DUE_AGAIN, channel)
