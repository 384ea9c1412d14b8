"""Cards that show and ask the owner about a pending action, made from its row and only from it.

A card is a view. It passes no gate, may come twice without harm, and its buttons bind id, revision, verb and content by
a tag that only the Messenger can make.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from butlers.butler import Ground
from messenger.storage import queries
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.auth.mac import tag, tag_matches
from shared.channels import realms
from shared.channels.base import Message, Wire
from shared.channels.telegram import Button, with_buttons
from shared.db.pool import Connection, Record
from shared.display import approval, owner
from shared.display.approval import Asked
from shared.display.owner import Said, Sheet
from shared.gate.approval_request import asked
from shared.model import Decision, Finding
from shared.storage import pending_actions
from shared.storage.pending_actions import Revision, Why

VERBS: Final = {"ok": "approved", "no": "denied"}
STALE: Final = "stale"
NOT_VALID: Final = "This button is no longer valid."


@dataclass(frozen=True, slots=True)
class Press:
    """A button's data, read but not yet believed; `about` is the id of an action, or of what is uncertain."""

    about: str
    verb: str
    tag: str


async def check(connection: Connection, claimed: Claimed, ground: Ground) -> Authorized | Blocked:
    """Return the card's wires as long as its action waits in this revision, else where the card goes instead."""
    action = await pending_actions.open_action(connection, str(claimed.action_id))
    if action is None or action["status"] != "pending" or action["revision"] != claimed.revision:
        return Blocked("cancelled", (Finding("answered", "The question is answered."),))
    stopped = await elsewhere(connection, claimed, action["realm"], ground)
    if stopped is not None:
        return stopped
    question = await asked(connection, action)
    # What lacked an address binds nothing yet: its identifier, once added, is asked about anew.
    if action["content_sha"] not in {None, question.content_sha}:
        return await _ask_anew(connection, action, question, ground)
    wires = await _wires(connection, claimed, action, question, ground)
    return Authorized(wires, Decision("allow", (Finding("card", "A question to the owner."),)))


async def _ask_anew(connection: Connection, action: Record, question: Asked, ground: Ground) -> Blocked:
    """Ask the question in a new revision and cancel this card.

    INVARIANT: a button binds what its card shows, and not a hash that somebody else wrote beside the question.
    """
    why, ttl = "What would go out is not what was asked.", ground.settings.approval_ttl
    kept, said = action["tool_args"], action["agent_summary"]
    anew = Revision(action["id"], action["revision"], question.content_sha, kept, ttl, said)
    await pending_actions.revise(connection, anew, Why("messenger", why))
    return Blocked("cancelled", (Finding("changed", why),))


async def elsewhere(connection: Connection, claimed: Claimed, about: str, ground: Ground) -> Blocked | None:
    """Return why the card cannot go where it was to go; None if the owner is still asked there. `about` is a realm."""
    if not realms.may_ask(realms.realm_of(ground.settings, claimed.channel), about):
        return Blocked("cancelled", (Finding("sandbox", "Nothing live is shown in the sandbox."),))
    address = await queries.owner_at(connection, claimed.channel)
    if address is None:
        return Blocked("cancelled", (Finding("nobody_there", "The owner has no address here."),))
    if address != claimed.address:
        return Blocked("moved", (Finding("address_changed", "The owner's address changed."),), address=address)
    return None


async def last_words(connection: Connection, action: Record, ground: Ground) -> Said:
    """Return the message that carries the buttons, as the card would be written now."""
    return owner.bubbles(sheet(await asked(connection, action), action["id"], ground))[-1]


def sheet(question: Asked, action_id: str, ground: Ground) -> Sheet:
    """Return the question as a message: what is asked above and below the words that would go out."""
    head, where = approval.head(question), ""
    if not question.deliverable:
        unknown = not question.address
        where = link(ground, *(("contacts", question.contact_id) if unknown else ("approvals", action_id)))
        head.append(f"{'Add it' if unknown else 'Edit or deny it'} here: {where}")
    return Sheet("\n".join(head), approval.quotes(question), "\n".join(approval.foot(question)), where)


async def _wires(
    connection: Connection, claimed: Claimed, action: Record, question: Asked, ground: Ground
) -> tuple[Wire, ...]:
    shown = sheet(question, action["id"], ground)
    if claimed.channel == "email":
        subject = f"{question.origin} asks: may this go out?"
        return await mailed(connection, claimed, subject, shown, link(ground, "approvals", action["id"]))
    wires = await told(connection, claimed, "", shown)
    return with_keyboard(wires, buttons(ground.secret, action, can_approve=question.deliverable))


async def mailed(connection: Connection, claimed: Claimed, subject: str, shown: Sheet, where: str) -> tuple[Wire, ...]:
    """Return the card as a mail, in which nothing can be decided and which says where that is done."""
    below = "\n".join(filter(None, [f"Decide here: {where}", shown.foot]))
    return await told(connection, claimed, subject, replace(shown, foot=below))


async def told(connection: Connection, claimed: Claimed, subject: str, shown: Sheet) -> tuple[Wire, ...]:
    """Return a message of the house to the owner, by the channel of the delivery."""
    sender = await realms.sender(connection) if claimed.channel == "email" else ""
    to, created_at = claimed.address, claimed.created_at
    message = Message(claimed.id, claimed.channel, "send", to, "", subject, sender=sender, created_at=created_at)
    return owner.by_house(message, shown)


def with_keyboard(wires: tuple[Wire, ...], keyboard: list[list[Button]]) -> tuple[Wire, ...]:
    """Return the same messages with the buttons on the last."""
    return (*wires[:-1], with_buttons(wires[-1], keyboard))


def buttons(secret: bytes, action: Record, *, can_approve: bool) -> list[list[Button]]:
    """Return the buttons Approve and Deny; only Deny where nothing could be delivered."""
    row = [Button("Approve", data(secret, action, "ok"))] if can_approve else []
    return [[*row, Button("Deny", data(secret, action, "no"))]]


def data(secret: bytes, action: Record, verb: str) -> str:
    """Return a button's data, `a1:<id22>:<verb>:<tag22>`, at most 64 bytes."""
    return packed(action["id"], verb, _tag(secret, action, verb))


def packed(about: str, verb: str, seal: str) -> str:
    """Return a button's data: what it is about, what it says, and the tag that makes it ours."""
    short = urlsafe_b64encode(UUID(about).bytes).decode().rstrip("=")
    return f"a1:{short}:{verb}:{seal}"


def _tag(secret: bytes, action: Record, verb: str) -> str:
    return tag(secret, "card", action["id"], str(action["revision"]), verb, action["content_sha"] or "")


def read(text: str, verbs: Collection[str] = frozenset(VERBS)) -> Press | None:
    """Return the press in a button's data; None for what was never a button of ours with one of these verbs."""
    pieces = text.split(":")
    if len(pieces) != 4 or pieces[0] != "a1" or pieces[2] not in verbs or len(pieces[1]) != 22:  # noqa: PLR2004
        return None
    try:
        about = str(UUID(bytes=urlsafe_b64decode(pieces[1] + "==")))
    except ValueError:
        return None
    return Press(about, pieces[2], pieces[3])


def genuine(secret: bytes, action: Record, press: Press) -> bool:
    """Return whether this button was made for this action as it stands now."""
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
    """Return the address of a page of the console."""
    base = ground.settings.public_url or f"http://127.0.0.1:{ground.settings.port_base + 2}"
    return "/".join([base, *page])
