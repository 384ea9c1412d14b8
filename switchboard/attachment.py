"""The tool `fetch_attachment`: a butler's wish for a file goes on to the Messenger, which alone holds the channels."""

from pydantic import ValidationError

from butlers.butler import Context, Result, ToolCall
from butlers.daemon.discovery import kind_of
from shared.contracts import AttachmentRequest, describe, wire
from shared.errors import ButlersError, Forbidden, InvalidInput
from switchboard.route import refuse
from switchboard.storage import inbox


async def pass_on(context: Context, call: ToolCall) -> Result:
    """Ask the Messenger for a file in the name of whoever is proved to call, if its message went to that butler."""
    timings = context.settings.timings
    try:
        asked = AttachmentRequest.model_validate(call.arguments)
        await _demand_own(context, asked, call.caller.name)
        wish = wire(asked.model_copy(update={"butler": call.caller.name}))
        wait = timings.attachment_wait + timings.switchboard_wait - timings.messenger_wait
        return Result(await context.daemons.call("messenger", "fetch_attachment", wish, wait))
    except ValidationError as wrong:
        failed: ButlersError = InvalidInput(describe(wrong))
    except ButlersError as refused:
        failed = refused
    return Result.refused(failed)


async def _demand_own(context: Context, asked: AttachmentRequest, caller: str) -> None:
    """Raise Forbidden, and note it in the audit, unless the message was routed to this very butler."""
    async with context.db.work() as connection:
        if kind_of(caller) == "butler" and await inbox.went_to(connection, asked.message_id, caller):
            return
        why = f"{caller} has no message {asked.message_id}."
        await refuse(connection, context.name, caller, why)
    raise Forbidden(why)
