"""What somebody wrote whom no butler obeys: the cards that are missing or over, and what the owner said to it."""

from typing import Final
from uuid import UUID

from messenger.storage.cards import QUEUE
from messenger.storage.queries import SHOWN_IN_TELEGRAM
from shared.addresses import folded
from shared.channels import realms
from shared.config.timings import Timings
from shared.db.pool import Connection, Record

KIND: Final = "stranger"

# A contact's own words: what nobody vouches for says no more of its sender than that somebody wrote it. Whatever a row
# lacks it is true or false, so that what was shown always counts.
OF_A_CONTACT: Final = """
(i.contact_id IS NOT NULL AND CASE i.channel WHEN 'telegram' THEN i.conversation = i.sender AND left(i.sender, 1) <> '-'
    ELSE i.verified END) IS TRUE
"""
# Words stay what they are, live or played, whichever bot or address they came in by since.
SAME_KIND: Final = f"h.channel = i.channel AND (h.realm = 'sandbox') = (i.endpoint_identity IN {realms.PLACES})"
# One sender, however the address is written; a contact is one by all its addresses.
OF_ONE: Final = """coalesce(i.contact_id::text, i.channel || lower(i.sender COLLATE "C"))"""
# More come by no channel in that while ($3), so that only what was put there in a flood hides anything.
LOOKED_AT: Final = 50_000
# So many in a while ($2 in $4) of contacts and as many of others, each sender in turn, counting what of it was shown in
# that while and waits for the owner; the rest waits until there is room, and is no news after $3. What has a card may
# get another one, by the next channel.
ASK_STRANGERS: Final = f"""
WITH told AS (
    SELECT {OF_A_CONTACT} AS known, {OF_ONE} AS who, count(DISTINCT i.id) AS cards
    FROM messenger.deliveries d JOIN switchboard.inbox i ON i.id = d.about WHERE d.card_kind = '{KIND}'
        AND i.stranger = 'waits'
        AND d.created_at > clock_timestamp() - $4::interval AND d.created_at <= clock_timestamp()
    GROUP BY known, who),
fresh AS (
    SELECT i.id, i.received_at, i.routed_to, h.realm, has_card, {OF_A_CONTACT} AS known, {OF_ONE} AS who,
        row_number() OVER (PARTITION BY has_card, {OF_A_CONTACT}, {OF_ONE} ORDER BY i.received_at, i.id) AS turn
    FROM (SELECT * FROM switchboard.inbox WHERE stranger = 'waits' AND received_at > clock_timestamp() - $3::interval
        ORDER BY received_at DESC LIMIT {LOOKED_AT}) i
    JOIN shared.channels h ON {SAME_KIND}
    CROSS JOIN LATERAL (SELECT EXISTS (
        SELECT FROM messenger.deliveries d WHERE d.card_kind = '{KIND}' AND d.about = i.id)) c (has_card)),
placed AS (
    SELECT fresh.*, row_number() OVER (PARTITION BY has_card, known ORDER BY turn + coalesce(cards, 0), received_at, id)
        + (SELECT coalesce(sum(t.cards), 0) FROM told t WHERE t.known = fresh.known) AS place
    FROM fresh LEFT JOIN told USING (known, who)),
a AS (
    SELECT '{KIND}' AS card_kind, NULL::uuid AS action_id, id AS about, NULL::uuid AS digest_id, 1 AS revision,
        routed_to AS origin_butler, received_at AS at, false AS counted, realm
    FROM placed WHERE has_card OR place <= $2)
{QUEUE}
"""


async def ask_strangers(connection: Connection, burst: int, timings: Timings) -> int:
    """Queue the cards about what strangers wrote."""
    within = (timings.card_elsewhere, burst, timings.bounce_told, timings.burst_window)
    return len(await connection.fetch(ASK_STRANGERS, *within))


# None of it is longer than what comes in by a channel, whatever the Switchboard put there.
ONE: Final = f"""
SELECT i.id::text, i.channel, left(i.sender, 1000) AS sender, left(i.display_name, 1000) AS display_name,
    left(i.conversation, 1000) AS conversation, i.kind, left(i.text, 25000) AS text, i.routed_to, i.stranger,
    i.verified, c.id::text AS contact_id, c.name AS contact, i.received_at, clock_timestamp() AS now,
    left(i.request_context ->> 'received_at', 100) AS observed,
    CASE WHEN i.in_doubt OR i.channel = 'telegram' THEN left(i.quoted, 25000) END AS left_out,
    CASE jsonb_typeof(i.attachments) WHEN 'array' THEN jsonb_array_length(i.attachments) ELSE 0 END AS files,
    coalesce('owner' = ANY (c.roles), false) AS from_owner, h.realm,
    i.endpoint_identity IN {realms.PLACES} AND {realms.REACHES_PEOPLE} AS is_played
FROM switchboard.inbox i
LEFT JOIN shared.contact_info e ON e.type = i.channel AND e.lookup = lower(i.sender COLLATE "C")
LEFT JOIN shared.contacts c ON c.id = e.contact_id
LEFT JOIN shared.channels h ON {SAME_KIND}
WHERE i.id = $1 AND i.stranger IS NOT NULL
"""


async def one(connection: Connection, message_id: str) -> Record | None:
    """Return what a stranger wrote, and what the owner has said to it."""
    return await connection.fetchrow(ONE, UUID(message_id))


# What is said of a message closes it; what is said of its sender closes all of that sender's.
SAID: Final = """
UPDATE switchboard.inbox SET stranger = $4
WHERE stranger = 'waits' AND (id = $1 OR ($5 AND channel = $2 AND lower(sender COLLATE "C") = $3))
"""


async def note_said(connection: Connection, row: Record, said: str, *, of_sender: bool) -> None:
    """Note what the owner says to a stranger's words, or to the stranger."""
    await connection.execute(SAID, UUID(row["id"]), row["channel"], folded(row["sender"]), said, of_sender)


STRANGERS_OVER: Final = f"""
SELECT d.id::text, d.address, i.id::text AS about, d.realm, i.stranger, p.provider_id, p.shown, 'closed' AS shows
FROM messenger.deliveries d JOIN switchboard.inbox i ON i.id = d.about {SHOWN_IN_TELEGRAM}
    AND d.card_kind = '{KIND}' AND i.stranger <> 'waits'
ORDER BY d.created_at LIMIT 20
"""


async def strangers_over(connection: Connection) -> list[Record]:
    """Return the cards in Telegram about words to which the owner has said something."""
    return list(await connection.fetch(STRANGERS_OVER))
