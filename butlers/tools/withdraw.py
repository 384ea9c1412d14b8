"""The core tool `withdraw`: take back what has not left yet, or a question to the owner that is still open."""

import time
from typing import Final

from butlers.butler import Answer, Arguments, Components, Context, Module, Result, Tool, ToolCall
from butlers.tools.ask_user import USE, question_of, stands
from butlers.tools.notification_status import OPEN, answered, id_of, own, wait_for_news
from shared import answers
from shared.contracts import NotifyResponse
from shared.db.pool import tell
from shared.errors import InvalidInput
from shared.storage import questions, withdrawals

WITHDRAW_DESCRIPTION: Final = (
    "Take back one of your notifications, or one of your questions to the owner. What is not being sent yet never goes "
    "out; anything else is answered as it stands."
)
PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "notification_id": {"type": "string", "description": "The notification_id that notify returned."},
        "question_id": {"type": "string", "description": "Instead, the question_id that ask_user returned."},
    },
}


def withdraw_tool(context: Context) -> Tool:
    """Make the tool as every butler has it."""

    async def withdraw(call: ToolCall) -> Result:
        return await answered(_withdraw(context, call.arguments))

    return Tool("withdraw", WITHDRAW_DESCRIPTION, PARAMETERS, withdraw)


async def _withdraw(context: Context, arguments: Arguments) -> NotifyResponse | Answer:
    if "question_id" in arguments:
        return await _question(context, question_of(arguments, {"question_id"}))
    notification_id = id_of(arguments, {"notification_id"})
    try:
        answer = await own(context, notification_id)
    except InvalidInput as unknown:
        return await _question(context, notification_id, unknown)
    if answer.status not in OPEN:
        return answer
    async with context.db.work() as connection:
        await withdrawals.want_back(connection, notification_id, context.name)
        await tell(connection, "cards")
    context.wakes["cards"]()
    deadline = time.monotonic() + context.settings.timings.withdraw_wait
    while True:
        ticket = context.wakes["settled"].ticket(notification_id)
        async with context.db.work() as connection:
            found = await withdrawals.result(connection, notification_id, context.name)
        answer = await own(context, notification_id)
        if answer.status not in OPEN:
            return answer
        if found == "being_sent":
            return answer.model_copy(update={"message": answers.ALREADY_BEING_SENT})
        if not await wait_for_news(context, ticket, deadline, context.settings.timings.withdraw_again):
            return answer.model_copy(update={"message": answers.WITHDRAWAL_NOTED})


async def _question(context: Context, question_id: str, unknown: InvalidInput | None = None) -> Answer:
    async with context.db.work() as connection:
        await questions.withdraw_question(connection, question_id, context.name)
        row = await questions.own_question(connection, question_id, context.name)
    if row is None:
        raise unknown or InvalidInput(f"You have no question '{question_id[:60]}'.", USE)
    context.wakes["cards"]()
    context.wakes["settled"](question_id)
    return stands(row)


MODULE: Final = Module("withdraw", lambda context, _: Components([withdraw_tool(context)]))
