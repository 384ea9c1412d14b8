"""The owner's rules for what comes in: which messages go to which butler, or to nobody."""

from dataclasses import dataclass
from typing import Final

from shared.addresses import canonical
from shared.channels import CHANNELS
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput
from shared.storage.pending_actions import Event, record

MOST_ROUTES: Final = 200
NOBODY: Final = "nobody"


@dataclass(frozen=True, slots=True)
class NewRoute:
    """A rule as the owner gives it: the butler, or None for nobody, and what a message must be like."""

    butler: str | None
    channel: str | None = None
    sender: str | None = None
    words: str | None = None
    # With `may_ask`, what this contact writes begins work of that butler.
    contact_id: str | None = None
    may_ask: bool = False


ADD: Final = """
INSERT INTO switchboard.routing_rules (butler, channel, sender, words, contact_id, may_ask)
SELECT $1, $2, $3, $4, $5::text::uuid, $6 WHERE (SELECT count(*) FROM switchboard.routing_rules) < $7
RETURNING id::text
"""


async def add_route(connection: Connection, new: NewRoute, by: str) -> str:
    """Add a rule and return its id; raise InvalidInput for one that fits every message, or that can never fit."""
    if new.channel is not None and new.channel not in CHANNELS:
        raise InvalidInput(f"Unknown channel `{new.channel}`.", f"Choose from: {', '.join(CHANNELS)}.")
    if not (new.channel or new.sender or new.words or new.contact_id):
        raise InvalidInput(
            "The rule would fit every message.",
            "Give a channel, a sender or words; or set `default` in butler.toml.",
        )
    if new.may_ask and not (new.contact_id and new.butler):
        raise InvalidInput("Only a contact may ask a butler.", "Run `butlers routes allow BUTLER CONTACT`.")
    if new.sender is not None and new.channel is None:
        raise InvalidInput("A sender needs its channel.", f"Give --channel {' or '.join(CHANNELS)}.")
    sender = canonical(str(new.channel), new.sender) if new.sender is not None else None
    if new.channel == "telegram" and sender is not None and sender.startswith("@"):
        raise InvalidInput("Telegram names a sender by a number alone.", "Give the number that its card shows.")
    what = new.butler, new.channel, sender, new.words, new.contact_id, new.may_ask
    made: str | None = await connection.fetchval(ADD, *what, MOST_ROUTES)
    if made is None:
        raise InvalidInput(f"There are {MOST_ROUTES} rules already.", "Remove one with `butlers routes remove`.")
    await record(connection, Event("route_made", "owner"), contact=by, route=made, butler=new.butler or NOBODY)
    return made


# The count would need to read the rules, and is bounded by what strangers can write.
BLOCK: Final = "INSERT INTO switchboard.routing_rules (channel, sender) VALUES ($1, $2) RETURNING id::text"


async def block(connection: Connection, channel: str, sender: str, by: str) -> str:
    """Let nothing of this sender's reach a butler or the owner from now on, and return the rule's id."""
    made = str(await connection.fetchval(BLOCK, channel, canonical(channel, sender)))
    await record(connection, Event("route_made", "owner"), contact=by, route=made, butler=NOBODY)
    return made


LIST: Final = """
SELECT id::text, butler, channel, sender, words, contact_id::text, may_ask, made_at,
    (SELECT name FROM shared.contacts WHERE id = contact_id) AS contact
FROM switchboard.routing_rules ORDER BY made_at, id
"""


async def routes(connection: Connection) -> list[Record]:
    """Return every rule, oldest first, which is the order in which they count."""
    return list(await connection.fetch(LIST))


REMOVE: Final = "DELETE FROM switchboard.routing_rules WHERE id = $1::text::uuid RETURNING id"


async def remove_route(connection: Connection, route_id: str, by: str) -> bool:
    """Remove a rule; what was routed by it stays where it went. Return false if it was gone."""
    if await connection.fetchval(REMOVE, route_id) is None:
        return False
    await record(connection, Event("route_removed", "owner"), contact=by, route=route_id)
    return True
