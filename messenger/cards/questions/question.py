"""The card that asks the owner what a butler asks, made from the question's row and only from it.

Its buttons bind the question, its words and the place of the choice. None of them approves anything.
"""

from datetime import timedelta
from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind, Press, Presser
from messenger.storage import cards
from messenger.storage.deliveries import Claimed
from messenger.storage.kinds import question_cards
from messenger.verdict import Authorized, Blocked
from shared.auth.mac import tag, tag_matches
from shared.channels import CHANNELS, realms
from shared.channels.telegram import Button
from shared.db.pool import Connection, Record, after_commit
from shared.display import question as display
from shared.display.approval import titled
from shared.display.owner import Sheet
from shared.display.quotes import Quote
from shared.hashing import digest
from shared.model import Decision, Finding
from shared.storage import notices, questions
from shared.storage.notices import Notice
from shared.storage.questions import Given

CHOICES: Final = tuple(f"q{n}" for n in range(10))
DISMISSED: Final = "qd"
ASKED_AGAIN: Final = "Asked again below."
BY_BUTTON: Final = "Answer with a button."
BY_WORDS: Final = "Answer with a button, or reply to this message in your own words."
IN_A_ROW: Final = 2
# A longer label has a row of its own, so that it can be read.
SHORT: Final = 16


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the card's wires as long as its question is open, else where the card goes instead."""
    row = await questions.one(connection, str(claimed.about))
    if row is None or not row["open"]:
        return Blocked("cancelled", (Finding("answered", "Already answered."),))
    stopped = await base.elsewhere(connection, claimed, row["realm"], context)
    if stopped is not None:
        return stopped
    head, where = display.asks(row["origin_butler"], row["id"]), base.link(context, "questions", row["id"])
    if not CHANNELS[claimed.channel].has_buttons:
        listed = Quote("\n".join(display.labels(row)), "Choices")
        foot = "\n".join([f"Answer here: {where}", *base.near(where), display.NOTHING_APPROVED])
        shown = Sheet(head, (*display.words(row), listed), foot, (where,))
        wires = await base.told(connection, claimed, f"{titled(row['origin_butler'])} asks you a question", shown)
    else:
        foot = f"{BY_WORDS if row['allow_text'] else BY_BUTTON} {display.NOTHING_APPROVED}"
        keys = [*buttons(context.secret, row), *base.opens(context, "questions", row["id"])]
        sheet = Sheet(head, display.words(row), foot)
        wires = base.with_keyboard(await base.told(connection, claimed, "", sheet), keys)
    return Authorized(wires, Decision("allow", (Finding("card", "A question to the owner."),)))


def buttons(secret: bytes, row: Record) -> list[list[Button]]:
    """Return a button for each choice, and Dismiss."""
    labels = display.labels(row)
    made = [
        Button(display.offered(label), _data(secret, row, verb)) for label, verb in zip(labels, CHOICES, strict=False)
    ]
    wide = 1 if any(len(label) > SHORT for label in labels) else IN_A_ROW
    rows = [made[n : n + wide] for n in range(0, len(made), wide)]
    return [*rows, [Button(display.DISMISS, _data(secret, row, DISMISSED))]]


def _data(secret: bytes, row: Record, verb: str) -> str:
    return base.packed(row["id"], verb, tag(secret, *_bound(row, verb)))


def _bound(row: Record, verb: str) -> tuple[str, ...]:
    return "question", row["id"], verb, digest("question.v1", row["title"], row["question"], *display.labels(row))


async def pressed(connection: Connection, press: Press, presser: Presser, context: Context) -> tuple[str, str]:
    """Write the owner's answer, if it is the first; its card shows the outcome as soon as that is committed."""
    row = await questions.one(connection, press.about)
    if row is None or not tag_matches(context.secret, press.tag, *_bound(row, press.verb)):
        return base.STALE, base.NOT_VALID
    if not realms.may_ask(realms.realm_of(context.settings, "telegram"), row["realm"]):
        return base.NOT_HERE, realms.NOT_HERE
    given = Given() if press.verb == DISMISSED else Given(CHOICES.index(press.verb))
    for revision in (1, 2):
        await cards.adopt(connection, KIND.name, press.about, revision, presser.message_id)
    return await write_answer(connection, row["id"], given, presser.contact_id, context)


async def write_answer(
    connection: Connection, question_id: str, given: Given, by: str, context: Context
) -> tuple[str, str]:
    """Write an answer that came by Telegram; return the outcome, and the words for the owner."""
    counts = await questions.answer(connection, question_id, given, "telegram", by)
    row = await questions.one(connection, question_id)
    said = display.what_became(row) if row is not None and not row["open"] else display.LATE
    if not counts:
        return "late", f"Not changed: {said}"
    for wake in (context.wakes["cards"], context.wakes["edits"], lambda: context.wakes["settled"](question_id)):
        after_commit(connection, wake)
    return "answered", said


async def outcome(connection: Connection, card: Record) -> str:
    """Return what became of the question that a card asked."""
    row = await questions.one(connection, card["about"])
    if row is None:
        return ""
    return ASKED_AGAIN if row["open"] else display.what_became(row)


async def tell_answers(connection: Connection, heard_for: timedelta) -> None:
    """End the questions that nobody answered in time, and tell butlers the answers that none of their calls took.

    What takes an answer says that it is told, in the same unit of work. INVARIANT: the notice's id is one that nobody
    knows before, or its butler could hold that number, and with it this round for all.
    """
    await questions.expire_questions(connection)
    for row in await questions.untold(connection, heard_for):
        told = Notice("owner", "answer", display.told_of_answer(row), row["id"], "owner", "high", wakes=True)
        await notices.add(connection, row["origin_butler"], told)


KIND: Final = CardKind(
    "question",
    authorize,
    question_cards.ask_questions,
    {*CHOICES, DISMISSED},
    pressed,
    over=question_cards.questions_over,
    outcome=outcome,
)
