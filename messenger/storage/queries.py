"""What the Messenger looks up about its deliveries, by SELECT only."""

from datetime import timedelta
from typing import Final
from uuid import UUID

from shared.addresses import folded
from shared.channels.email import SPEC as EMAIL
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput
from shared.storage import brakes, tool_calls

# A lease that ends further off than its own length ($1) was written by a clock that was wrong, and is none.
LASTS: Final = "(lease_until > clock_timestamp() AND lease_until <= clock_timestamp() + $1::interval)"


# What a backup that was put back says of others: what waits to be sent, and what waits for the owner.
QUEUED = "SELECT id::text FROM shared.notifications WHERE status = 'queued' ORDER BY id"


async def queued(connection: Connection) -> list[str]:
    """Return the ids of notifications that wait to be sent, in their order, to whomever their butlers say they are."""
    return [row["id"] for row in await connection.fetch(QUEUED)]


ASKED_ABOUT_OTHERS = """
SELECT id::text, notification_id::text, revision, content_sha, agent_summary FROM shared.pending_actions
WHERE status = 'pending' AND expires_at > clock_timestamp() AND notification_id IS NOT NULL ORDER BY notification_id
"""


async def asked_about_others(connection: Connection) -> list[Record]:
    """Return the questions that wait, in the order of their notifications, without what their butlers wrote down."""
    return list(await connection.fetch(ASKED_ABOUT_OTHERS))


# A delivery with what is known of one attempt: the last part that came to its marker then. Its name is that of whoever
# has the address, not of whom its butler wrote down.
DOUBT = """
SELECT d.id::text, d.notification_id::text, d.class, d.channel, d.address, d.status, d.reason, d.attempt, d.repeated,
    n.realm, n.envelope, n.owner_text, n.origin_butler, c.name, a.n, tried.attempt AS tried, a.marked_at, a.outcome,
    a.detail, (SELECT count(*) FROM messenger.parts p WHERE p.delivery_id = d.id) AS parts,
    (SELECT word FROM shared.resolutions r WHERE r.delivery_id = d.id AND r.attempt = tried.attempt
        AND r.outcome = 'done' AND r.word <> 'retry' ORDER BY r.at LIMIT 1) AS said
FROM messenger.deliveries d JOIN shared.notifications n ON n.id = d.notification_id
CROSS JOIN LATERAL (SELECT coalesce($2, d.attempt) AS attempt) tried
LEFT JOIN shared.contact_info i ON i.type = d.channel AND i.lookup = lower(d.address COLLATE "C")
LEFT JOIN shared.contacts c ON c.id = i.contact_id
LEFT JOIN LATERAL (SELECT * FROM messenger.attempts a WHERE a.delivery_id = d.id AND a.attempt = tried.attempt
    AND a.marked_at IS NOT NULL ORDER BY a.n DESC LIMIT 1) a ON true
WHERE d.id = $1
"""


async def doubt(connection: Connection, delivery_id: str, attempt: int | None = None) -> Record | None:
    """Return a message's delivery with its words, and what is known of that attempt, or of the latest."""
    return await connection.fetchrow(DOUBT, UUID(delivery_id), attempt)


MAILED = """
SELECT n.origin_butler, coalesce(n.owner_text, n.envelope #>> '{delivery,message}') AS message,
    n.envelope #>> '{delivery,subject}' AS subject, n.third_party
FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
    JOIN shared.notifications n ON n.id = d.notification_id
WHERE p.provider_id = ANY ($1) AND d.channel = 'email' AND n.wiped_at IS NULL
    AND (lower(d.address COLLATE "C") = $2 OR EXISTS (
    SELECT FROM shared.contact_info a JOIN shared.contact_info b ON b.contact_id = a.contact_id
    WHERE a.type = 'email' AND a.lookup = $2 AND b.type = 'email' AND b.lookup = lower(d.address COLLATE "C"))) LIMIT 1
"""


async def mailed(connection: Connection, message_id: str, address: str) -> Record | None:
    """Return the mail of that Message-ID, its butler, words, subject and whether it was for others than the owner.

    None if none went to that address's person. Words are wiped some time after they went.
    """
    try:
        spellings = EMAIL.thread.spellings(message_id)
    except InvalidInput:
        return None
    return await connection.fetchrow(MAILED, list(spellings), folded(address))


