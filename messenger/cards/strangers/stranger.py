"""The card about what somebody wrote whom no butler obeys: the words, and what the owner may do about them.

Whoever has the owner's reply to this card is answered by a butler, which asks the owner first. The buttons bind the
message and what they say.
"""

from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind, Press, Presser
from messenger.storage import cards
from messenger.storage.deliveries import Claimed
from messenger.storage.kinds import stranger_cards
from messenger.verdict import Authorized, Blocked
from shared.addresses import canonical
from shared.auth.mac import tag, tag_matches
from shared.channels import CHANNELS, realms
from shared.channels.email import SPEC as EMAIL
from shared.channels.telegram import Button
from shared.db.pool import Connection, Record
from shared.display.approval import local, titled, whom
from shared.display.conversation import ARRIVES_LATE, written_at
from shared.display.owner import Sheet
from shared.display.quotes import Quote
from shared.display.visible import in_line
from shared.errors import InvalidInput
from shared.model import Decision, Finding
from shared.storage import contacts, routing_rules
from shared.storage.turns import is_proved

ANSWER: Final = "sa"
ADD: Final = "sc"
IGNORE: Final = "si"
BLOCK: Final = "sb"
IN_DOUBT: Final = "Below it, which may be theirs or a quotation"
MARKED: Final = "What they marked, to answer it"
LABELS: Final = ((ANSWER, "Answer"), (ADD, "Add as contact"), (IGNORE, "Ignore"), (BLOCK, "Block"))
OF_ITS_KIND: Final = {
    "forward": "They forwarded somebody else's words.",
    "automatic": "A program of theirs sent it, or a list.",
    "edit": "They changed what they had written before.",
}
PLAYED: Final = "Written in the sandbox, where any program of this computer can write as anybody."
HOW: Final = (
    "Reply to this message with what to say. A butler writes the answer. It is sent if you approve it, or if a rule of "
    "yours allows it."
)
SAID: Final = {
    "waits": "",
    "answered": "You said what to answer. It is sent if you approve it, or if a rule of yours allows it.",
    "added": "Added to your contacts. Their words still begin no work.",
    "ignored": "Ignored.",
    "changed": "They have changed these words. The new ones come by themselves; answer those.",
    "blocked": "Blocked. Nothing more from this sender is shown to you or to a butler. `butlers routes list` shows the "
    "rule.",
}


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the card's wires as long as the owner has said nothing to these words."""
    row = await stranger_cards.one(connection, str(claimed.about))
    if row is None or row["stranger"] != "waits" or row["realm"] is None:
        return Blocked("cancelled", (Finding("answered", "Already dealt with."),))
    stopped = await base.elsewhere(connection, claimed, row["realm"], context)
    if stopped is not None:
        return stopped
    has_buttons = CHANNELS[claimed.channel].has_buttons
    title, shown = words(row, has_buttons=has_buttons)
    wires = await base.told(connection, claimed, title, shown)
    if has_buttons:
        wires = base.with_keyboard(wires, buttons(context.secret, row))
    return Authorized(wires, Decision("allow", (Finding(KIND.name, title),)))


def words(row: Record, *, has_buttons: bool) -> tuple[str, Sheet]:
    """Return title and text of what the owner is shown: every word of others is shown as data."""
    label = CHANNELS[row["channel"]].label
    proved = not row["is_played"] and is_proved(
        row["channel"], row["conversation"], row["sender"], vouched=row["verified"]
    )
    known = row["contact"] if row["contact"] and not row["from_owner"] else ""
    who = "Your contact" if known and proved else "A stranger" if proved else "Somebody unverified"
    title = f"{who} wrote to your butlers by {label}."
    lines = [title, f"From: {whom(row['channel'], known or row['display_name'] or '', row['sender'])}"]
    if group := CHANNELS[row["channel"]].address.group(row["conversation"] or ""):
        lines.append(f"Written in {group} ({in_line(row['conversation'])}): everybody in it reads what you answer.")
    if row["is_played"]:
        lines.append(PLAYED)
    if row["kind"] in OF_ITS_KIND:
        lines.append(OF_ITS_KIND[row["kind"]])
    written = written_at(row["observed"], row["received_at"]) or row["received_at"]
    if row["now"] - written > ARRIVES_LATE:
        lines.append(f"Written {local(written)}.")
    if row["files"]:
        lines.append(f"Files attached: {row['files']}.")
    kept = f"; it is kept for {in_line(titled(row['routed_to']))}" if row["routed_to"] else ""
    lines.append(f"No butler acts on it{kept}.")
    # INVARIANT: no word of others stands in a command that is printed: whoever pastes it into a shell would run it.
    block = f"To block the sender: butlers routes add nobody --message {row['id'][:8]}" if _names_somebody(row) else ""
    quotes = [Quote(row["text"] or "(no text)", "Message")]
    if row["left_out"]:
        quotes.append(Quote(row["left_out"], IN_DOUBT if row["channel"] == EMAIL.name else MARKED))
    return title, Sheet("\n".join(lines), tuple(quotes), HOW if has_buttons else block)


