"""The module `sessions`: a butler's agent looks at the sessions of its own butler."""

from datetime import datetime
from typing import Final
from uuid import UUID

from butlers.butler import Answer, Components, Context, Module, NoConfig, Result, Tool, ToolCall
from shared.db.pool import Record
from shared.errors import InvalidInput
from shared.storage import session_list, session_steps

MOST: Final = 50
NONE: Final = {"type": "object", "properties": {}}
BY_ID: Final = {
    "type": "object",
    "properties": {"id": {"type": "string", "format": "uuid", "description": "The session's id."}},
    "required": ["id"],
}


def build(context: Context, _: NoConfig) -> Components:
    """Make the two tools, which see the sessions of this butler alone."""

    async def list_sessions(_: ToolCall) -> Result:
        async with context.db.work() as connection:
            rows = await session_list.newest(connection, context.name, MOST)
        return Result({"sessions": [_told(row) for row in rows]})

    async def session_show(call: ToolCall) -> Result:
        session_id = _id(call.arguments.get("id"))
        async with context.db.work() as connection:
            row = await session_list.one(connection, session_id)
            steps = await session_steps.of(connection, session_id)
        if row is None or row["butler"] != context.name:
            raise InvalidInput("There is no such session of this butler.", "`session_list` shows those there are.")
        return Result({**_told(row), "steps": [_json(step) for step in steps]})

    return Components(
        [
            Tool("session_list", "List this butler's last sessions.", NONE, list_sessions, read_only=True),
            Tool("session_show", "Show one session and its steps.", BY_ID, session_show, read_only=True),
        ]
    )


def _told(row: Record) -> Answer:
    return {name: _plain(value) for name, value in session_list.as_object(row).items()}


def _json(row: Record) -> Answer:
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _id(given: object) -> str:
    try:
        return str(UUID(str(given)))
    except ValueError:
        raise InvalidInput("`id` is no session's id.", "Take one of `session_list`.") from None


MODULE: Final = Module("sessions", build)
