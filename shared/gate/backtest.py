"""Past notifications as the actions they would be today: the material for a standing rule's backtest."""

from pydantic import ValidationError

from shared.contracts import NotifyEnvelope
from shared.db.pool import Connection
from shared.errors import InvalidInput, Misconfigured
from shared.gate.resolve import action_of, resolve
from shared.storage import rules
from shared.storage.contacts import MissingIdentifier, Whom
from shared.storage.rules import Past


async def actions(connection: Connection) -> list[Past]:
    """Return the last thousand notifications, oldest first, without those for nobody now or that cannot be read."""
    found = []
    for row in reversed(await rules.past(connection)):
        try:
            envelope = NotifyEnvelope.model_validate(row["envelope"])
            target = await resolve(connection, envelope, Whom.parse(row["whom"]))
        except (InvalidInput, Misconfigured, ValidationError):
            continue
        if not isinstance(target, MissingIdentifier):
            action = action_of(envelope, target, row["realm"], row["admitted_by"])
            found.append(Past(row["id"], row["created_at"], row["status"], envelope.delivery.message, action))
    return found