def buttons(secret: bytes, row: Record) -> list[list[Button]]:
    """Return the buttons: neither a contact nor a group can be added, and whom no address names cannot be blocked."""
    known = row["contact_id"] is not None or not CHANNELS[row["channel"]].address.is_private(row["sender"])
    never = {ADD} if known else set()
    never |= set() if _names_somebody(row) else {ADD, BLOCK}
    fits = [(verb, label) for verb, label in LABELS if verb not in never]
    made = [Button(label, base.packed(row["id"], verb, tag(secret, *_bound(row["id"], verb)))) for verb, label in fits]
    return [one for one in (made[:2], made[2:]) if one]


def _names_somebody(row: Record) -> bool:
    """Return whether its sender is an address of that channel; that of a mail may be unreadable."""
    try:
        return bool(canonical(row["channel"], row["sender"]))
    except InvalidInput:
        return False


def _bound(message_id: str, verb: str) -> tuple[str, ...]:
    return "stranger", message_id, verb


async def pressed(connection: Connection, press: Press, presser: Presser, context: Context) -> tuple[str, str]:
    """Carry out what the owner says to a stranger's words."""
    row = await stranger_cards.one(connection, press.about)
    if row is None or not tag_matches(context.secret, press.tag, *_bound(press.about, press.verb)):
        return base.STALE, base.NOT_VALID
    here = realms.realm_of(context.settings, "telegram")
    if not realms.may_decide("telegram", here, row["realm"] or ""):
        return base.NOT_HERE, realms.NOT_HERE
    if row["stranger"] != "waits":
        return "said_before", SAID[row["stranger"]]
    await cards.adopt(connection, KIND.name, press.about, 1, presser.message_id)
    if press.verb == ANSWER:
        return "how_to_answer", HOW
    try:
        said = await _carry_out(connection, row, press.verb, presser, here)
    except InvalidInput as unfit:
        return "not_done", str(unfit)
    # Of whom the owner adds the rest is still shown: no card may have said it yet.
    await stranger_cards.note_said(connection, row, said, of_sender=said == "blocked")
    return said, SAID[said]


async def _carry_out(connection: Connection, row: Record, verb: str, presser: Presser, here: str) -> str:
    """Do it, and return how the words stand now; raise InvalidInput, with nothing done, for what cannot be."""
    if verb == IGNORE:
        return "ignored"
    is_made_up = CHANNELS[row["channel"]].address.is_made_up(row["sender"])
    if here == realms.SANDBOX and (not is_made_up or await realms.is_played(connection, "telegram")):
        wrong = "This is the sandbox, and contacts and blocks count for live messages too."
        raise InvalidInput(wrong, "Use `butlers contacts` or `butlers routes`.")
    if verb == BLOCK:
        await routing_rules.block(connection, row["channel"], row["sender"], presser.contact_id)
        return "blocked"
    if row["contact_id"] is not None:
        raise InvalidInput("This sender is one of your contacts.")
    address = canonical(row["channel"], row["sender"])  # before anything is written
    made = await contacts.add_contact(connection, _name(row), [], surface="telegram")
    await contacts.add_address(connection, made, row["channel"], address, surface="telegram")
    return "added"


def _name(row: Record) -> str:
    """Return a name for a stranger: what they call themselves, if that can be a name and says nothing invisible."""
    said = " ".join((row["display_name"] or "").split())[: contacts.LONGEST_NAME]
    fits = said.isprintable() and any(one.isalpha() for one in said) and "@" not in said and in_line(said) == said
    return said if fits else f"Somebody ({CHANNELS[row['channel']].label} {row['sender'][-4:]})".replace("@", " ")


async def _outcome(_connection: Connection, card: Record) -> str:
    return SAID[card["stranger"]]


KIND: Final = CardKind(
    stranger_cards.KIND,
    authorize,
    stranger_cards.ask_strangers,
    {verb for verb, _ in LABELS},
    pressed,
    over=stranger_cards.strangers_over,
    outcome=_outcome,
)
