"""What the scenarios share: contexts, contacts by SQL, and the rows a call leaves."""

from typing import Final
from uuid import UUID

from messenger.inbound import commands
from shared.db.pool import Record
from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.bench import OWNER
from tests.rig.fleet import Fleet
from tests.rig.waiting import eventually

# The contract's required fields of a request_context; `context` gives the optional ones too.
REQUIRED: Final = ("request_id", "source_channel", "source_endpoint_identity", "source_sender_identity")
CONTACT: Final = "INSERT INTO shared.contacts (name, roles) VALUES ($1, '{}') RETURNING id::text"
ENTRY: Final = "INSERT INTO shared.contact_info (contact_id, type, value, is_primary) VALUES ($1, $2, $3, $4)"
RULE: Final = """
INSERT INTO shared.approval_rules (tool_name, effect, arg_constraints) VALUES ('notify', 'allow', $1) RETURNING id::text
"""
# What becomes of a card after a press, at any time after the test that pressed it.
SHOWING: Final = ("answerCallbackQuery", "editMessageText", "editMessageReplyMarkup")
TRACES: Final = "SELECT (SELECT count(*) FROM shared.notifications) + (SELECT count(*) FROM shared.pending_actions)"


def context(request_id: str, message_id: int, chat: int = OWNER) -> dict[str, object]:
    """A NotifyRequestContextInput with all its fields, of a Telegram message."""
    return {
        "request_id": request_id,
        "source_channel": "telegram",
        "source_endpoint_identity": "1",
        "source_sender_identity": str(chat),
        "source_thread_identity": f"{chat}:{message_id}",
        "received_at": "2026-01-02T03:04:05+00:00",
    }


async def asked_by_the_owner(fleet: Fleet) -> int:
    """The number of a message of the owner's that the house has received."""
    question = fresh.words("question")
    number = await fleet.outside.say(OWNER, question)
    await eventually(lambda: fleet.sql("SELECT id FROM switchboard.inbox WHERE text = $1", question))
    return number


def without(given: dict[str, object], name: str) -> dict[str, object]:
    """The context, but for one field."""
    return {key: value for key, value in given.items() if key != name}


async def contact(fleet: Fleet, name: str, *entries: tuple[str, object, bool]) -> str:
    """A contact with `roles = []`, its (type, value, is_primary) entries put down in this order; its id."""
    contact_id = str(await fleet.value(CONTACT, name))
    for kind, value, primary in entries:
        await fleet.sql(ENTRY, UUID(contact_id), kind, str(value), primary)
    return contact_id


async def rule(fleet: Fleet, **constraints: object) -> str:
    """A standing rule that allows; its id."""
    return str(await fleet.value(RULE, constraints))


async def notification(fleet: Fleet, answer: Answer) -> Record:
    """The row an answer speaks of."""
    [row] = await fleet.sql("SELECT * FROM shared.notifications WHERE id = $1", UUID(str(answer["notification_id"])))
    return row


async def envelope(fleet: Fleet, answer: Answer) -> dict[str, object]:
    """The notify.v1 envelope that was constructed."""
    found = (await notification(fleet, answer))["envelope"]
    assert isinstance(found, dict)
    return found


async def action(fleet: Fleet, answer: Answer) -> Record:
    """The pending action an answer speaks of."""
    [row] = await fleet.sql("SELECT * FROM shared.pending_actions WHERE id = $1", UUID(str(answer["action_id"])))
    return row


async def actions_of(fleet: Fleet, answer: Answer) -> int:
    """How many pending actions were ever made for a notification."""
    number = await fleet.value(
        "SELECT count(*) FROM shared.pending_actions WHERE notification_id = $1", UUID(str(answer["notification_id"]))
    )
    assert isinstance(number, int)
    return number


def part(answer: Answer, name: str) -> dict[str, object]:
    """An object within an answer."""
    found = answer[name]
    assert isinstance(found, dict), answer
    return found


async def refused(fleet: Fleet, begins: str, **arguments: object) -> None:
    """The call is answered with exactly status and error, and leaves nothing behind."""
    before = await traces(fleet)
    answer = await fleet.notify(**arguments)
    assert set(answer) == {"status", "error"}, answer
    assert answer["status"] == "error"
    assert str(answer["error"]).startswith(begins), answer
    assert await traces(fleet) == before


async def traces(fleet: Fleet) -> tuple[object, int]:
    """How much has been written down and sent so far.

    What shows the end of an earlier question is no part of it, nor what the house answers to the owner who writes.
    """
    sent = [e for e in await fleet.outside.journal() if e.method not in SHOWING and commands.UNREAD not in e.text]
    return await fleet.value(TRACES), len(sent)
