"""Cards as deliveries: what is to be asked or told gets the card it lacks, and a card that is over is closed.

A butler may cause so many cards in a while; what it asks beyond that stands in a digest, which is a card too. The
only writer of digests and of what stands in them.
"""

from datetime import timedelta
from typing import Final
from uuid import UUID

from messenger.storage.deliveries import ended, note_ends
from shared.config.timings import Timings
from shared.db.pool import Connection
from shared.storage import tool_calls

# INVARIANT: of what is live the sandbox is shown nothing. Where no other channel is left it is asked on the console.
MAY_ASK: Final = "(o.realm <> 'sandbox' OR a.realm = 'sandbox')"
IN_A_DIGEST: Final = 1000


# Whoever writes cards counts them first, so that two Messengers never count at once.
ONE_AT_A_TIME: Final = "LOCK TABLE messenger.digests IN SHARE ROW EXCLUSIVE MODE"


async def one_at_a_time(connection: Connection) -> None:
    """Keep every other Messenger from writing cards until this transaction ends."""
    await connection.execute(ONE_AT_A_TIME)


# The owner changed it, and is asked with the new words at once.
OWNERS_CHANGE: Final = """
EXISTS (SELECT FROM shared.approval_events e WHERE e.action_id = q.id AND e.actor = 'owner' AND q.revision > 1
    AND e.detail @> jsonb_build_object('revision', q.revision))
"""
REALM: Final = f"""
coalesce((SELECT n.realm FROM shared.notifications n WHERE n.id = q.notification_id), {tool_calls.REALM})
"""
# Questions nobody was shown, which count against their butler: messages, and calls of gated tools. What had a card
# before is asked anew for a reason that is not the butler's, and counts against nobody.
UNASKED: Final = f"""
SELECT id, revision, origin_butler, requested_at, notification_id FROM shared.pending_actions q
WHERE status = 'pending' AND expires_at > clock_timestamp()
    AND (notification_id IS NOT NULL OR EXISTS (SELECT FROM shared.tool_calls c WHERE c.id = q.id))
    AND NOT EXISTS (SELECT FROM messenger.deliveries d
        WHERE d.card_kind IN ('approval', 'tool_call') AND d.action_id = q.id)
    AND NOT EXISTS (SELECT FROM messenger.digest_items t WHERE t.action_id = q.id) AND NOT {OWNERS_CHANGE}
    AND (EXISTS (SELECT FROM messenger.owner_at WHERE realm <> 'sandbox') OR {REALM} = 'sandbox')
"""
# The owner's word gives a card's place back, and nothing else: a butler that withdraws what it asked gains nothing.
SPENT: Final = """
SELECT d.origin_butler, count(DISTINCT coalesce(d.action_id, d.about)) AS cards FROM messenger.deliveries d
LEFT JOIN shared.pending_actions q ON q.id = d.action_id
LEFT JOIN shared.questions asked ON asked.id = d.about AND d.card_kind = 'question'
WHERE d.class = 'card' AND d.counted AND d.created_at > clock_timestamp() - $3::interval
    AND d.created_at <= clock_timestamp() AND asked.answered_by IS NULL
    AND q.decided_by IS NULL GROUP BY d.origin_butler
"""
# One step of the index for each, however much of it waits.
WAITING_BUTLERS: Final = """
WITH RECURSIVE b AS (
    SELECT min(origin_butler) AS name FROM shared.pending_actions WHERE status = 'pending'
    UNION ALL
    SELECT (SELECT min(origin_butler) FROM shared.pending_actions WHERE status = 'pending' AND origin_butler > b.name)
    FROM b WHERE b.name IS NOT NULL)
SELECT name FROM b WHERE name IS NOT NULL
"""
# Of each butler the oldest, as many as its burst ($2) has room for; what is beyond a digest is not looked at.
WITHIN: Final = f"""
SELECT u.*, row_number() OVER oldest AS place, coalesce(s.cards, 0) + row_number() OVER oldest <= $2 AS fits
FROM ({WAITING_BUTLERS}) b
CROSS JOIN LATERAL ({UNASKED} AND q.origin_butler = b.name ORDER BY requested_at, id LIMIT $2 + {IN_A_DIGEST}) u
LEFT JOIN ({SPENT}) s USING (origin_butler)
WINDOW oldest AS (PARTITION BY origin_butler ORDER BY requested_at, id)
"""
# The rows of what is to be asked or told are the outbox of cards: each statement below names its own as `a`, and each
# of them that has no card of its kind gets one. Where Telegram refused the card, or did not take it in time ($1), the
# next channel is asked as well. What waits for an answer is asked again where the owner's chat or the bot is another by
# now, since the old card decides nothing; one that has not ended follows by itself, and what was played stays there.
QUEUE: Final = f"""
INSERT INTO messenger.deliveries
    (class, card_kind, channel, address, realm, action_id, about, digest_id, revision, origin_butler, counted)
SELECT 'card', a.card_kind, o.channel, o.address, o.realm, a.action_id, a.about, a.digest_id, a.revision,
    a.origin_butler, a.counted
FROM a
JOIN messenger.owner_at o ON o.channel IN ('telegram', o.preferred_channel)
    OR NOT EXISTS (SELECT FROM messenger.owner_at t WHERE t.channel = 'telegram'
        AND (t.realm <> 'sandbox' OR a.realm = 'sandbox'))
    OR EXISTS (SELECT FROM messenger.deliveries t WHERE t.card_kind = a.card_kind
        AND (t.action_id = a.action_id OR t.about = a.about OR t.digest_id = a.digest_id)
        AND t.revision = a.revision AND t.channel = 'telegram' AND (t.status = 'failed'
            OR (t.status <> 'sent'
                AND t.created_at NOT BETWEEN clock_timestamp() - $1::interval AND clock_timestamp())))
WHERE {MAY_ASK} AND (SELECT true FROM messenger.deliveries d WHERE d.card_kind = a.card_kind
    AND (d.action_id = a.action_id OR d.about = a.about OR d.digest_id = a.digest_id)
    AND d.revision = a.revision AND d.channel = o.channel AND ((d.address, d.realm) = (o.address, o.realm)
        OR (d.realm = 'sandbox' AND o.realm <> 'sandbox') OR d.status IN ('queued', 'claimed', 'sending')
        OR a.card_kind IN ('bounced', 'not_delivered', 'call_ended')) LIMIT 1) IS NULL
ORDER BY a.at LIMIT 50
ON CONFLICT DO NOTHING RETURNING id
"""
# A question that waits in this revision; what stands in a digest, only once the owner has asked for it.
ASK_APPROVALS: Final = f"""
WITH unasked AS MATERIALIZED ({WITHIN}),
waits AS (
    SELECT id, revision, origin_butler, requested_at, notification_id, true AS counted FROM unasked
    WHERE fits AND notification_id IS NOT NULL
    UNION ALL
    SELECT q.id, q.revision, q.origin_butler, q.requested_at, q.notification_id, false FROM shared.pending_actions q
    WHERE q.status = 'pending' AND q.expires_at > clock_timestamp() AND q.notification_id IS NOT NULL
        AND EXISTS (SELECT FROM messenger.deliveries d WHERE d.card_kind = 'approval' AND d.action_id = q.id)
    UNION ALL
    SELECT q.id, q.revision, q.origin_butler, q.requested_at, q.notification_id, false FROM shared.pending_actions q
    WHERE q.status = 'pending' AND q.revision > 1 AND q.expires_at > clock_timestamp()
        AND q.notification_id IS NOT NULL AND {OWNERS_CHANGE}
        AND (SELECT true FROM messenger.deliveries d WHERE d.card_kind = 'approval' AND d.action_id = q.id LIMIT 1)
            IS NULL),
a AS (
    SELECT 'approval' AS card_kind, id AS action_id, NULL::uuid AS about, NULL::uuid AS digest_id, revision,
        origin_butler, requested_at AS at, counted, {REALM} AS realm FROM waits q)
{QUEUE}
"""
# The newest digest that each butler has in that while ($3), but for one whose questions the owner has all decided, or
# that was never sent, or was played before its channel was live; and how many more it takes. It grows where its message
# will list what comes: one in Telegram is edited, and one that waits to be sent is not written yet. A mail says what it
# said: what comes is for the next one.
DIGESTS_NOW: Final = f"""
SELECT DISTINCT ON (g.origin_butler) g.id, g.origin_butler,
    {IN_A_DIGEST} - (SELECT count(*) FROM messenger.digest_items t WHERE t.digest_id = g.id) AS room,
    coalesce(c.edited IS NOT NULL OR c.unwritten, true) AS grows, c.edited AS only_for
FROM messenger.digests g CROSS JOIN LATERAL (
    SELECT bool_and(d.status = 'queued') AS unwritten, bool_and(d.status = 'cancelled') AS unsent, min(d.realm) FILTER (
        WHERE d.channel = 'telegram' AND d.status = 'sent' AND coalesce(d.reason, 'closed') = 'closed') AS edited
    FROM messenger.deliveries d JOIN messenger.owner_at o USING (channel, address, realm) WHERE d.digest_id = g.id) c
WHERE g.opened_at BETWEEN clock_timestamp() - $3::interval AND clock_timestamp() AND c.unsent IS NOT TRUE
    AND EXISTS (SELECT FROM messenger.digest_items t JOIN shared.pending_actions q ON q.id = t.action_id
        WHERE t.digest_id = g.id AND q.decided_by IS NULL)
    AND NOT EXISTS (SELECT FROM messenger.deliveries d JOIN shared.channels c USING (channel)
        WHERE d.digest_id = g.id AND d.realm = 'sandbox' AND c.realm <> 'sandbox')
ORDER BY g.origin_butler, g.opened_at DESC
"""
# What is beyond the burst stands in its butler's digest of now. A new one begins shortly ($1) after the first question
# it has to hold, so that it holds what is asked at once; of more than a thousand the rest stands in the next, so that a
# flood of one butler keeps the cards of all waiting for a moment only.
FILL_DIGESTS: Final = f"""
WITH over AS MATERIALIZED (
    SELECT id, origin_butler, requested_at, place, {REALM} AS realm FROM ({WITHIN}) q
    WHERE NOT fits AND place <= {IN_A_DIGEST} + $2),
now AS MATERIALIZED ({DIGESTS_NOW}),
opened AS (
    INSERT INTO messenger.digests (origin_butler) SELECT origin_butler FROM over
    WHERE origin_butler NOT IN (SELECT origin_butler FROM now) GROUP BY origin_butler
        HAVING min(requested_at) NOT BETWEEN clock_timestamp() - $1::interval AND clock_timestamp() + $4::interval
    RETURNING id, origin_butler),
room AS (
    SELECT id, origin_butler, {IN_A_DIGEST} AS room, NULL AS only_for FROM opened
    UNION ALL SELECT id, origin_butler, room, only_for FROM now WHERE grows)
INSERT INTO messenger.digest_items (action_id, digest_id)
SELECT o.id, o.digest_id FROM (
    SELECT over.id, room.id AS digest_id, room.room, row_number() OVER (PARTITION BY room.id ORDER BY place) AS n
    FROM over JOIN room USING (origin_butler)
    WHERE room.only_for IS NULL OR room.only_for <> 'sandbox' OR over.realm = 'sandbox') o
WHERE o.n <= o.room RETURNING digest_id
"""
# A digest all of whose questions were over, so that its message says so, lists others now.
LIST_AGAIN: Final = """
UPDATE messenger.deliveries SET reason = NULL
WHERE digest_id = ANY ($1) AND card_kind = 'digest' AND channel = 'telegram' AND status = 'sent' AND reason = 'closed'
"""


