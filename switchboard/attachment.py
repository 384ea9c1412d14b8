"""The tool `fetch_attachment`: a butler's wish for a file goes on to the Messenger, which alone holds the channels."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import ValidationError

from butlers.butler import Context, Result, ToolCall
from butlers.daemon.discovery import kind_of
from butlers.refusals import note_refusal
from shared.contracts import AttachmentRequest, describe, wire
from shared.errors import ButlersError, Forbidden, InvalidInput, Unavailable
from switchboard.storage import inbox

# Files that one butler may wait for at once: each takes one of the calls that this daemon may have at the Messenger.
MOST_AT_ONCE: Final = 8


async def pass_on(context: Context, waiting: Counter[str], call: ToolCall) -> Result:
    """Ask the Messenger for a file in the name of whoever is proved to call, if its message went to that butler.

    `waiting` counts, by butler, what is asked for now.
    """
    timings = context.settings.timings
    try:
        asked = AttachmentRequest.model_validate(call.arguments)
        await _demand_own(context, asked, call.caller.name)
        wish = wire(asked.model_copy(update={"butler": call.caller.name}))
        wait = timings.attachment_wait + timings.switchboard_wait - timings.messenger_wait
        with _counted(waiting, call.caller.name):
            return Result(await context.daemons.call("messenger", "fetch_attachment", wish, wait))
    except ValidationError as wrong:
        failed: ButlersError = InvalidInput(describe(wrong))
    except ButlersError as refused:
        failed = refused
    return Result.refused(failed)


@contextmanager
def _counted(waiting: Counter[str], caller: str) -> Iterator[None]:
    if waiting[caller] >= MOST_AT_ONCE:
        raise Unavailable(f"You wait for {MOST_AT_ONCE} files already.", "Ask again when one of them has come.")
    waiting[caller] += 1
    try:
        yield
    finally:
        waiting[caller] -= 1


async def _demand_own(context: Context, asked: AttachmentRequest, caller: str) -> None:
    """Raise Forbidden, and note it in the audit, unless the message was routed to this very butler."""
    async with context.db.work() as connection:
        if kind_of(caller) == "butler" and await inbox.went_to(connection, asked.message_id, caller):
            return
    why = f"{caller} has no message {asked.message_id}."
    await note_refusal(context, caller, why)
    raise Forbidden(why)
