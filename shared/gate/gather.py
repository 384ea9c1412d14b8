"""Stage 3, gather: everything the decision leans on, or an error if any of it cannot be read."""

from collections.abc import Iterable
from datetime import datetime

from shared.addresses import folded
from shared.db.pool import Connection, Record
from shared.errors import Unavailable
from shared.gate.decide import pins
from shared.model import Approval, Brake, Facts, Rule
from shared.storage import facts
from shared.storage.contacts import MissingIdentifier, Target
from shared.storage.rules import list_rules, rule_of


async def gather(
    connection: Connection,
    channel: str,
    notification_id: str,
    target: Target | MissingIdentifier,
    *,
    approval: bool = False,
    asked_at: datetime | None = None,
) -> Facts:
    """Read the realm, the brakes, the rules that may speak of the target, and what stands about it, if asked for.

    That is the owner's yes, and whether its butler has withdrawn it.

    Raises if any of them cannot be read. `asked_at` is None for what is asked now.
    """
    address = target.address if isinstance(target, Target) else None
    whom = (target.contact_id, address and folded(address))
    row = await facts.facts(connection, channel, notification_id, asked_at, whom, approval=approval)
    if row is None:
        raise Unavailable("The facts cannot be read.", "Try again in a moment.")
    rules = tuple(Rule(**fact) for fact in row["rules"])
    found = row.get("yes")
    yes = Approval(found["id"], found["content_sha"], tuple(found["wire_shas"] or ())) if found else None
    brakes = tuple(Brake(**fact) for fact in row["brakes"])
    realm, sender, restored = row["realm"] or "", row["sender"] or "", row["restored"]
    return Facts(
        realm=realm,
        rules=rules,
        approval=yes,
        brakes=brakes,
        sender=sender,
        restored=restored,
        is_played=row["is_played"] is True,
        wanted_back=row.get("wanted_back") is True,
    )


async def naming(connection: Connection, addresses: Iterable[str]) -> dict[str, list[Record]]:
    """Return of each address the rules in force that name it itself: whoever it belongs to, they go on."""
    rules = [row for row in await list_rules(connection) if row["active"]]
    return {one: [row for row in rules if pins(rule_of(row), one)] for one in addresses}