async def ask_approvals(connection: Connection, burst: int, timings: Timings) -> int:
    """Put what is asked beyond the burst into digests, and queue the cards of the questions that are to have one."""
    within = (burst, timings.burst_window)
    filled = await connection.fetch(FILL_DIGESTS, timings.digest_gathers, *within, timings.clock_slack)
    if filled:
        await connection.execute(LIST_AGAIN, list({row["digest_id"] for row in filled}))
    return len(await connection.fetch(ASK_APPROVALS, timings.card_elsewhere, *within))


# A digest may hold both what is live and what is not; each of its cards lists what may be asked there.
ASK_DIGESTS: Final = f"""
WITH a AS (
    SELECT DISTINCT 'digest' AS card_kind, NULL::uuid AS action_id, NULL::uuid AS about, g.id AS digest_id,
        1 AS revision, g.origin_butler, g.opened_at AS at, false AS counted, {REALM} AS realm
    FROM messenger.digests g JOIN messenger.digest_items t ON t.digest_id = g.id
    JOIN shared.pending_actions q ON q.id = t.action_id
    WHERE q.status = 'pending' AND q.expires_at > clock_timestamp())
{QUEUE}
"""


async def ask_digests(connection: Connection, _burst: int, timings: Timings) -> int:
    """Queue the cards of digests."""
    return len(await connection.fetch(ASK_DIGESTS, timings.card_elsewhere))


