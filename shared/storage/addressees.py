"""Whom a message went to, or would go to now, as the house knows it: what its butler wrote down is not believed."""

from dataclasses import dataclass

from shared.db.pool import Connection
from shared.errors import InvalidInput, Misconfigured
from shared.storage.contacts import MissingIdentifier, Recipient, Target, target_of


@dataclass(frozen=True, slots=True)
class Addressee:
    """An address and the contact that has it today; what is not known is empty."""

    name: str = ""
    address: str = ""
    contact_id: str = ""
    is_owner: bool = False

    def __str__(self) -> str:
        """Return the text for a line of ours; words of others in it are not yet made visible."""
        return f"{self.name or 'unknown'} ({self.address or 'no address on file'})"


async def addressee(connection: Connection, whom: str, channel: str, sent_to: str | None = None) -> Addressee:
    """Return who has the address `sent_to`, which the Messenger wrote; without one, what `whom` resolves to now."""
    try:
        meant = Recipient.parse(whom) if sent_to is None else Recipient("recipient", sent_to)
        return found(await target_of(connection, meant, channel))
    except (InvalidInput, Misconfigured):
        return Addressee(address=sent_to or "")


def found(target: Target | MissingIdentifier) -> Addressee:
    """Return the recipient of a target that was resolved before."""
    if isinstance(target, MissingIdentifier):
        return Addressee(target.contact_name, "", target.contact_id)
    return Addressee(target.contact_name or "", target.address, target.contact_id or "", is_owner=target.is_owner)
