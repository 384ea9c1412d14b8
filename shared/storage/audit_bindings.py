"""What a line of the audit binds of a message: hashes of its content, its bytes, its words and its address.

Of a tool call the content is what it would run and what it says that it does.

The lines are sealed and the rows are not, so a row that differs was changed afterwards. SELECT only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from uuid import UUID

from shared.db.pool import Connection, Record
from shared.retention import WIPED
from shared.storage import tool_calls
from shared.storage.deliveries import MAY_HAVE_LEFT

# Of the rows `n` (a notification) and `d` (its delivery), as the marker's statement and the comparison both have them.
ADDRESS: Final = "encode(sha256(convert_to(n.id::text || ' ' || d.channel || ' ' || d.address, 'UTF8')), 'hex')"
WORDS: Final = "encode(sha256(convert_to(n.envelope::text || coalesce(n.owner_text, ''), 'UTF8')), 'hex')"
_SAID: Final[Mapping[str, str]] = {
    "content": "the hash of its content",
    "wire": "the hash of its bytes",
    "address": "its address",
    "words": "its words",
    "revision": "the revision of its question",
}


@dataclass(frozen=True, slots=True)
class Differs:
    """A row that is not what its line says: the line's number, and what a person is told."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Compared:
    """How many lines with hashes were compared, how many have none, and which rows differ."""

    lines: int
    without: int
    differs: Sequence[Differs]


WORDS_NOW: Final = f"SELECT {WORDS} FROM shared.notifications n WHERE n.id = $1"


async def of_yes(
    connection: Connection, notification_id: str, channel: str, address: str, content_sha: str, wires: Sequence[str]
) -> dict[str, str]:
    """Return what the line of a yes holds, besides who said it; the caller holds the notification's row."""
    return {
        "words": await connection.fetchval(WORDS_NOW, UUID(notification_id)),
        "content": content_sha,
        "wire": sha256(" ".join(wires).encode()).hexdigest(),
        "address": sha256(f"{notification_id} {channel} {address}".encode()).hexdigest(),
    }


def _other_call(row: Record) -> bool:
    return bool(row.get("as_called")) and tool_calls.sha_of(row) != row["bound"]


