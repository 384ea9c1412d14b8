"""Contacts and their entries: who is the owner, whom a caller means, and who has an address.

Only the owner writes contacts (console, CLI, pairing, bootstrap); butlers read. Each change leaves a line in the audit,
with a hash in the place of the address: lines stay for ever, and an address that was forgotten must not.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal
from uuid import UUID

import asyncpg

from shared.addresses import canonical, folded, name_in, parse_recipient
from shared.channels import CHANNELS
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput, Misconfigured
from shared.hashing import id_in
from shared.storage.pending_actions import Event, record

Kind = Literal["contact", "recipient", "owner", "thread"]
LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Recipient:
    """Whom the caller means, as the caller said it; `value` is a contact id, an address, a thread or empty."""

    kind: Kind
    value: str = ""

    def __str__(self) -> str:
        """Return the form that is hashed and stored."""
        return f"{self.kind}:{self.value}" if self.value else self.kind

    @classmethod
    def parse(cls, text: str) -> "Recipient":
        """Parse what `str()` made; raise InvalidInput if it names nobody."""
        kind, _, value = text.partition(":")
        if kind not in {"contact", "recipient", "owner", "thread"}:
            raise InvalidInput(f"`{text[:40]}` is not a recipient.")
        return cls(kind, value)  # type: ignore[arg-type]  # checked on the line above


@dataclass(frozen=True, slots=True)
class Target:
    """One address, and what is known about who is there."""

    address: str
    contact_id: str | None = None
    contact_name: str | None = None
    entry_id: str | None = None
    # Only the owner's own private chat or address; never a group, never an @username.
    is_owner: bool = False
    # False where the address is of another channel's form: it can be shown, not sent to.
    deliverable: bool = True
    # True where a thread names it, and no message that reached its butler proves that thread.
    unproved: bool = False


class UnknownContact(InvalidInput):
    """A contact id of the right form that nobody has: the caller guessed it, or made it up."""


@dataclass(frozen=True, slots=True)
class MissingIdentifier:
    """A known contact without an entry for the channel."""

    contact_id: str
    contact_name: str


async def target_of(connection: Connection, whom: Recipient, channel: str) -> Target | MissingIdentifier:
    """Return the address meant, or that there is none on file (seed 001, Default Recipient Resolution).

    Raises InvalidInput for an unknown contact and Misconfigured for an owner without an entry.
    """
    if whom.kind == "contact":
        return await _by_contact(connection, whom.value, channel)
    if whom.kind == "owner":
        return await _by_owner(connection, channel)
    # A row that is only shown may name a channel that nobody knows.
    within = CHANNELS[channel].thread.address if whom.kind == "thread" and channel in CHANNELS else None
    value = within(whom.value) if within else whom.value
    return await _by_value(connection, value, channel)


BY_CONTACT = """
SELECT c.id::text AS contact_id, c.name, 'owner' = ANY (c.roles) AS owner, i.id::text AS entry_id, i.value
FROM shared.contacts c LEFT JOIN shared.contact_info i ON i.contact_id = c.id AND i.type = $2
WHERE c.id = $1 ORDER BY i.is_primary DESC NULLS LAST, i.created_at, i.id LIMIT 1
"""


async def _by_contact(connection: Connection, contact_id: str, channel: str) -> Target | MissingIdentifier:
    row = await connection.fetchrow(BY_CONTACT, id_in(contact_id), channel)
    if row is None:
        raise UnknownContact(f"No contact has the id '{contact_id[:60]}'.", "Look it up with the tool `contacts`.")
    if row["value"] is None:
        return MissingIdentifier(row["contact_id"], row["name"])
    return _target(row, channel)


BY_NAME = """
SELECT c.id::text AS id, c.name, array_remove(array_agg(DISTINCT i.type), NULL) AS channels
FROM shared.contacts c LEFT JOIN shared.contact_info i ON i.contact_id = c.id
WHERE shared.folded_name(c.name) = shared.folded_name($1) GROUP BY c.id ORDER BY c.created_at, c.id LIMIT 6
"""


async def by_name(connection: Connection, name: str) -> tuple[str, str]:
    """Return the id and the name of the one contact of this whole name, whatever its case and accents.

    Raises UnknownContact where nobody bears it, and InvalidInput where several do.
    """
    found = await connection.fetch(BY_NAME, name)
    if not found:
        raise UnknownContact(
            f"No contact is named '{name[:60]}', and that is no address.",
            "Search with the tool `contacts`, or give an e-mail address or a Telegram chat id.",
        )
    if len(found) > 1:
        bearers = "; ".join(f"{row['id']} ({', '.join(row['channels']) or 'no channel'})" for row in found)
        raise InvalidInput(f"Several contacts are named '{name[:60]}'.", f"Give one of them as contact_id: {bearers}.")
    return str(found[0]["id"]), str(found[0]["name"])


SEARCH = """
SELECT c.id::text AS contact_id, c.name, 'owner' = ANY (c.roles) AS is_owner,
    array_remove(array_agg(DISTINCT i.type), NULL) AS channels