# A delivery, after its latest attempt.
ABOUT: Final = """
NULL::uuid AS action_id, id AS about, NULL::uuid AS digest_id, attempt AS revision, origin_butler, settled_at AS at,
    false AS counted, realm FROM messenger.deliveries
"""
# What is uncertain and is repeated by no machine.
ASK_UNCERTAIN: Final = f"""
WITH a AS (
    SELECT 'uncertain' AS card_kind, {ABOUT}
    WHERE status = 'uncertain' AND (class = 'third_party'
        OR (class = 'owner' AND (repeated > 0 OR (not_after > clock_timestamp()) IS NOT TRUE))))
{QUEUE}
"""


async def ask_uncertain(connection: Connection, _burst: int, timings: Timings) -> int:
    """Queue the cards about what may have arrived."""
    return len(await connection.fetch(ASK_UNCERTAIN, timings.card_elsewhere))


# What ended in numbers, for its card: of each butler so many ($2) of a kind within $4; the console shows the rest. What
# has a card may get another one, by the next channel.
A_FEW: Final = f"""
placed AS (
    SELECT ended.*, has_card, row_number() OVER (PARTITION BY origin_butler, has_card ORDER BY settled_at, id) AS place
    FROM ended CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM messenger.deliveries c
        WHERE c.card_kind = ended.card_kind AND c.about = ended.id AND c.revision = ended.attempt)) c (has_card)),
told AS (
    SELECT card_kind, origin_butler, count(DISTINCT about) AS cards FROM messenger.deliveries
    WHERE card_kind IN ('bounced', 'not_delivered') AND created_at > clock_timestamp() - $4::interval
        AND created_at <= clock_timestamp() GROUP BY card_kind, origin_butler),
a AS (
    SELECT card_kind, NULL::uuid AS action_id, id AS about, NULL::uuid AS digest_id, attempt AS revision,
        origin_butler, settled_at AS at, false AS counted, realm
    FROM placed LEFT JOIN told USING (card_kind, origin_butler)
    WHERE has_card OR place + coalesce(cards, 0) <= $2)
{QUEUE}
"""
# Whoever got a mail may say that it came back.
ASK_BOUNCED: Final = f"""
WITH ended AS (
    SELECT d.id, d.attempt, d.origin_butler, d.settled_at, d.realm, 'bounced' AS card_kind
    FROM messenger.deliveries d
    WHERE d.status = 'bounced' AND d.settled_at > clock_timestamp() - $3::interval),
{A_FEW}
"""


