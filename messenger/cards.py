"""Cards: what the owner is shown and asked, made from the pending action's row and only from it.

A card is a view. It passes no gate, may come twice without harm, and its buttons bind id, revision, verb
and content by a tag that only the Messenger can make.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from butlers.aim import aim, going
from butlers.butler import Ground
from butlers.judge import marking
from messenger import views
from messenger.check import Cleared, Stopped
from messenger.store import Claimed
from shared import approvals, notifications, realms
from shared.auth import tag, tag_matches
from shared.contracts import NotifyEnvelope
from shared.db import Connection, Record
from shared.errors import InvalidInput, Misconfigured
from shared.identity import MissingIdentifier, Target, UnknownContact, Whom
from shared.keys import short
from shared.policy import Decision, Finding
from shared.render import Message, Wire, email
from shared.render.telegram import Button, render, split, utf16_units, with_buttons
from shared.render.visible import in_line, quoted, said

VERBS: Final = {"ok": "approved", "no": "denied"}
STALE: Final = "stale"
NOT_VALID: Final = "This button is no longer valid."
ROOM: Final = 4096
CHANNEL_NAMES: Final = {"telegram": "Telegram", "email": "e-mail"}


@dataclass(frozen=True, slots=True)
class Press:
    """A button's data, read but not yet believed; `about` is the id of an action, or of what is uncertain."""

    about: str
    verb: str
    tag: str


async def check(connection: Connection, claimed: Claimed, ground: Ground) -> Cleared | Stopped:
    """The card's wires, as long as its action waits in this revision."""
    action = await approvals.open_action(connection, str(claimed.action_id))
    if action is None or action["status"] != "pending" or action["revision"] != claimed.revision:
        return Stopped("cancelled", (Finding("answered", "The question is answered."),))
    stopped = await elsewhere(connection, claimed, action["realm"], ground)
    if stopped is not None:
        return stopped
    wires = await _wires(connection, claimed, action, ground)
    return Cleared(wires, Decision("allow", (Finding("card", "A question to the owner."),)))


async def elsewhere(connection: Connection, claimed: Claimed, about: str, ground: Ground) -> Stopped | None:
    """Why the card cannot go where it was to go, if the owner is not asked there any more; `about` is a realm."""
    if not realms.may_ask(realms.realm_of(ground.settings, claimed.channel), about):
        return Stopped("cancelled", (Finding("sandbox", "Nothing live is shown in the sandbox."),))
    address = await views.owner_at(connection, claimed.channel)
    if address is None:
        return Stopped("cancelled", (Finding("nobody_there", "The owner has no address here."),))
    if address != claimed.address:
        return Stopped("moved", (Finding("address_changed", "The owner's address changed."),), address=address)
    return None


async def last_words(connection: Connection, action: Record, ground: Ground) -> str:
    """The text of the part that carries the buttons, as the card would be written now."""
    _, _, text = await _asked(connection, action, ground)
    return bodies(text)[-1]


async def _asked(
    connection: Connection, action: Record, ground: Ground
) -> tuple[NotifyEnvelope, Target | MissingIdentifier, tuple[str, str]]:
    envelope = notifications.envelope_of(action)
    target = await _target(connection, envelope, action["whom"])
    head, text = card_text(going(envelope, target), target, action)
    if isinstance(target, MissingIdentifier):
        head = f"{head}\nAdd it here: {link(ground, 'contacts', target.contact_id)}"
    elif not target.deliverable:
        head = f"{head}\nEdit or deny it here: {link(ground, 'approvals', action['id'])}"
    return envelope, target, (head, text)


async def _target(connection: Connection, envelope: NotifyEnvelope, whom: str) -> Target | MissingIdentifier:
    """Whom it is for; where what the owner has on file is of no use, nobody who could be sent to.

    Raises InvalidInput where the row itself names nobody.
    """
    meant = Whom.parse(whom)
    try:
        return await aim(connection, envelope, meant)
    except UnknownContact:
        raise
    except (InvalidInput, Misconfigured):
        return Target("no identifier that could be used", deliverable=False)


async def _wires(connection: Connection, claimed: Claimed, action: Record, ground: Ground) -> tuple[Wire, ...]:
    envelope, target, text = await _asked(connection, action, ground)
    if claimed.channel == "email":
        subject = f"{envelope.origin_butler} asks: may this go out?"
        return await mailed(connection, claimed, subject, text, link(ground, "approvals", action["id"]))
    can_approve = isinstance(target, Target) and target.deliverable
    return telegram_card(claimed, text, buttons(ground.secret, action, can_approve=can_approve))


async def mailed(
    connection: Connection, claimed: Claimed, subject: str, text: tuple[str, str], where: str
) -> tuple[Wire, ...]:
    """The card as a mail, which decides nothing and says where that is done."""
    return await told(connection, claimed, subject, f"{text[0]}\n\n{text[1]}\n\nDecide here: {where}")