FROM shared.contacts c LEFT JOIN shared.contact_info i ON i.contact_id = c.id
WHERE position(shared.folded_name($1) IN shared.folded_name(c.name)) > 0
GROUP BY c.id ORDER BY c.name, c.created_at, c.id LIMIT $2
"""


async def search(connection: Connection, words: str, most: int) -> list[Record]:
    """Return the contacts whose names hold these words, whatever their case and accents; no words, all contacts."""
    return list(await connection.fetch(SEARCH, words, most))


BY_OWNER = """
SELECT c.id::text AS contact_id, c.name, true AS owner, i.id::text AS entry_id, i.value
FROM shared.contacts c LEFT JOIN shared.contact_info i ON i.contact_id = c.id AND i.type = $1
WHERE 'owner' = ANY (c.roles) ORDER BY i.is_primary DESC NULLS LAST, i.created_at, i.id LIMIT 1
"""


async def _by_owner(connection: Connection, channel: str) -> Target:
    row = await connection.fetchrow(BY_OWNER, channel)
    if row is None:
        raise Misconfigured(
            "There is no owner yet.",
            f"Run `butlers contacts add NAME --role owner --{channel} VALUE`.",
        )
    if row["value"] is None:
        raise Misconfigured(
            f"The owner has no {channel} address on file.",
            f"Run `butlers contacts set {row['contact_id']} --{channel} VALUE`.",
        )
    return _target(row, channel)


BY_VALUE = """
SELECT c.id::text AS contact_id, c.name, 'owner' = ANY (c.roles) AS owner, i.id::text AS entry_id, i.value
FROM shared.contact_info i JOIN shared.contacts c ON c.id = i.contact_id
WHERE i.type = $1 AND i.lookup = $2
"""


async def _by_value(connection: Connection, value: str, channel: str) -> Target:
    address = parse_recipient(value)
    row = await connection.fetchrow(BY_VALUE, address.channel, folded(address.value))
    deliverable = address.channel == channel
    if row is None:
        return Target(address=address.value, deliverable=deliverable)
    found = _target(row, address.channel)
    if deliverable:
        return found
    return Target(found.address, found.contact_id, found.contact_name, found.entry_id, deliverable=False)


def _target(row: Record, channel: str) -> Target:
    """Make the target of the entry's stored value, which goes on the wire, never the caller's spelling of it."""
    address = canonical(channel, row["value"])
    private = CHANNELS[channel].address.is_private(address)
    return Target(address, row["contact_id"], row["name"], row["entry_id"], is_owner=row["owner"] and private)


INSERT_CONTACT = "INSERT INTO shared.contacts (name, roles) VALUES ($1, $2) RETURNING id::text"


async def add_contact(connection: Connection, name: str, roles: list[str], *, surface: str = "cli") -> str:
    """Add a contact and return its id; refuse a second owner, and a name that nobody could be found by."""
    try:
        made = str(await connection.fetchval(INSERT_CONTACT, _fit_name(name), roles))
    except asyncpg.UniqueViolationError:
        raise InvalidInput("There is already an owner.", "Change that contact with `butlers contacts set`.") from None
    await record(connection, Event("contact_made", "owner"), person=made, roles=roles, surface=surface)
    return made


def _fit_name(name: str) -> str:
    """Return the name without spaces at its ends; raise InvalidInput for what is no name, or is an address."""
    fit = name.strip()
    if not 0 < len(fit) <= LONGEST_NAME or not fit.isprintable():
        raise InvalidInput("The name is not valid.", f"Give one line of 1 to {LONGEST_NAME} characters.")
    if name_in(fit) is None:
        raise InvalidInput("A name has a letter and no @; this one could be taken for an address.", "Give a name.")
    return fit


RENAME = "UPDATE shared.contacts SET name = $2 WHERE id = $1 AND name <> $2 RETURNING id"


async def rename_contact(connection: Connection, contact_id: str, name: str, *, surface: str = "cli") -> bool:
    """Give a contact another name; return False if it has that name, or is not there."""
    if await connection.fetchval(RENAME, UUID(contact_id), _fit_name(name)) is None:
        return False
    await record(connection, Event("contact_renamed", "owner"), person=contact_id, surface=surface)
    return True


# It changes nothing but the authority, so that no rule and no brake comes in between.
HOLD_CONTACT = """
UPDATE shared.contacts SET name = name WHERE id = $1 RETURNING name, 'owner' = ANY (roles) AS is_owner
"""
# A rule may pin a contact by a plain value or by one of several kinds: any that names it counts. A message waits
# for the owner where there is a question about it, whatever a butler wrote into its row.
STILL_NAMED = """
SELECT 'rule' AS what, left(id::text, 8) AS id FROM shared.approval_rules
WHERE active AND expired_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
    AND strpos(lower(arg_constraints ->> 'contact_id'), $1::uuid::text) > 0