async def ask_bounced(connection: Connection, burst: int, timings: Timings) -> int:
    """Queue the cards about mails that came back."""
    within = (timings.card_elsewhere, burst, timings.bounce_told, timings.burst_window)
    return len(await connection.fetch(ASK_BOUNCED, *within))


# What a rule or the owner let out, and did not go: an edit makes no sound. What the owner was to be told is known to
# whoever called, who may be a clock: the owner is told of it too, where another channel may bring it.
ASK_NOT_DELIVERED: Final = f"""
WITH ended AS (
    SELECT d.id, d.attempt, d.origin_butler, d.settled_at, d.realm, 'not_delivered' AS card_kind
    FROM messenger.deliveries d
    WHERE d.status IN ('failed', 'expired', 'dead') AND (d.class = 'third_party' OR (d.class = 'owner' AND EXISTS (
            SELECT FROM messenger.owner_at o WHERE (o.channel, o.realm) <> (d.channel, d.realm)
                AND (o.realm = 'sandbox') = (d.realm = 'sandbox'))))
        AND d.settled_at BETWEEN clock_timestamp() - $3::interval AND clock_timestamp() + interval '1 minute'),
{A_FEW}
"""


async def ask_not_delivered(connection: Connection, burst: int, timings: Timings) -> int:
    """Queue the cards about what was let out and did not go, to others or to the owner."""
    within = (timings.card_elsewhere, burst, timings.end_told, timings.burst_window)
    return len(await connection.fetch(ASK_NOT_DELIVERED, *within))