RECEIPTS = "SELECT coalesce(provider_id, '') AS receipt FROM messenger.parts WHERE delivery_id = $1 ORDER BY n"


async def receipts(connection: Connection, delivery_id: str) -> list[str]:
    """Return the receipt of each part, in order; empty for one that has none."""
    return [row["receipt"] for row in await connection.fetch(RECEIPTS, UUID(delivery_id))]


# A card with its last part, which bears its buttons, as long as it shows them in Telegram. An edit is a message too:
# nothing is written into a chat that was the owner's and is not any more. The numbers of messages are those of one bot.
IN_TELEGRAM: Final = """
JOIN LATERAL (SELECT provider_id, shown FROM messenger.parts p WHERE p.delivery_id = d.id ORDER BY p.n DESC LIMIT 1) p
    ON true
WHERE d.class = 'card' AND d.status = 'sent' AND d.channel = 'telegram'
    AND p.provider_id IS NOT NULL AND d.realm = (SELECT realm FROM shared.channels WHERE channel = 'telegram')
    AND EXISTS (SELECT FROM shared.contact_info i JOIN shared.contacts c ON c.id = i.contact_id
        WHERE 'owner' = ANY (c.roles) AND i.type = 'telegram' AND i.lookup = d.address)
"""
SHOWN_IN_TELEGRAM: Final = f"{IN_TELEGRAM} AND d.reason IS NULL"
# A card about an attempt of which more is known, or more was said, than it shows.
DOUBTS_OVER = f"""
SELECT d.id::text, d.address, d.about::text, d.revision, n.realm, p.provider_id, p.shown,
    'closed' AS shows
FROM messenger.deliveries d JOIN messenger.deliveries u ON u.id = d.about
JOIN shared.notifications n ON n.id = u.notification_id {SHOWN_IN_TELEGRAM}
    AND d.card_kind = 'uncertain' AND (u.status <> 'uncertain' OR u.attempt <> d.revision)
ORDER BY d.created_at LIMIT 20
"""


async def doubts_over(connection: Connection) -> list[Record]:
    """Return cards in Telegram about what is uncertain no more: id, address, provider_id, about, revision."""
    return list(await connection.fetch(DOUBTS_OVER))


# Messages to the owner that nobody answered for, and that no machine has repeated yet.
TO_REPEAT = """
SELECT id::text, notification_id::text, attempt FROM messenger.deliveries
WHERE status = 'uncertain' AND class = 'owner' AND repeated = 0
    AND settled_at NOT BETWEEN clock_timestamp() - $1::interval AND clock_timestamp()
    AND not_after > clock_timestamp()
ORDER BY notification_id LIMIT 20
"""


async def to_repeat(connection: Connection, after: timedelta) -> list[Record]:
    """Return what is to be sent to the owner once more, so long after its end: id, notification_id, attempt."""
    return list(await connection.fetch(TO_REPEAT, after))


SILENT = f"""
SELECT id::text, notification_id::text FROM messenger.deliveries
WHERE status IN ('claimed', 'sending') AND NOT {LASTS} ORDER BY notification_id LIMIT 100
"""


async def silent(connection: Connection, lease: timedelta) -> list[Record]:
    """Return the deliveries whose holder no longer renews its lease, in the order of notification ids."""
    return list(await connection.fetch(SILENT, lease))


# By a clock that stands still, for the index; the statement that ends them looks at the running one. Butlers take
# turns; the order of what is returned is that of locks.
OVERDUE = """
SELECT notification_id::text FROM (
    SELECT notification_id, row_number() OVER (PARTITION BY origin_butler ORDER BY not_after) AS turn
    FROM messenger.deliveries WHERE status = 'queued' AND not_after <= statement_timestamp()
    ORDER BY turn LIMIT 20) late
ORDER BY notification_id
"""


async def overdue(connection: Connection) -> list[str]:
    """Return the ids of some notifications whose delivery lies in the queue past its time."""
    return [row["notification_id"] for row in await connection.fetch(OVERDUE)]