UNION ALL SELECT 'brake', left(id::text, 8) FROM shared.brakes
WHERE contact_id = $1 AND lifted_at IS NULL AND (until IS NULL OR until > clock_timestamp())
UNION ALL SELECT 'route', left(id::text, 8) FROM switchboard.routing_rules WHERE contact_id = $1
UNION ALL SELECT 'message', left(n.id::text, 8) FROM shared.notifications n
WHERE n.whom = 'contact:' || $1::uuid::text AND (n.status = 'queued' OR EXISTS (SELECT FROM shared.pending_actions a
    WHERE a.notification_id = n.id AND a.status = 'pending'))
LIMIT 20
"""
FORGET_ALL = "DELETE FROM shared.contact_info WHERE contact_id = $1 RETURNING type, value"
REMOVE = "DELETE FROM shared.contacts WHERE id = $1"


async def remove_contact(connection: Connection, contact_id: str, *, surface: str = "cli") -> bool:
    """Remove a contact with its addresses; return False if it is not there.

    Refuses the owner, and whoever a rule, a brake or a waiting message names: a block that names nobody blocks nothing.
    """
    key = UUID(contact_id)
    person = await connection.fetchrow(HOLD_CONTACT, key)
    if person is None:
        return False
    if person["is_owner"]:
        raise InvalidInput("You are the owner and cannot be removed.", "Rename the contact, or change its addresses.")
    if named := [f"{row['what']} {row['id']}" for row in await connection.fetch(STILL_NAMED, key)]:
        raise InvalidInput(
            f"{person['name']} cannot be removed, as this still names the contact: {', '.join(named)}.",
            "Revoke the rule, lift the brake, end the route, or deny the message first.",
        )
    for entry in await connection.fetch(FORGET_ALL, key):
        await _record(connection, "address_removed", str(key), entry["type"], entry["value"], surface)
    await connection.execute(REMOVE, key)
    await record(connection, Event("contact_removed", "owner"), person=str(key), surface=surface)
    return True


# The owner's own entries are such as nobody else reads; the database holds that against whoever writes.
OWNER_IN_PRIVATE: Final = "owner_in_private"
UNSET_PRIMARY = "UPDATE shared.contact_info SET is_primary = false WHERE contact_id = $1 AND type = $2"
SET_PRIMARY = "UPDATE shared.contact_info SET is_primary = true WHERE id = $1::uuid"


async def add_address(
    connection: Connection, contact_id: str, kind: str, value: str, *, primary: bool = False, surface: str = "cli"
) -> str:
    """Put an address on this contact and return the entry's id; refuse one of another contact, and name that one."""
    try:
        key = UUID(contact_id)
    except ValueError:
        raise InvalidInput(f"`{contact_id[:60]}` is not a contact id.", "See `butlers contacts list`.") from None
    stored = canonical(kind, value)
    entry = await _entry(connection, key, kind, stored)
    moves = primary and not entry["is_primary"]
    if moves:  # only now: a caller that goes on after a refusal has changed nothing
        await connection.execute(UNSET_PRIMARY, key, kind)
        await connection.execute(SET_PRIMARY, entry["id"])
    if entry["made"]:
        await _record(connection, "address_added", str(key), kind, stored, surface)
    if moves:
        await _record(connection, "address_preferred", str(key), kind, stored, surface)
    return str(entry["id"])


INSERT_ENTRY = """
INSERT INTO shared.contact_info (contact_id, type, value, is_primary)
VALUES ($1, $2, $3, NOT EXISTS (SELECT FROM shared.contact_info WHERE contact_id = $1 AND type = $2))
ON CONFLICT (type, lookup) DO UPDATE SET is_primary = contact_info.is_primary
WHERE contact_info.contact_id = EXCLUDED.contact_id
RETURNING id::text, is_primary, xmax = 0 AS made
"""