async def told(connection: Connection, claimed: Claimed, subject: str, body: str) -> tuple[Wire, ...]:
    """Words to the owner that ask nothing, by the channel of the delivery."""
    by_mail = claimed.channel == "email"
    sender = await realms.sender(connection) if by_mail else ""
    to, created_at = claimed.address, claimed.created_at
    message = Message(claimed.id, claimed.channel, "send", to, body, subject, sender=sender, created_at=created_at)
    return email.render(message) if by_mail else render(message)


def telegram_card(claimed: Claimed, text: tuple[str, str], keyboard: list[list[Button]]) -> tuple[Wire, ...]:
    """One message if it fits, else the whole text before it in numbered parts and the buttons on the last."""
    wires = [
        wire for body in bodies(text) for wire in render(Message(claimed.id, "telegram", "send", claimed.address, body))
    ]
    return (*wires[:-1], with_buttons(wires[-1], keyboard))


def bodies(text: tuple[str, str]) -> list[str]:
    """Head and quoted text as the messages they make."""
    head, below = text
    together = f"{head}\n\n{below}"
    return [together] if utf16_units(together) <= ROOM else [*numbered(below), f"{head}\n\n(Its text stands above.)"]


def numbered(text: str) -> list[str]:
    """A quoted text in parts that say which of how many they are; nothing is cut, and all of it stays a quotation."""
    first, *rest = split(text, ROOM - 20)
    parts = [first, *(part if part.startswith("> ") else f"> {part}" for part in rest)]
    return [f"({n}/{len(parts)})\n{part}" for n, part in enumerate(parts, start=1)]


def card_text(envelope: NotifyEnvelope, target: Target | MissingIdentifier, action: Record) -> tuple[str, str]:
    """What is asked, and the whole text: every word of others is shown as data, hidden characters visible.

    Of the action it reads admitted_by, agent_summary, expires_at and content_sha.
    """
    delivery = envelope.delivery
    name = target.contact_name or "unknown"
    address = target.address if isinstance(target, Target) else "no identifier on file"
    lines = [
        f"{envelope.origin_butler} wants to {delivery.intent} by {CHANNEL_NAMES[delivery.channel]}",
        f"To: {in_line(name)} ({in_line(address)})",
    ]
    if mark := marking(envelope.origin_butler, action["admitted_by"]):
        lines.insert(1, mark)
    if delivery.subject:
        lines.append(f"Subject: {in_line(delivery.subject)}")
    if delivery.emoji:
        lines.append(f"Emoji: {in_line(delivery.emoji)}")
    why, until = said(action["agent_summary"]), f"{action['expires_at']:%Y-%m-%d %H:%M} UTC"
    lines += [f"Why asked, as {envelope.origin_butler} says: {why}", f"Until: {until}"]
    lines.append(f"Length: {len(delivery.message)} characters, hash {in_line(short(action['content_sha']))}")
    return "\n".join(lines), f"Text:\n{quoted(delivery.message)}"


def buttons(secret: bytes, action: Record, *, can_approve: bool) -> list[list[Button]]:
    """Approve and Deny; only Deny where nothing could be delivered."""
    row = [Button("Approve", data(secret, action, "ok"))] if can_approve else []
    return [[*row, Button("Deny", data(secret, action, "no"))]]


def data(secret: bytes, action: Record, verb: str) -> str:
    """`a1:<id22>:<verb>:<tag22>`, at most 64 bytes."""
    return packed(action["id"], verb, _tag(secret, action, verb))


def packed(about: str, verb: str, seal: str) -> str:
    """A button's data: what it is about, what it says, and the tag that makes it ours."""
    short = urlsafe_b64encode(UUID(about).bytes).decode().rstrip("=")
    return f"a1:{short}:{verb}:{seal}"


def _tag(secret: bytes, action: Record, verb: str) -> str:
    return tag(secret, "card", action["id"], str(action["revision"]), verb, action["content_sha"] or "")


def read(text: str, verbs: Collection[str] = frozenset(VERBS)) -> Press | None:
    """A press, or None for anything that was never a button of ours with one of these verbs."""
    pieces = text.split(":")
    if len(pieces) != 4 or pieces[0] != "a1" or pieces[2] not in verbs or len(pieces[1]) != 22:  # noqa: PLR2004
        return None
    try:
        about = str(UUID(bytes=urlsafe_b64decode(pieces[1] + "==")))
    except ValueError:
        return None
    return Press(about, pieces[2], pieces[3])


def genuine(secret: bytes, action: Record, press: Press) -> bool:
    """Whether this button was made for this action as it stands now."""
    return tag_matches(
        secret,
        press.tag,
        "card",
        action["id"],
        str(action["revision"]),
        press.verb,
        action["content_sha"] or "",
    )


def link(ground: Ground, *page: str) -> str:
    """A page of the console."""
    base = ground.settings.public_url or f"http://127.0.0.1:{ground.settings.port_base + 2}"
    return "/".join([base, *page])