# What is allowed, past its time and not in delivery, found for each butler by itself among the hundred that are over
# the longest: those in delivery end first, or are on their way. What a backup brought back may have left since: it is
# doubted first.
NOT_BROUGHT = f"""
WITH RECURSIVE b AS (
    SELECT min(origin_butler) AS name FROM shared.notifications WHERE status = 'queued'
    UNION ALL
    SELECT (SELECT min(origin_butler) FROM shared.notifications WHERE status = 'queued' AND origin_butler > b.name)
    FROM b WHERE b.name IS NOT NULL)
SELECT late.id::text FROM b CROSS JOIN LATERAL (
    SELECT n.id, n.not_after FROM (
        SELECT id, not_after FROM shared.notifications
        WHERE status = 'queued' AND origin_butler = b.name AND not_after <= statement_timestamp()
        ORDER BY not_after LIMIT 100) n
    LEFT JOIN messenger.deliveries d ON d.notification_id = n.id WHERE d.id IS NULL OR d.status = 'parked') late
WHERE NOT EXISTS ({brakes.UNHANDLED})
ORDER BY row_number() OVER (PARTITION BY b.name ORDER BY late.not_after), random() LIMIT 20
"""


async def not_brought(connection: Connection) -> list[str]:
    """Return the ids of some notifications whose time was over before any Switchboard brought them, or again."""
    return [row["id"] for row in await connection.fetch(NOT_BROUGHT)]


SAME_CONTENT = """
SELECT notification_id::text FROM messenger.deliveries
WHERE origin_butler = $1 AND lineage = $2 AND content_sha = $3 AND class = 'third_party'
"""


async def same_content(connection: Connection, origin: str, lineage: str, content_sha: str) -> str | None:
    """Return the notification that was marked with this content in this lineage."""
    found: str | None = await connection.fetchval(SAME_CONTENT, origin, lineage, content_sha)
    return found


# The same content of unknown outcome, whatever request it is of: its hash is that of what was marked, else of what was
# admitted, since what a backup brought back was never marked here. Or other words of the same request to the same
# address: of unknown outcome, or tried and not over when this was asked.
SIMILAR = """
(SELECT d.id::text FROM messenger.deliveries d
WHERE d.status = 'uncertain' AND d.class = 'third_party' AND d.notification_id <> $5
    AND coalesce(d.content_sha, (SELECT content_sha FROM shared.notifications WHERE id = d.notification_id)) = $7
LIMIT 1)
UNION ALL
(SELECT d.id::text FROM messenger.deliveries d JOIN shared.notifications n ON n.id = d.notification_id
WHERE d.origin_butler = $1 AND d.lineage = $2 AND d.class = 'third_party' AND d.channel = $3
    AND lower(d.address COLLATE "C") = $4
    AND d.notification_id <> $5 AND n.envelope #>> '{delivery,intent}' <> 'react'
    AND (d.status = 'uncertain' OR EXISTS (SELECT FROM messenger.attempts a WHERE a.delivery_id = d.id
        AND a.started_at <= $6 AND (coalesce(a.ended_at, 'infinity') > $6
            OR (d.status IN ('queued', 'claimed', 'sending', 'sent') AND coalesce(d.settled_at, 'infinity') > $6))))
ORDER BY d.created_at LIMIT 1)
LIMIT 1
"""


async def similar(connection: Connection, row: Record, channel: str, address: str, content_sha: str) -> str | None:
    """Return the delivery of the same content, or of other words of the same request, to that address.

    The same content may have arrived; other words may have, or are on their way.
    """
    asked = (UUID(row["id"]), row["created_at"], content_sha)
    found: str | None = await connection.fetchval(
        SIMILAR, row["origin_butler"], row["lineage"], channel, folded(address), *asked
    )
    return found


ONE = """
SELECT id::text, notification_id::text, class, channel, address, status, reason, send_at, attempt, created_at
FROM messenger.deliveries WHERE notification_id = $1
"""


async def one(connection: Connection, notification_id: str) -> Record | None:
    """Return the delivery of a notification, if there is one."""
    return await connection.fetchrow(ONE, UUID(notification_id))


NEXT_DUE = """
SELECT extract(epoch FROM least(
    (SELECT min(send_at) FROM messenger.deliveries WHERE status = 'queued' AND send_at > statement_timestamp()),
    (SELECT min(free_at) FROM messenger.rate_limits WHERE free_at > statement_timestamp())
) - statement_timestamp())::float,
    EXISTS (SELECT FROM messenger.deliveries WHERE status = 'queued')
"""