# The owner wants to see a question: its card is sent where the owner said so, and counts against nobody.
ASK_NOW: Final = f"""
INSERT INTO messenger.deliveries (class, card_kind, channel, address, realm, action_id, revision, origin_butler)
SELECT 'card', CASE WHEN q.notification_id IS NULL THEN 'tool_call' ELSE 'approval' END, o.channel, o.address,
    o.realm, q.id, q.revision, q.origin_butler
FROM shared.pending_actions q JOIN messenger.owner_at o ON o.channel = 'telegram'
WHERE q.id = $1 AND q.revision = $2 AND q.status = 'pending' AND q.expires_at > clock_timestamp()
    AND (o.realm <> 'sandbox' OR {REALM} = 'sandbox')
ON CONFLICT DO NOTHING RETURNING id
"""


async def ask_now(connection: Connection, action_id: str, revision: int) -> bool:
    """Queue the card of this revision because the owner asked for it; return whether this did."""
    return await connection.fetchval(ASK_NOW, UUID(action_id), revision) is not None


# Telegram refuses a bot that the owner has not started, or has blocked. Each card is checked anew before it goes.
ASK_REFUSED: Final = """
UPDATE messenger.deliveries SET status = 'queued', reason = NULL, send_at = clock_timestamp(), settled_at = NULL
WHERE class = 'card' AND channel = 'telegram' AND address = $1 AND realm = $2 AND status = 'failed'
    AND created_at > clock_timestamp() - $3::interval
"""


async def ask_refused(connection: Connection, chat: str, realm: str, since: timedelta) -> None:
    """Send anew, since the owner pressed Start, the cards that this chat refused within that interval."""
    await connection.execute(ASK_REFUSED, chat, realm, since)


DIGEST_SHOWS: Final = """
UPDATE messenger.digests SET shown = $2, shown_at = clock_timestamp() WHERE id = $1
"""


async def digest_shows(connection: Connection, digest_id: str, shown: list[str]) -> None:
    """Write down what a digest's message lists, and that it was looked at."""
    await connection.execute(DIGEST_SHOWS, UUID(digest_id), shown)


# Its message is gone from the chat: what it has not listed, which is all but these, goes to the next digest.
LEAVE_DIGEST: Final = """
WITH gone AS (
    UPDATE messenger.deliveries SET reason = 'gone' WHERE id = $1 AND card_kind = 'digest' RETURNING digest_id)
DELETE FROM messenger.digest_items t USING gone, shared.pending_actions q
WHERE t.digest_id = gone.digest_id AND q.id = t.action_id AND q.status = 'pending' AND t.action_id <> ALL ($2)
"""


async def leave_digest(connection: Connection, card_id: str, listed: list[str]) -> None:
    """Note that a digest's message can be changed no more; the questions it never listed wait for the next one."""
    await connection.execute(LEAVE_DIGEST, UUID(card_id), [UUID(one) for one in listed])


ASKED_ANEW: Final = "DELETE FROM messenger.digest_items WHERE action_id = $1"