# The last marker of each part, of messages not begun anew since. Rows go 400 days after the end, words after 30.
MARKED: Final = f"""
WITH lines AS (
    SELECT DISTINCT ON (notification_id, detail -> 'part') seq, at, notification_id, detail
    FROM shared.approval_events WHERE event_type = 'marked' AND actor = 'messenger'
    ORDER BY notification_id, detail -> 'part', seq DESC)
SELECT l.seq, l.notification_id::text, l.detail ->> 'part' AS part, n.id IS NULL AS gone,
    d.id IS NULL OR d.content_sha IS DISTINCT FROM l.detail ->> 'content'
        OR n.content_sha IS DISTINCT FROM l.detail ->> 'asked' AS content,
    p.wire_sha IS DISTINCT FROM l.detail ->> 'wire' AS wire,
    d.id IS NULL OR {ADDRESS} <> l.detail ->> 'address' AS address,
    (n.wiped_at IS NULL OR n.wiped_at < l.at + interval '30 days') AND {WORDS} <> l.detail ->> 'words' AS words
FROM lines l LEFT JOIN shared.notifications n ON n.id = l.notification_id
LEFT JOIN messenger.deliveries d ON d.notification_id = n.id
LEFT JOIN messenger.parts p ON p.delivery_id = d.id AND p.n = (l.detail ->> 'part')::int
WHERE CASE WHEN p.n IS NULL THEN l.at > clock_timestamp() - interval '400 days' ELSE {MAY_HAVE_LEFT} END
ORDER BY l.seq
"""
# The last yes to each question that still stands in that revision; its address is that of what left by it. A later
# revision has a line of its own, and no other state ends one. Its words stay until they are wiped, or until the owner
# changes those of a later question about the same message; older lines hold none. Of a call they are what its content
# is the hash of: they are wiped 30 days after its question could be answered, so never sooner after the first yes.
SAID_YES: Final = f"""
WITH lines AS (
    SELECT DISTINCT ON (action_id) seq, at, min(at) OVER (PARTITION BY action_id) AS first, action_id,
        notification_id, detail FROM shared.approval_events
    WHERE event_type = 'approved' AND actor = 'owner' AND rule_id IS NULL AND detail ? 'content'
    ORDER BY action_id, seq DESC)
SELECT l.seq, l.notification_id::text, a.origin_butler, c.tool_name, c.arguments, c.says,
    l.detail ->> 'content' AS bound,
    a.revision = (l.detail ->> 'revision')::int AND l.notification_id IS NULL AND c.id IS NOT NULL
        AND NOT (c.arguments = '{WIPED}' AND c.says = '{WIPED}'
            AND l.first < clock_timestamp() - interval '30 days') AS as_called,
    a.id IS NULL OR (l.notification_id IS NULL AND c.id IS NULL AND l.at > clock_timestamp() - interval '400 days')
        AS gone,
    a.revision = (l.detail ->> 'revision')::int AND a.content_sha IS DISTINCT FROM l.detail ->> 'content' AS content,
    a.revision = (l.detail ->> 'revision')::int
        AND encode(sha256(convert_to(array_to_string(a.wire_shas, ' '), 'UTF8')), 'hex')
            IS DISTINCT FROM l.detail ->> 'wire' AS wire,
    a.revision = (l.detail ->> 'revision')::int
        AND EXISTS (SELECT FROM shared.approval_events m WHERE m.notification_id = l.notification_id AND m.seq > l.seq
            AND m.event_type = 'marked' AND m.actor = 'messenger' AND m.detail ->> 'yes' = l.action_id::text
            AND m.detail ->> 'address' <> l.detail ->> 'address') AS address,
    a.revision = (l.detail ->> 'revision')::int AND l.detail ? 'words'
        AND (n.wiped_at IS NULL OR n.wiped_at < l.at + interval '30 days')
        AND {WORDS} IS DISTINCT FROM l.detail ->> 'words'
        AND NOT EXISTS (SELECT FROM shared.approval_events e WHERE e.notification_id = l.notification_id
            AND e.event_type = 'edited' AND e.actor = 'owner' AND e.seq > l.seq) AS words,
    a.revision <> (l.detail ->> 'revision')::int AND NOT EXISTS (SELECT FROM shared.approval_events e
        WHERE e.action_id = a.id AND e.actor IN ('messenger', 'owner') AND e.seq > l.seq
            AND e.detail @> jsonb_build_object('revision', a.revision)) AS revision
FROM lines l LEFT JOIN shared.pending_actions a ON a.id = l.action_id
LEFT JOIN shared.tool_calls c ON c.id = a.id
LEFT JOIN shared.notifications n ON n.id = a.notification_id
WHERE a.id IS NOT NULL OR l.at > clock_timestamp() - interval '400 days' ORDER BY l.seq
"""
# Written before lines held hashes: a yes without any, and what was marked for somebody else without a line.
WITHOUT: Final = """
SELECT (SELECT count(*) FROM shared.approval_events
        WHERE event_type = 'approved' AND actor = 'owner' AND rule_id IS NULL
            AND NOT coalesce(detail ? 'content', false))
    + (SELECT count(*) FROM messenger.deliveries d WHERE class = 'third_party'
        AND EXISTS (SELECT FROM messenger.attempts a WHERE a.delivery_id = d.id AND a.marked_at IS NOT NULL)
        AND NOT EXISTS (SELECT FROM shared.approval_events e
            WHERE e.notification_id = d.notification_id AND e.event_type = 'marked'))
"""


async def compare(connection: Connection) -> Compared:
    """Compare every line that binds something with its rows."""
    lines, found = 0, []
    for kind, text in (("marker", MARKED), ("yes", SAID_YES)):
        for row in await connection.fetch(text):
            lines += 1
            fields = {**row, "words": row["words"] or _other_call(row)}
            wrong = [said for name, said in _SAID.items() if fields.get(name)]
            about = f"Message {row['notification_id']}" if row["notification_id"] else "A tool call"
            if fields.get("gone"):
                found.append(Differs(row["seq"], f"{about}, of whose {kind} line {row['seq']} tells, is gone."))
            elif wrong:
                what = ", ".join(wrong)
                found.append(Differs(row["seq"], f"{about}: {what} was changed after its {kind}, line {row['seq']}."))
    return Compared(lines, await connection.fetchval(WITHOUT), found)
