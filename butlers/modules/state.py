"""The module `state`: JSON values that a butler keeps by key between its sessions, each with a version."""

from collections.abc import Mapping
from typing import Final

from butlers.butler import Answer, Arguments, Components, Context, Module, NoConfig, Result, Tool, ToolCall
from shared.errors import InvalidInput
from shared.hashing import canonical_json
from shared.storage import state

LONGEST_KEY: Final = 200
LONGEST_VALUE: Final = 60_000
KEY: Final = {"type": "string", "description": "Which value, for example diary/2030-05-01."}
VERSION: Final = {
    "type": "integer",
    "minimum": 0,
    "description": "Only if the key still has this version, which state_get told; 0 if it must be new.",
}


def _schema(*required: str, **properties: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


VALUE: Final = {"description": "Any JSON value but null, up to 60,000 characters."}
PREFIX: Final = {"type": "string", "description": "Only keys that begin so."}
GET: Final = _schema("key", key=KEY)
SET: Final = _schema("key", "value", key=KEY, value=VALUE, version=VERSION)
DELETE: Final = _schema("key", key=KEY, version=VERSION)
LIST: Final = _schema(prefix=PREFIX)
SETS: Final = "Keep a value for your later sessions. Give the version you read to be told if it was changed since."


def build(context: Context, _: NoConfig) -> Components:
    """Make the four tools for one butler."""

    async def get(call: ToolCall) -> Result:
        key = _key(call.arguments)
        async with context.db.work() as connection:
            found = await state.get(connection, context.name, key)
        return Result(_shown(key, found))

    async def put(call: ToolCall) -> Result:
        key, value, version = _key(call.arguments), _value(call.arguments), _version(call.arguments)
        async with context.db.work() as connection:
            now = await state.put(connection, context.name, key, value, version)
            if now is None:
                raise _not_set(key, await state.get(connection, context.name, key), version)
        return Result({"key": key, "version": now})

    async def delete(call: ToolCall) -> Result:
        key, version = _key(call.arguments), _version(call.arguments)
        async with context.db.work() as connection:
            deleted = await state.delete(connection, context.name, key, version)
            found = None if deleted else await state.get(connection, context.name, key)
        if found is not None:
            raise _not_set(key, found, version)
        return Result({"key": key, "deleted": deleted})

    async def keys(call: ToolCall) -> Result:
        prefix = _prefix(call.arguments)
        async with context.db.work() as connection:
            found = await state.keys(connection, context.name, prefix)
        return Result({"keys": [{"key": key, "version": version} for key, version in found]})

    return Components(
        [
            Tool("state_get", "Read a value you kept.", GET, get, read_only=True),
            Tool("state_set", SETS, SET, put),
            Tool("state_delete", "Forget a value.", DELETE, delete),
            Tool("state_list", "List the keys you kept.", LIST, keys, read_only=True),
        ]
    )


def _shown(key: str, found: state.Value | None) -> Answer:
    if found is None:
        return {"key": key, "version": 0, "value": None}
    at = found.changed_at.isoformat() if found.changed_at else None
    return {"key": key, "version": found.version, "value": found.value, "changed_at": at}


def _prefix(arguments: Arguments) -> str:
    found = arguments.get("prefix", "")
    if not isinstance(found, str) or not _is_storable(found):
        raise InvalidInput("`prefix` is not a text.", "Give the beginning of the keys you look for.")
    return found


def _key(arguments: Arguments) -> str:
    found = arguments.get("key")
    if not isinstance(found, str) or not 1 <= len(found) <= LONGEST_KEY or not _is_storable(found):
        raise InvalidInput(f"`key` is not a text of 1 to {LONGEST_KEY} characters.", "Give for example diary/today.")
    return found


def _value(arguments: Arguments) -> object:
    found = arguments.get("value")
    if found is None:
        raise InvalidInput("`value` is missing or null.", "Give a value, or use state_delete.")
    try:
        text = canonical_json(found)
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("`value` is not JSON.", "Give a text, a number, a list or an object.") from None
    if len(text) > LONGEST_VALUE:
        raise InvalidInput(f"`value` is {len(text):,} characters long.", f"Keep at most {LONGEST_VALUE:,} in a key.")
    if "\\u0000" in text or not _is_storable(text):
        raise InvalidInput("`value` contains a NUL or an incomplete Unicode character.", "Take it out.")
    return found


def _version(arguments: Arguments) -> int | None:
    found = arguments.get("version")
    if found is not None and (not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**62):
        raise InvalidInput("`version` is not a whole number.", "Give the version that state_get told, or leave it out.")
    return found


def _is_storable(text: str) -> bool:
    return "\x00" not in text and text.encode(errors="replace").decode() == text


def _not_set(key: str, found: state.Value | None, version: int | None) -> InvalidInput:
    if version is None:
        return InvalidInput(f"You keep {state.MOST_KEYS:,} keys already.", "Delete some with state_delete.")
    has = 0 if found is None else found.version
    if has == version:
        return InvalidInput(f"`{key}` was not changed.", "Try again.")
    return InvalidInput(
        f"`{key}` has version {has} and not {version}, so nothing was changed.", "Read it again with state_get."
    )


MODULE: Final = Module("state", build)