async def next_due(connection: Connection) -> tuple[float | None, bool]:
    """Return the seconds until the next delivery, or the next limit's room, is due, and whether anything is queued."""
    seconds, queued = await connection.fetchrow(NEXT_DUE) or (None, True)
    return seconds, queued


OLDEST_OPEN = """
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float
FROM messenger.deliveries WHERE status IN ('queued', 'claimed', 'sending')
"""


async def oldest_open(connection: Connection) -> float:
    """Return the seconds since the oldest delivery was made that is in the queue or in hand; 0 without any."""
    return float(await connection.fetchval(OLDEST_OPEN))


BY_STATE = "SELECT channel, status, count(*) AS n FROM messenger.deliveries GROUP BY channel, status"


async def by_state(connection: Connection) -> list[Record]:
    """Return how many deliveries there are: channel, status, n."""
    return list(await connection.fetch(BY_STATE))


WAITING_BY_BUTLER = """
SELECT origin_butler, count(*) AS n,
    extract(epoch FROM clock_timestamp() - least(min(requested_at), clock_timestamp()))::float8 AS age
FROM shared.pending_actions WHERE status = 'pending' AND expires_at > clock_timestamp() GROUP BY origin_butler
"""


async def waiting_by_butler(connection: Connection) -> list[Record]:
    """Return how many questions of each butler wait, and the seconds since the oldest was asked."""
    return list(await connection.fetch(WAITING_BY_BUTLER))


OWNER_AT = "SELECT address FROM messenger.owner_at WHERE channel = $1"


async def owner_at(connection: Connection, channel: str) -> str | None:
    """Return where the owner is asked on this channel: a private chat, or an address."""
    found: str | None = await connection.fetchval(OWNER_AT, channel)
    return found


# What a card of an action `a` is to say of its yes: what is uncertain may be known one day, or be sent again.
YES_STANDS: Final = (
    "CASE WHEN a.status IN ('approved', 'executing') THEN 'approved' WHEN a.status = 'uncertain' THEN 'uncertain' "
    "ELSE 'closed' END"
)
# A card that was answered, or asks in a revision that is gone; and one that shows a yes of which more is known by now.
ASKED_BY_CARD: Final = f"""
SELECT d.id::text, d.address, CASE WHEN a.revision = d.revision THEN a.status ELSE 'pending' END AS status,
    a.notification_id::text, n.realm, p.provider_id, p.shown, d.created_at,
    CASE WHEN a.revision = d.revision THEN {YES_STANDS} ELSE 'closed' END AS shows
FROM messenger.deliveries d JOIN shared.pending_actions a ON a.id = d.action_id
JOIN shared.notifications n ON n.id = a.notification_id
"""
APPROVALS_OVER: Final = f"""
{ASKED_BY_CARD} {SHOWN_IN_TELEGRAM} AND d.card_kind = 'approval'
    AND (a.status <> 'pending' OR a.revision <> d.revision)
UNION ALL
{ASKED_BY_CARD} {IN_TELEGRAM} AND d.card_kind = 'approval' AND d.reason IN ('approved', 'uncertain')
    AND (a.revision <> d.revision OR d.reason <> {YES_STANDS})
ORDER BY created_at LIMIT 20
"""


async def approvals_over(connection: Connection) -> list[Record]:
    """Return the cards in Telegram that do not show how their pending action stands.

    The fields are id, address, provider_id, what it shows, the status of its question (`pending` where it is asked
    anew), its notification_id and realm, and `shows`, what the card's row is to say once it shows that.
    """
    return list(await connection.fetch(APPROVALS_OVER))


# A message or a call of a gated tool, as a digest lists it.
ASKED_OF_OWNER = f"""
SELECT q.id::text, q.revision, q.content_sha, q.notification_id::text, coalesce(n.realm, {tool_calls.REALM}) AS realm,
    n.envelope, n.owner_text, n.whom, q.origin_butler, c.tool_name, c.risk, c.arguments, count(*) OVER () AS total
"""
ABOUT_WHAT = """
LEFT JOIN shared.notifications n ON n.id = q.notification_id LEFT JOIN shared.tool_calls c ON c.id = q.id
WHERE (n.id IS NOT NULL OR c.id IS NOT NULL) AND q.status = 'pending' AND q.expires_at > clock_timestamp()
"""
# What a digest lists in this realm now: what waits in it and has no card of its own, the oldest first, and how many
# that are. Of what is live the sandbox lists nothing.
DIGEST_ITEMS = f"""
{ASKED_OF_OWNER} FROM messenger.digest_items t JOIN shared.pending_actions q ON q.id = t.action_id {ABOUT_WHAT}
    AND t.digest_id = $1 AND ($2 <> 'sandbox' OR coalesce(n.realm, {tool_calls.REALM}) = 'sandbox') AND NOT EXISTS (
    SELECT FROM messenger.deliveries d
    WHERE d.card_kind IN ('approval', 'tool_call') AND d.action_id = q.id AND d.revision = q.revision)
ORDER BY q.requested_at, q.id LIMIT $3
"""


