"""The core tool `withdraw`: take back what has not left yet."""

import time
from typing import Final

from butlers.butler import Arguments, Components, Context, Module, Result, Tool, ToolCall
from butlers.tools.notification_status import ID, OPEN, answered, id_of, own, parameters, wait_for_news
from shared import answers
from shared.contracts import NotifyResponse
from shared.db.wake import tell
from shared.storage import withdrawals

WITHDRAW_DESCRIPTION: Final = (
    "Take back one of your notifications. What is not being sent yet never goes out; anything else is answered as "
    "it stands."
)


def withdraw_tool(context: Context) -> Tool:
    """Make the tool as every butler has it."""

    async def withdraw(call: ToolCall) -> Result:
        return await answered(_withdraw(context, call.arguments))

    return Tool("withdraw", WITHDRAW_DESCRIPTION, parameters(notification_id=ID), withdraw)


async def _withdraw(context: Context, arguments: Arguments) -> NotifyResponse:
    notification_id = id_of(arguments, {"notification_id"})
    answer = await own(context, notification_id)
    if answer.status not in OPEN:
        return answer
    async with context.db.work() as connection:
        await withdrawals.ask(connection, notification_id, context.name)
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


MODULE: Final = Module("withdraw", lambda context, _: Components([withdraw_tool(context)]))
