"""The module `sessions`: a butler's agent looks at the sessions of its own butler.

INVARIANT: a session that works for somebody else than the owner sees itself alone. What others ask, the owner's words
among it, is nothing that it could pass on.
"""

from datetime import datetime
from typing import Final
from uuid import UUID

from butlers.butler import Answer, Components, Context, Module, NoConfig, Result, Tool, ToolCall
from shared.auth.tokens import Caller
from shared.db.pool import Connection, Record
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

    async def list_sessions(call: ToolCall) -> Result:
        async with context.db.work() as connection:
            only = await _only(connection, call.caller)
            rows = await session_list.newest(connection, context.name, MOST, only)
        return Result({"sessions": [_told(row) for row in rows]})

    async def session_show(call: ToolCall) -> Result:
        session_id = _id(call.arguments.get("id"))
        async with context.db.work() as connection:
            only = await _only(connection, call.caller)
            row = await session_list.one(connection, session_id)
            steps = await session_steps.of(connection, session_id)
        if row is None or row["butler"] != context.name or only not in {None, session_id}:
            raise InvalidInput("There is no such session of this butler.", "`session_list` shows those there are.")
        return Result({**_told(row), "steps": [_json(step) for step in steps]})

    return Components(
        [
            Tool("session_list", "List this butler's last sessions.", NONE, list_sessions, read_only=True),
            Tool("session_show", "Show one session and its steps.", BY_ID, session_show, read_only=True),
        ]
    )


async def _only(connection: Connection, caller: Caller) -> str | None:
    """Return the one session that the caller may look at; None if it may look at all of its butler's."""
    own = caller.session
    return None if own is None or await session_list.is_by_owner(connection, own, caller.name) else own


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
