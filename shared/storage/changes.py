"""What the owner changed beside messages, as the audit has it: contacts, tokens, keys, rules, brakes; SELECT only.

A line holds a hash of an address. The address itself is shown as long as it stands on that contact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.db.decoding import bounded
from shared.db.pool import Connection, Record
from shared.display.visible import in_line

MOST: Final = 200
SAID: Final[Mapping[str, str]] = {
    "contact_made": "Contact {person} was added.",
    "contact_renamed": "Contact {person} was renamed.",
    "contact_removed": "Contact {person} was removed.",
    "address_added": "{person} now has the {channel} address {address}.",
    "address_preferred": "The {channel} address {address} is now the default of {person}.",
    "address_removed": "The {channel} address {address} was removed from {person}.",
    "paired": "A chat was linked to the owner: {reason}.",
    "token_made": "A client token for {butler} was created: {token}.",
    "token_revoked": "The client token {token} for {butler} was revoked.",
    "key_rotated": "{name} received the key {key}.",
    "key_retired": "The key {key} of {name} was retired.",
    "login_closed": "The database login of {name} was closed.",
    "rule_made": "Rule {rule} was created: {reason}.",
    "rule_revoked": "Rule {rule} was revoked.",
    "route_made": "Messages that fit rule {route} go to {butler}.",
    "route_removed": "The routing rule {route} was removed.",
    "brake_on": "Brake {brake} was put on.",
    "brake_off": "Brake {brake} was lifted.",
    "signed_in": "A browser was signed in by {by}.",
    "signed_out": "A browser was signed out.",
    "sessions_ended": "All browsers were signed out of the console: {sessions} sessions, {links} links.",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the audit about no message, as a word for programs and as a sentence."""

    seq: int
    at: datetime
    what: str
    text: str


# Only the owner's lines: a butler may write what it likes in its own name.
ROWS: Final = f"""
SELECT e.seq, {bounded("e.at")} AS at, e.event_type AS what, coalesce(e.reason, '') AS reason,
    coalesce(e.rule_id::text, '') AS rule, e.detail, coalesce(c.name, e.detail ->> 'person', '') AS person,
    coalesce(i.value, left(e.detail ->> 'address', 12), '') AS address, i.value IS NOT NULL AS known
FROM shared.approval_events e
LEFT JOIN shared.contacts c ON c.id::text = e.detail ->> 'person'
LEFT JOIN shared.contact_info i ON i.contact_id = c.id AND e.detail ->> 'address'
    = encode(sha256(convert_to(i.contact_id::text || ' ' || i.type || ' ' || i.value, 'UTF8')), 'hex')
WHERE e.actor = 'owner' AND e.event_type = ANY ($1::text[])
"""
LATEST: Final = f"SELECT * FROM ({ROWS} ORDER BY e.seq DESC LIMIT $2) AS latest ORDER BY seq"


async def latest(connection: Connection) -> list[Change]:
    """Return the last 200 changes, oldest first."""
    return [_change(row) for row in await connection.fetch(LATEST, list(SAID), MOST)]


OF_LINES: Final = f"{ROWS} AND e.seq = ANY ($2::bigint[]) ORDER BY e.seq"


async def of_lines(connection: Connection, lines: Sequence[int]) -> list[Change]:
    """Return the changes among these lines, oldest first."""
    return [_change(row) for row in await connection.fetch(OF_LINES, list(SAID), lines)]


def _change(row: Record) -> Change:
    return Change(row["seq"], row["at"], row["what"], sentence(row))


def sentence(row: Record) -> str:
    """Say one line in words; what a line of another form does not hold is left open. Pure."""
    detail = row["detail"] if isinstance(row["detail"], Mapping) else {}
    address = row["address"] if row["known"] else f"that is not on file (SHA-256 {row['address']}…)"
    own = {"reason": row["reason"], "rule": row["rule"], "person": row["person"], "address": address}
    told = _Words({name: in_line(str(value)) for name, value in {**detail, **own}.items()})
    where = f" ({told['surface']})" if "surface" in told else ""
    return SAID[row["what"]].format_map(told) + where


class _Words(dict[str, str]):
    """The words of a line, with a mark for each that it does not hold."""

    def __missing__(self, name: str) -> str:
        return "?"
