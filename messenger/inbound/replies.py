"""Answers in the owner's own words: a message in the owner's chat that replies to the card of a question."""

from collections.abc import Mapping
from typing import Final

from messenger.cards.questions import card
from messenger.channels.telegram import Call
from messenger.delivery.lease import Worker
from messenger.inbound import commands
from messenger.storage import question_cards
from shared.channels import realms
from shared.db.pool import Connection
from shared.display.question import LATE, LONGEST_ANSWER
from shared.storage import contacts, questions
from shared.storage.questions import Given

ONLY_BUTTONS: Final = "This question is answered by its buttons."
NO_WORDS: Final = "An answer is text of up to 10,000 characters."


async def question_of(connection: Connection, message: Mapping[str, object]) -> str | None:
    """Return the question that the owner answers by this message; None for any other message, and anybody else's."""
    answered, chat = message.get("reply_to_message"), message.get("chat")
    if not isinstance(answered, dict) or not isinstance(chat, dict) or commands.is_anothers(message):
        return None
    found = await question_cards.question_answered(connection, str(chat.get("id")), str(answered.get("message_id")))
    return found if found is not None and await commands.is_owners(connection, message) else None


async def answer(
    connection: Connection, worker: Worker, question_id: str, message: Mapping[str, object]
) -> tuple[str, list[Call]]:
    """Write the words down as the answer, if it is the first; return the outcome, and the call that says so."""
    row, owner = await questions.one(connection, question_id), await contacts.owner(connection)
    text = message.get("text")
    if row is None or owner is None:
        return "late", [commands.answer(message, LATE)]
    if not realms.may_ask(realms.realm_of(worker.context.settings, "telegram"), row["realm"]):
        return "command_not_here", [commands.answer(message, realms.NOT_HERE)]
    if row["open"] and not row["allow_text"]:
        return "not_a_choice", [commands.answer(message, ONLY_BUTTONS)]
    if not isinstance(text, str) or not 0 < len(text.strip()) <= LONGEST_ANSWER:
        return "not_a_choice", [commands.answer(message, NO_WORDS)]
    given = Given(text=text.strip())
    outcome, said = await card.answer(connection, question_id, given, owner["id"], worker.context)
    # A card that shows the answer says enough; one that showed another answer before does not.
    return outcome, [] if outcome == "answered" else [commands.answer(message, said)]
