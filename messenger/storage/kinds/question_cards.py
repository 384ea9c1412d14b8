"""The cards of questions that are missing, those that are over, and the one that a message answers."""

from typing import Final

from messenger.storage.cards import QUEUE, SPENT
from messenger.storage.queries import SHOWN_IN_TELEGRAM
from shared.config.timings import Timings
from shared.db.pool import Connection, Record
from shared.storage.tool_calls import REALM

# Of each butler as many as its burst ($2) has room for, all its cards counted together; the console shows the rest.
# The second card of an urgent one reminds of it, and counts against nobody.
ASK_QUESTIONS: Final = f"""
WITH waits AS (
    SELECT q.id, CASE WHEN remind_at <= clock_timestamp() THEN 2 ELSE 1 END AS revision, origin_butler,
        asked_at AS at,
        EXISTS (SELECT FROM messenger.deliveries d WHERE d.card_kind = 'question' AND d.about = q.id) AS had_one
    FROM shared.questions q WHERE status = 'open' AND expires_at > clock_timestamp() AND show_at <= clock_timestamp()),
placed AS (
    SELECT *, row_number() OVER (PARTITION BY origin_butler ORDER BY at, id) AS place FROM waits WHERE NOT had_one),
shown AS (
    SELECT id, revision, origin_butler, at, true AS counted FROM placed LEFT JOIN ({SPENT}) s USING (origin_butler)
    WHERE coalesce(s.cards, 0) + place <= $2
    UNION ALL SELECT id, revision, origin_butler, at, false FROM waits WHERE had_one),
a AS (
    SELECT 'question' AS card_kind, NULL::uuid AS action_id, id AS about, NULL::uuid AS digest_id, revision,
        origin_butler, at, counted, {REALM} AS realm FROM shown)
{QUEUE}
"""


async def ask_questions(connection: Connection, burst: int, timings: Timings) -> int:
    """Queue the cards of the questions that wait for the owner."""
    return len(await connection.fetch(ASK_QUESTIONS, timings.card_elsewhere, burst, timings.burst_window))


# A card of a question that is over, or that came once more below.
QUESTIONS_OVER: Final = f"""
SELECT d.id::text, d.address, d.about::text, d.revision, {REALM} AS realm, p.provider_id, p.shown, 'closed' AS shows
FROM messenger.deliveries d JOIN shared.questions q ON q.id = d.about {SHOWN_IN_TELEGRAM}
    AND d.card_kind = 'question' AND (q.status <> 'open' OR q.expires_at <= clock_timestamp()
        OR EXISTS (SELECT FROM messenger.deliveries later WHERE later.card_kind = 'question' AND later.about = d.about
            AND later.channel = 'telegram' AND later.revision > d.revision AND later.status = 'sent'))
ORDER BY d.created_at LIMIT 20
"""


async def questions_over(connection: Connection) -> list[Record]:
    """Return the cards in Telegram that do not show how their question stands."""
    return list(await connection.fetch(QUESTIONS_OVER))


# By the number of any part of its card in this chat of this bot, never by what is quoted of it.
ANSWERS: Final = """
SELECT d.about::text FROM messenger.deliveries d JOIN messenger.parts p ON p.delivery_id = d.id
WHERE d.card_kind = 'question' AND d.channel = 'telegram' AND d.address = $1 AND p.provider_id = $2
    AND d.realm = (SELECT realm FROM shared.channels WHERE channel = 'telegram') LIMIT 1
"""


async def question_answered(connection: Connection, chat: str, message_id: str) -> str | None:
    """Return the question whose card is this message of this chat, or None."""
    found: str | None = await connection.fetchval(ANSWERS, chat, message_id)
    return found