async def digest_items(connection: Connection, digest_id: str, realm: str, most: int) -> list[Record]:
    """Return the first questions of a digest without a card, for that realm.

    The fields are id, revision, content_sha, words, whom, total.
    """
    return list(await connection.fetch(DIGEST_ITEMS, UUID(digest_id), realm, most))


# As a digest lists its own, whoever asks and whatever has a card; of each butler as many.
QUESTIONS = f"""
SELECT * FROM (
    {ASKED_OF_OWNER}, q.requested_at,
        row_number() OVER (PARTITION BY q.origin_butler ORDER BY q.requested_at, q.id) AS turn
    FROM shared.pending_actions q {ABOUT_WHAT}
        AND ($1 <> 'sandbox' OR coalesce(n.realm, {tool_calls.REALM}) = 'sandbox')
    ORDER BY turn, q.requested_at LIMIT $2) waiting
ORDER BY requested_at, id
"""


async def questions(connection: Connection, realm: str, most: int) -> list[Record]:
    """Return the first questions of each butler that wait for the owner, oldest first, as `digest_items` does."""
    return list(await connection.fetch(QUESTIONS, realm, most))


LIVE = "SELECT EXISTS (SELECT FROM shared.channels WHERE realm <> 'sandbox')"


async def reaches_people(connection: Connection) -> bool:
    """Return whether any channel reaches real people."""
    return bool(await connection.fetchval(LIVE))


WRITTEN_LATELY = "SELECT to_timestamp($1::float8) BETWEEN clock_timestamp() - $2::interval AND clock_timestamp() + $2"


async def written_lately(connection: Connection, seconds: int, within: timedelta) -> bool:
    """Return whether that moment (seconds since 1970) is no further off than this."""
    return bool(await connection.fetchval(WRITTEN_LATELY, seconds, within))


DIGEST_OF = "SELECT digest_id::text FROM messenger.digest_items WHERE action_id = $1"


async def digest_of(connection: Connection, action_id: str) -> str | None:
    """Return the digest a question stands in."""
    found: str | None = await connection.fetchval(DIGEST_OF, UUID(action_id))
    return found


# Digests in Telegram that may list what is over; each is looked at every few seconds at most, in turn.
DIGESTS_OPEN = f"""
SELECT d.id::text, d.address, d.digest_id::text, d.origin_butler, g.shown, p.provider_id
FROM messenger.deliveries d JOIN messenger.digests g ON g.id = d.digest_id {SHOWN_IN_TELEGRAM}
    AND g.shown_at NOT BETWEEN clock_timestamp() - $1::interval AND clock_timestamp()
ORDER BY g.shown_at LIMIT 20
"""


async def digests_open(connection: Connection, within: timedelta) -> list[Record]:
    """Return digests in Telegram, none looked at within that time.

    The fields are id, address, digest_id, origin_butler, shown.
    """
    return list(await connection.fetch(DIGESTS_OPEN, within))


NAMED = """
SELECT (SELECT epoch FROM shared.authority) AS epoch, coalesce(jsonb_object_agg(i.value, c.name), '{}') AS people
FROM shared.contact_info i JOIN shared.contacts c ON c.id = i.contact_id WHERE i.type = 'telegram'
"""


async def named(connection: Connection) -> tuple[int, dict[str, str]]:
    """Return the name behind each Telegram address, and a number that moves whenever contacts do."""
    row = await connection.fetchrow(NAMED)
    assert row is not None  # noqa: S101  # an aggregate without groups has one row
    return row["epoch"], {str(who): str(name) for who, name in row["people"].items()}
