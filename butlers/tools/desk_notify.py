"""The tool `desk_notify`: a question that opens a popup on the owner's screen, answered in the popup's own words.

It is a question like any other: it stands in Telegram and in the console too, and the first answer counts. Only where a
desk runs does a window open for it at once.
"""

from dataclasses import replace
from typing import Final

from mcp_types import TextContent

from butlers.butler import Components, Context, Result, Tool, ToolCall
from butlers.tools.ask_user import Waiting, awaited, write_question
from butlers.tools.notification_status import demand_known
from butlers.tools.question import LONGEST, LONGEST_QUESTION, LONGEST_TITLE, SHORTEST, STANDARD, accepted
from shared.db.pool import Record
from shared.errors import InvalidInput, Unavailable

DESCRIPTION: Final = (
    "Display a message in a popup window on the owner's screen and wait for a text in answer. The owner may answer in "
    "Telegram or in the console as well. An answer after the timeout comes to you as a notice. It approves nothing. "
    "Ask for no secret: what is answered is stored for thirty days."
)
PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_QUESTION,
            "description": "The message to display in the popup.",
        },
        "title": {"type": "string", "maxLength": LONGEST_TITLE, "description": "The window's title, after your name."},
        "timeout": {
            "type": "number",
            "minimum": SHORTEST,
            "maximum": LONGEST,
            "default": STANDARD,
            "description": "Seconds to wait for the answer.",
        },
    },
    "required": ["message"],
}
TITLE: Final = "A message"


def popups(context: Context) -> Components:
    """Make the tool for a butler that may open popups, and the loop that looks for their answers."""
    waiting = Waiting(context)

    async def desk_notify(call: ToolCall) -> Result:
        try:
            said, is_error = await _shown(context, waiting, call), False
        except (InvalidInput, Unavailable) as wrong:
            said, is_error = f"Error: {wrong}", True
        return Result(blocks=[TextContent(type="text", text=said)], is_error=is_error)

    return Components([Tool("desk_notify", DESCRIPTION, PARAMETERS, desk_notify, waits=True)], [waiting.look])


async def _shown(context: Context, waiting: Waiting, call: ToolCall) -> str:
    given = call.arguments
    demand_known(given, ("message", "title", "timeout"))
    if not str(given.get("message") or "").strip():
        raise InvalidInput("Message cannot be empty.")
    words = {"title": given.get("title") or TITLE, "question": given["message"], "timeout": given.get("timeout")}
    asked = accepted(context.new_id(), context.name, {**words, "wait_for_response": True, "allow_text": True})
    asked = replace(asked, question=replace(asked.question, popup=True))
    longest = LONGEST if call.streams else context.settings.timings.status_wait
    seconds = min(asked.waits or STANDARD, longest)
    await write_question(context, asked)
    return sentence(await awaited(context, waiting, call, asked.question.id, seconds), seconds)


def sentence(row: Record, seconds: float) -> str:
    """Return what the caller is told, in the words of the popup's contract."""
    if row["surface"] is None:
        return f"No response within {int(seconds) if float(seconds).is_integer() else seconds}s timeout"
    if row["typed"]:
        return f"User response: {row['choice']}"
    return "User dismissed the popup" if row["choice"] is None else "User submitted empty response"