async def _entry(connection: Connection, key: UUID, kind: str, stored: str) -> Record:
    """Insert the entry, or find it on this contact; raise InvalidInput where it cannot be this contact's."""
    try:
        entry = await connection.fetchrow(INSERT_ENTRY, key, kind, stored)
    except asyncpg.ForeignKeyViolationError:
        raise InvalidInput(f"No contact has the id {key}.", "See `butlers contacts list`.") from None
    except asyncpg.CheckViolationError as unfit:
        if unfit.constraint_name != OWNER_IN_PRIVATE:
            raise
        form = CHANNELS[kind].address
        raise InvalidInput(f"{stored} cannot be the owner's: it is not {form.private}.", "Correct it.") from None
    if entry is None:
        raise await _taken(connection, kind, stored)
    return entry


async def _taken(connection: Connection, kind: str, stored: str) -> InvalidInput:
    """Return what to say of an address that is another contact's."""
    holder = await connection.fetchrow(BY_VALUE, kind, folded(stored))
    named = f"{holder['name']} ({holder['contact_id'][:8]})" if holder else "another contact"
    return InvalidInput(f"{stored} is already an address of {named}.", "Remove it from that contact first.")


FORGET = "DELETE FROM shared.contact_info WHERE contact_id = $1 AND type = $2 AND lookup = $3 RETURNING value"
OWNS_NOWHERE = """
SELECT 'owner' = ANY (roles) AND NOT EXISTS (SELECT FROM messenger.owner_at WHERE channel = $2)
FROM shared.contacts WHERE id = $1
"""


async def remove_address(
    connection: Connection, contact_id: str, kind: str, value: str, *, surface: str = "cli"
) -> bool:
    """Take an identifier off a contact; return False if it is not there, and refuse the owner's last on a channel."""
    key, address = UUID(contact_id), canonical(kind, value)
    gone = await connection.fetchval(FORGET, key, kind, folded(address))
    if gone is None:
        return False
    private = CHANNELS[kind].address.is_private(address)
    if private and await connection.fetchval(OWNS_NOWHERE, key, kind):
        raise InvalidInput(
            f"It is the only {kind} address where you can be asked, so it cannot be removed.",
            f"Add another first: `butlers contacts set {contact_id} --{kind} VALUE --primary`.",
        )
    await _record(connection, "address_removed", str(key), kind, gone, surface)
    return True


async def _record(connection: Connection, what: str, contact_id: str, kind: str, value: str, surface: str) -> None:
    """Write the change's line; the hash is over the contact too, so that no two lines tell of the same address."""
    address = sha256(f"{contact_id} {kind} {value}".encode()).hexdigest()
    told = {"person": contact_id, "channel": kind, "address": address, "surface": surface}
    await record(connection, Event(what, "owner"), **told)


OWNER = "SELECT id::text, name, preferred_channel FROM shared.contacts WHERE 'owner' = ANY (roles)"


async def owner(connection: Connection) -> Record | None:
    """Return the owner's id, name and preferred channel, if there is an owner."""
    return await connection.fetchrow(OWNER)


# INVARIANT: where a channel is live, nothing is told in the sandbox, which anybody on this computer can read; and as in
# the view messenger.owner_at, an address that was invented for the sandbox is none of a live channel.
OWNERS_CHANNEL = """
SELECT i.type FROM shared.contacts c JOIN shared.contact_info i ON i.contact_id = c.id
    JOIN shared.channels h ON h.channel = i.type
WHERE 'owner' = ANY (c.roles)
    AND (h.realm <> 'sandbox' OR NOT EXISTS (SELECT FROM shared.channels WHERE realm <> 'sandbox'))
    AND (h.realm = 'sandbox' OR (i.lookup <> '5000000000000001' AND i.lookup NOT LIKE '%@sandbox.test'))
ORDER BY i.type = c.preferred_channel DESC, i.type = 'telegram' DESC LIMIT 1
"""


async def owners_channel(connection: Connection) -> str | None:
    """Return the channel by which the owner is told something, if there is one."""
    found: str | None = await connection.fetchval(OWNERS_CHANNEL)
    return found


LIST = """
SELECT c.id::text, c.name, c.roles, c.preferred_channel,
    coalesce(jsonb_agg(jsonb_build_object('type', i.type, 'value', i.value, 'is_primary', i.is_primary)
        ORDER BY i.type, i.is_primary DESC, i.created_at) FILTER (WHERE i.id IS NOT NULL), '[]') AS entries
FROM shared.contacts c LEFT JOIN shared.contact_info i ON i.contact_id = c.id
GROUP BY c.id ORDER BY c.created_at
"""


async def list_contacts(connection: Connection) -> list[Record]:
    """Return every contact with its entries, oldest first."""
    return list(await connection.fetch(LIST))
