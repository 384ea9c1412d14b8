"""Who the owner is, as the environment says it at each start."""

from shared.channels import CHANNELS, realms
from shared.config.settings import Settings
from shared.db.pool import Connection
from shared.errors import InvalidInput, Misconfigured
from shared.storage import contacts
from shared.storage.contacts import Recipient, Target, target_of

UNUSED = (
    "{name} is set to an address that is none of yours, and is not used, since you have another. Add it by `butlers "
    "contacts set`, or remove the variable."
)


async def ensure(connection: Connection, settings: Settings) -> list[str]:
    """Make the owner from the environment; in the sandbox invent one, whom live channels refuse.

    Return a sentence for each variable that is not used. INVARIANT: where the owner has an address on a channel, a
    variable adds none: it may name one that the owner has taken off.
    """
    given: dict[str, str | None] = {name: getattr(settings, f"owner_{name}", None) for name in CHANNELS}
    found = await contacts.owner(connection)
    if found is None:
        live = await _is_live(connection, settings)
        if not any(given.values()) and not settings.owner_name and live:
            return []
        contact_id = await _add_owner(connection, settings.owner_name or "Owner")
        if not any(given.values()) and not live:
            given = {name: spec.sandbox_owner for name, spec in CHANNELS.items()}
    else:
        contact_id = found["id"]
    unused = [await _give(connection, contact_id, kind, value) for kind, value in given.items() if value]
    return [said for said in unused if said]


async def _is_live(connection: Connection, settings: Settings) -> bool:
    """Return whether a channel reaches people: by these settings, or as the Messenger said when it last started."""
    found = {*realms.configured(settings).realms.values(), *(await realms.noted(connection)).values()}
    return found != {realms.SANDBOX}


async def _give(connection: Connection, contact_id: str, kind: str, value: str) -> str | None:
    """Give the owner the first address on a channel, in the place of an invented one; else say why not."""
    name, invented = f"BUTLERS_OWNER_{kind.upper()}", CHANNELS[kind].sandbox_owner
    try:
        have = await target_of(connection, Recipient("contact", contact_id), kind)
        if isinstance(have, Target) and have.address != invented:
            named = await target_of(connection, Recipient("recipient", value), kind)
            return None if named.contact_id == contact_id else UNUSED.format(name=name)
        await contacts.add_address(connection, contact_id, kind, value, surface="setup")
        if value != invented:
            await contacts.remove_address(connection, contact_id, kind, invented, surface="setup")
    except InvalidInput as unfit:
        raise Misconfigured(f"{name} is not valid: {unfit.message}", unfit.remedy) from None
    return None


async def _add_owner(connection: Connection, name: str) -> str:
    try:
        return await contacts.add_contact(connection, name, ["owner"], surface="setup")
    except InvalidInput as unfit:
        raise Misconfigured(f"BUTLERS_OWNER_NAME is not valid: {unfit.message}", unfit.remedy) from None
