"""What the pages of contacts show, read by SELECT only."""

from dataclasses import dataclass, replace
from uuid import UUID

from butlers.console.labels import ago, mapping, span, text
from butlers.console.queries.approvals import Letter, letter
from butlers.console.queries.rules import Standing, standing
from shared.db.decoding import EXPIRES
from shared.db.pool import Connection, Record
from shared.display.visible import visible
from shared.gate.gather import naming

MOST = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored channel identifier."""

    type: str
    value: str
    shown: str
    primary: bool
    # Those that name the address itself, and so go on without it; only the contact's own page looks.
    rules: tuple[Standing, ...] = ()


@dataclass(frozen=True, slots=True)
class Person:
    """One contact with its entries, the primary of a type first."""

    id: str
    name: str
    roles: tuple[str, ...]
    prefers: str
    entries: tuple[Entry, ...]
    waiting: int


@dataclass(frozen=True, slots=True)
class Unsent:
    """A message that waits for an address, as it would go out."""

    action_id: str
    revision: int
    letter: Letter
    asked: str
    left: str


@dataclass(frozen=True, slots=True)
class Group:
    """The messages for one contact that wait for an identifier of one type, oldest first."""

    channel: str
    messages: tuple[Unsent, ...]

    @property
    def shown(self) -> str:
        """The revisions that the page shows, for its form to carry."""
        return " ".join(f"{one.action_id}:{one.revision}" for one in self.messages)


ROW = """
SELECT c.id::text, c.name, c.roles, c.preferred_channel,
    coalesce(jsonb_agg(jsonb_build_object('type', i.type, 'value', i.value, 'primary', i.is_primary)
        ORDER BY i.type, i.is_primary DESC, i.created_at, i.id) FILTER (WHERE i.id IS NOT NULL), '[]') AS entries,
    (SELECT count(*) FROM shared.pending_actions a JOIN shared.notifications n ON n.id = a.notification_id
        WHERE n.whom = 'contact:' || c.id::text AND n.status = 'pending_missing_identifier' AND a.status = 'pending'
            AND a.expires_at > clock_timestamp()) AS waiting
FROM shared.contacts c LEFT JOIN shared.contact_info i ON i.contact_id = c.id
"""
PEOPLE = f"""{ROW}
GROUP BY c.id ORDER BY waiting DESC, 'owner' = ANY (c.roles) DESC, lower(c.name), c.id LIMIT 500
"""


async def people(connection: Connection) -> tuple[Person, ...]:
    """Return all contacts: first those for whom messages wait, then the owner."""
    return tuple(map(_person, await connection.fetch(PEOPLE)))


PERSON = f"{ROW} WHERE c.id = $1 GROUP BY c.id"


async def person(connection: Connection, contact_id: str) -> Person | None:
    """Return one contact, or None."""
    row = await connection.fetchrow(PERSON, UUID(contact_id))
    if row is None:
        return None
    found = _person(row)
    named = await naming(connection, [one.value for one in found.entries])
    return replace(
        found, entries=tuple(replace(one, rules=tuple(map(standing, named[one.value]))) for one in found.entries)
    )


# A rule may pin a contact by a plain value or by one of several kinds: any that names it counts.
RULED = """
SELECT EXISTS (SELECT FROM shared.contacts c WHERE c.id = $1 AND ('owner' = ANY (c.roles)
    OR EXISTS (SELECT FROM shared.approval_rules r
        WHERE r.active AND strpos(lower(r.arg_constraints ->> 'contact_id'), c.id::text) > 0)
    OR EXISTS (SELECT FROM shared.brakes b WHERE b.contact_id = c.id AND b.lifted_at IS NULL)
    OR EXISTS (SELECT FROM switchboard.routing_rules t WHERE t.contact_id = c.id)))
"""


async def is_ruled(connection: Connection, contact_id: str) -> bool:
    """Return whether another address would change what the owner has decided once and for all.

    So it is with the owner's own, and with whom a rule, a brake or a rule for what comes in names, by the contact or by
    an address.
    """
    if await connection.fetchval(RULED, UUID(contact_id)) is True:
        return True
    found = await person(connection, contact_id)
    return found is not None and any(one.rules for one in found.entries)


WITHOUT_ADDRESS = """
SELECT a.id::text, a.revision, a.notification_id::text, n.envelope #>> '{delivery,channel}' AS channel
FROM shared.pending_actions a JOIN shared.notifications n ON n.id = a.notification_id
WHERE n.whom = 'contact:' || $1::text AND n.status = 'pending_missing_identifier' AND a.status = 'pending'
    AND a.expires_at > clock_timestamp() AND NOT EXISTS (SELECT FROM shared.contact_info i
        WHERE i.contact_id = $1::uuid AND i.type = n.envelope #>> '{delivery,channel}')
ORDER BY a.requested_at, a.id LIMIT 200
"""


async def without_address(connection: Connection, contact_id: str) -> list[Record]:
    """Return the open questions of this contact that wait for an identifier nobody has stored yet."""
    return list(await connection.fetch(WITHOUT_ADDRESS, contact_id))


UNSENT = f"""
SELECT a.id::text, a.origin_butler, n.admitted_by, a.revision, a.notification_id::text, n.envelope, n.owner_text,
    h.realm, n.whom, NULL::text AS sent_to, true AS open,
    extract(epoch FROM clock_timestamp() - a.requested_at)::float8 AS age,
    extract(epoch FROM {EXPIRES} - clock_timestamp())::float8 AS remaining
FROM shared.pending_actions a JOIN shared.notifications n ON n.id = a.notification_id
    LEFT JOIN shared.channels h ON h.channel = n.envelope #>> '{{delivery,channel}}'
WHERE a.id = $1
"""


async def groups(connection: Connection, contact_id: str) -> tuple[Group, ...]:
    """Return the first of these questions as a page shows them, by channel; each is read by itself."""
    made: dict[str, list[Unsent]] = {}
    for asked in await without_address(connection, contact_id):
        row = await connection.fetchrow(UNSENT, UUID(asked["id"]))
        if row is None or len(made.get(asked["channel"], ())) == MOST:
            continue
        one = await letter(connection, row)
        if not one.missing:  # an address would not let it go out, and it would hold the others back
            continue
        unsent = Unsent(row["id"], row["revision"], one, ago(row["age"]), span(row["remaining"]))
        made.setdefault(one.channel, []).append(unsent)
    return tuple(Group(channel, tuple(messages)) for channel, messages in sorted(made.items()))


def _person(row: Record) -> Person:
    return Person(
        id=row["id"],
        name=visible(row["name"]),
        roles=tuple(map(visible, row["roles"])),
        prefers=row["preferred_channel"],
        entries=tuple(_entry(value) for value in row["entries"]),
        waiting=row["waiting"],
    )


def _entry(value: object) -> Entry:
    fields = mapping(value)
    return Entry(text(fields, "type"), str(fields["value"]), text(fields, "value"), bool(fields["primary"]))