async def leave_list(connection: Connection, action_id: str) -> None:
    """Take a question that is asked anew out of the digest that listed it, which may be over by now."""
    await connection.execute(ASKED_ANEW, UUID(action_id))


# A late answer adds something to what a closed card says.
SHOW_AGAIN: Final = """
UPDATE messenger.deliveries SET reason = NULL
WHERE about = $1 AND revision = $2 AND card_kind = 'uncertain' AND status = 'sent' AND reason = 'closed'
"""


async def show_again(connection: Connection, delivery_id: str, attempt: int) -> None:
    """Let the card about this attempt be written anew."""
    await connection.execute(SHOW_AGAIN, UUID(delivery_id), attempt)


# A press on a card that has no receipt proves that it arrived, whoever has it in hand or is to send it again.
ADOPT: Final = f"""
WITH d AS (
    UPDATE messenger.deliveries SET status = 'sent', reason = NULL, settled_at = clock_timestamp(), claimed_by = NULL,
        lease_until = NULL
    WHERE card_kind = $1 AND channel = 'telegram' AND (action_id = $2 OR about = $2 OR digest_id = $2) AND revision = $3
        AND status IN ('queued', 'claimed', 'sending') AND attempt > 0 RETURNING id, {ended("deliveries")})
UPDATE messenger.parts SET status = 'sent', provider_id = $4 FROM d
WHERE delivery_id = d.id AND n = (SELECT max(n) FROM messenger.parts last WHERE last.delivery_id = d.id)
RETURNING d.ended
"""


async def adopt(connection: Connection, card_kind: str, about: str, revision: int, message_id: str) -> bool:
    """Take the pressed message for the card of this kind that nobody had a receipt for; return whether it is that.

    The card, which is about that id, is not sent again.
    """
    row = await connection.fetchrow(ADOPT, card_kind, UUID(about), revision, message_id)
    await note_ends(connection, [row])
    return row is not None


CLOSE_CARD: Final = "UPDATE messenger.deliveries SET reason = $2 WHERE id = $1 AND class = 'card'"


async def close_card(connection: Connection, delivery_id: str, shows: str) -> None:
    """Note what a card without buttons shows: `closed` for its outcome.

    `approved` is for a yes without an end, and `uncertain` for one whose end is not known.
    """
    await connection.execute(CLOSE_CARD, UUID(delivery_id), shows)


# To the owner by the channels that are left; what it says stands in `messenger.circuit_breakers`.
TELL_ELSEWHERE: Final = f"""
INSERT INTO messenger.deliveries (class, card_kind, channel, address, realm, origin_butler)
SELECT 'card', 'channel_paused', o.channel, o.address, o.realm, 'messenger' FROM messenger.owner_at o
    JOIN shared.channels a ON a.channel = $1 WHERE o.channel <> $1 AND {MAY_ASK}
"""


async def tell_elsewhere(connection: Connection, channel: str) -> None:
    """Queue the notice about this channel's pause, to the owner by another channel."""
    await connection.execute(TELL_ELSEWHERE, channel)


# To the owner where cards go, or wherever the owner is ($2); what it says is made when it is sent. The sandbox hears of
# it only where nothing live is left.
TELL_OF: Final = """
WITH heard AS (
    SELECT channel, address, realm FROM messenger.owner_at
    WHERE realm <> 'sandbox' OR NOT EXISTS (SELECT FROM messenger.owner_at l WHERE l.realm <> 'sandbox'))
INSERT INTO messenger.deliveries (class, card_kind, channel, address, realm, origin_butler)
SELECT 'card', $1, channel, address, realm, 'messenger' FROM heard
WHERE $2 OR channel = 'telegram' OR NOT EXISTS (SELECT FROM heard t WHERE t.channel = 'telegram')
"""


async def tell_of(connection: Connection, card_kind: str, *, everywhere: bool = False) -> None:
    """Queue a card of this kind, which is about no row, to the owner, on every channel if it must not be missed."""
    await connection.execute(TELL_OF, card_kind, everywhere)
