"""What a kind of card is, and what all cards have alike: where they go, their layout and their buttons.

A card is a view. It passes no gate, may come twice without harm, and each button binds what it says by a tag that only
the Messenger can make.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from urllib.parse import urlsplit
from uuid import UUID

from butlers.butler import Context
from messenger.channels.telegram import TelegramChannel
from messenger.storage import queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.channels import realms
from shared.channels.base import Message, Wire
from shared.channels.telegram import Button, with_buttons
from shared.config.settings import is_loopback
from shared.config.timings import Timings
from shared.db.pool import Connection, Record
from shared.display import owner
from shared.display.owner import Sheet
from shared.model import Finding
from shared.storage.resolutions import Outcome, Resolution

# What came of a press that did nothing, as the audit knows it.
STALE: Final = "stale"
NOT_HERE: Final = "not_here"
NEAR: Final = "Links to the console open only on the computer that runs Butlers."
NOT_VALID: Final = "This button is no longer valid."


@dataclass(frozen=True, slots=True)
class Press:
    """A button's data, read but not yet believed; `about` is the id of an action, or of what is uncertain."""

    about: str
    verb: str
    tag: str


@dataclass(frozen=True, slots=True)
class Presser:
    """The owner who pressed, and on which message."""

    contact_id: str
    message_id: str
    # Carries out a word on what may have arrived, which is the work of a loop above all cards.
    resolve: Callable[[Connection, Resolution, str, Context], Awaitable[Outcome | None]]


Refresh: TypeAlias = Callable[[Context, TelegramChannel], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class CardKind:
    """A kind of card: what the rows say is to be asked or told, how it is written, and what follows from it."""

    # As the rows of its cards say it, in `card_kind`.
    name: str
    # Return the wires of a claimed card as it would be written now, buttons and all, or why it is not needed any more.
    authorize: Callable[[Connection, Claimed, Context], Awaitable[Authorized | Blocked]]
    # Queue the cards that are missing, a butler's burst being so many, and return how many; None where whoever finds
    # something to tell queues its card at once.
    ask: Callable[[Connection, int, Timings], Awaitable[int]] | None = None
    # What its buttons say; each verb is one kind's only.
    verbs: Collection[str] = ()
    # Carry out a press by the owner if its tag is genuine; return the outcome, and the words for the owner.
    pressed: Callable[[Connection, Press, Presser, Context], Awaitable[tuple[str, str]]] | None = None
    # Return the cards in Telegram that are over and still show their buttons, and what became of one.
    over: Callable[[Connection], Awaitable[list[Record]]] | None = None
    outcome: Callable[[Connection, Record], Awaitable[str]] | None = None
    # Return the cards whose list is to be looked at; edit those that list what has changed, and return how many.
    stale: Callable[[Connection, Context], Awaitable[list[Record]]] | None = None
    refresh: Refresh | None = None


async def elsewhere(connection: Connection, claimed: Claimed, about: str, context: Context) -> Blocked | None:
    """Return why the card cannot go where it was to go; None if the owner is still asked there. `about` is a realm."""
    realm = realms.realm_of(context.settings, claimed.channel)
    if not realms.may_ask(realm, about):
        return Blocked("cancelled", (Finding("sandbox", "Live messages are not shown in the sandbox."),))
    address = await queries.owner_at(connection, claimed.channel)
    if address is None:
        return Blocked("cancelled", (Finding("nobody_there", "The owner has no address on this channel."),))
    if (address, realm) != (claimed.address, claimed.realm):
        changed = Finding("address_changed", "The owner's address, or the account there, changed.")
        return Blocked("moved", (changed,), address=address, realm=realm)
    return None


async def mailed(
    connection: Connection, claimed: Claimed, subject: str, shown: Sheet, what: str, where: str
) -> tuple[Wire, ...]:
    """Return the card as a mail, in which nothing can be decided and which says what is done where."""
    below = "\n".join(filter(None, [f"{what}: {where}", *near(where), shown.foot]))
    return await told(connection, claimed, subject, replace(shown, foot=below))


async def told(connection: Connection, claimed: Claimed, subject: str, shown: Sheet) -> tuple[Wire, ...]:
    """Return a message of the house to the owner, by the channel of the delivery."""
    sender = await realms.sender(connection, claimed.channel)
    to, created_at = claimed.address, claimed.created_at
    message = Message(claimed.id, claimed.channel, "send", to, "", subject, sender=sender, created_at=created_at)
    return owner.by_house(message, shown)


def with_keyboard(wires: tuple[Wire, ...], keyboard: list[list[Button]]) -> tuple[Wire, ...]:
    """Return the same messages with the buttons on the last."""
    return (*wires[:-1], with_buttons(wires[-1], keyboard))


def packed(about: str, verb: str, seal: str) -> str:
    """Return a button's data: what it is about, what it says, and the tag that makes it ours."""
    short = urlsafe_b64encode(UUID(about).bytes).decode().rstrip("=")
    return f"a1:{short}:{verb}:{seal}"


def read(text: str, verbs: Collection[str]) -> Press | None:
    """Return the press in a button's data; None for what was never a button of ours with one of these verbs."""
    pieces = text.split(":")
    if len(pieces) != 4 or pieces[0] != "a1" or pieces[2] not in verbs or len(pieces[1]) != 22:  # noqa: PLR2004
        return None
    try:
        about = str(UUID(bytes=urlsafe_b64decode(pieces[1] + "==")))
    except ValueError:
        return None
    return Press(about, pieces[2], pieces[3])


def opens(context: Context, *page: str) -> list[list[Button]]:
    """Return the button that opens a page of the console; none where Telegram takes no link to it."""
    return [[Button("Open", url=link(context, *page))]] if can_be_opened(context.settings.public_url or "") else []


def can_be_opened(url: str) -> bool:
    """Return whether Telegram takes a link to there: by https, and to a name or an address that is not this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "https" and "." in host and not host.startswith("127.") and not host.endswith(".localhost")


def near(url: str) -> list[str]:
    """Return the line that says from where a link of ours opens; none where it opens from everywhere.

    INVARIANT: no link to this computer goes to a phone without it.
    """
    return [] if not is_loopback(urlsplit(url).hostname or "") else [NEAR]


def link(context: Context, *page: str) -> str:
    """Return the address of a page of the console."""
    settings = context.settings
    base = settings.public_url or f"http://{settings.reached_at}:{settings.port_base + 2}"
    return "/".join([base, *page])
