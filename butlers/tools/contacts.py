"""The core tool `contacts`: whom a butler can write to, by name; read only, and without an address."""

from typing import Final

from butlers.butler import Arguments, Components, Context, Module, Result, Tool, ToolCall
from shared.errors import InvalidInput, Unavailable
from shared.storage import contacts

DESCRIPTION: Final = (
    "Find people by a part of their name. Answers with each one's contact_id, name and channels; notify takes the "
    "contact_id, or the whole name as recipient."
)
MOST: Final = 50
LONGEST: Final = 200
PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "search": {"type": "string", "maxLength": LONGEST, "description": "A part of the name; all contacts without."}
    },
}


def contacts_tool(context: Context) -> Tool:
    """Make the tool as every butler has it."""

    async def find(call: ToolCall) -> Result:
        try:
            words = _words(call.arguments)
            async with context.db.work() as connection:
                found = await contacts.search(connection, words, MOST + 1)
        except (InvalidInput, Unavailable) as wrong:
            return Result({"status": "error", "error": str(wrong)})
        return Result({"status": "ok", "contacts": [dict(row) for row in found[:MOST]], "more": len(found) > MOST})

    return Tool("contacts", DESCRIPTION, PARAMETERS, find, read_only=True)


def _words(arguments: Arguments) -> str:
    words = arguments.get("search") or ""
    if not isinstance(words, str) or len(words) > LONGEST or not (words.isprintable()):
        raise InvalidInput(f"'search' is no text of at most {LONGEST} characters.", "Give a part of a name.")
    return words


MODULE: Final = Module("contacts", lambda context, _: Components([contacts_tool(context)]))
