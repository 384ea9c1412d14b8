"""The module `schedule`: a butler sees its schedules, and makes and removes its own."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from butlers import schedules as when
from butlers.butler import Answer, Arguments, Components, Context, Module, NoConfig, Result, Tool, ToolCall, unfit
from shared.channels import CHANNELS, realms
from shared.db.pool import Connection, Record, after_commit
from shared.errors import InvalidInput
from shared.gate.accept import accept
from shared.hashing import digest
from shared.storage import contacts, schedules
from shared.storage.schedules import Schedule

TEXT: Final = {"type": "string"}
TIMES: Final = {
    "cron": {**TEXT, "description": "Again and again: minute, hour, day, month, day of the week, as 30 7 * * 1-5."},
    "at": {**TEXT, "description": "Once: date and time with offset, as 2030-05-01T09:00:00+02:00."},
    "zone": {**TEXT, "description": "The IANA zone of cron, and of a time without offset, as Europe/Berlin."},
    "catch_up": {**TEXT, "enum": ["once", "skip"], "description": "What was missed: made up for once, or skipped."},
}
ADD: Final = {
    "type": "object",
    "properties": {
        "name": {**TEXT, "description": "A short name of your own, as morning-walk."},
        **TIMES,
        "prompt": {**TEXT, "description": "What you are asked then, in a session of its own; or a tool."},
        "tool": {**TEXT, "description": "The tool of yours that is called then; or a prompt."},
        "arguments": {"type": "object", "description": "The arguments of that tool."},
    },
    "required": ["name"],
    "additionalProperties": False,
}
REMIND: Final = {
    "type": "object",
    "properties": {
        "text": {**TEXT, "description": "What the owner is told then."},
        "in": {**TEXT, "description": "From now, as 20m, 3h or 2d."},
        **{key: TIMES[key] for key in ("at", "cron", "zone")},
        "channel": {**TEXT, "enum": list(CHANNELS), "description": "How; by a live one if you say nothing."},
    },
    "required": ["text"],
    "additionalProperties": False,
}
NAME: Final = {"type": "object", "properties": {"name": TEXT}, "required": ["name"], "additionalProperties": False}
NONE: Final = {"type": "object", "properties": {}, "additionalProperties": False}
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST: Final = timedelta(days=3660)
# Of a prompt as it is listed: a thousand whole ones are more than anybody reads.
MOST_LISTED: Final = 500


def build(context: Context, _: NoConfig) -> Components:
    """Make the four tools for one butler."""

    async def listed(_: ToolCall) -> Result:
        async with context.db.work() as connection:
            return Result({"schedules": [_shown(row) for row in await schedules.of(connection, context.name)]})

    async def add(call: ToolCall) -> Result:
        schedule = _read(context, call.arguments)
        async with context.db.work() as connection:
            return Result(await _add(context, connection, schedule))

    async def remind(call: ToolCall) -> Result:
        async with context.db.work() as connection:
            return Result(await _remind(context, connection, call.arguments))

    async def remove(call: ToolCall) -> Result:
        name = call.arguments.get("name")
        if not isinstance(name, str) or "\x00" in name:
            raise InvalidInput("`name` is not a text.", "Give a name that schedule_list shows.")
        async with context.db.work() as connection:
            removed = await schedules.remove_own(connection, context.name, name)
            source = None if removed else await schedules.source_of(connection, context.name, name)
        if source == "file":
            raise InvalidInput(f"`{name}` is the owner's, in butler.toml.", "Ask the owner to remove it there.")
        return Result({"name": name, "removed": removed})

    return Components(
        [
            Tool("schedule_list", "List your schedules; a long prompt ends with `…`.", NONE, listed, read_only=True),
            Tool("schedule_add", "Let a prompt or a tool of yours come at a time, or again and again.", ADD, add),
            Tool("schedule_remove", "Remove a schedule that you made.", NAME, remove),
            Tool("remind_me", "Tell the owner something at a time, or again and again.", REMIND, remind),
        ]
    )


def _read(context: Context, arguments: Arguments) -> Schedule:
    """Read a schedule; raise InvalidInput if its call is none that the butler's tools would take."""
    schedule = when.read_schedule(arguments, when.machine_zone())
    if schedule.tool is not None:
        for why, remedy in unfit(context.tools, schedule.tool, schedule.arguments):
            raise InvalidInput(f"{why[0].upper()}{why[1:]}", remedy)
    return schedule


async def _add(context: Context, connection: Connection, schedule: Schedule) -> Answer:
    due = when.first_due(schedule, await schedules.now(connection))
    if due is None:
        raise InvalidInput("`at` is over.", "Give a time to come.")
    if await schedules.number_of_own(connection, context.name) >= schedules.MOST_OWN:
        raise InvalidInput(f"You have {schedules.MOST_OWN:,} schedules already.", "Remove some with schedule_remove.")
    if not await schedules.add_own(connection, context.name, schedule, due):
        raise InvalidInput(
            f"You have a schedule `{schedule.name}` already.", "Remove it first, or choose another name."
        )
    after_commit(connection, lambda: context.wakes["schedules"](context.name))
    return {"name": schedule.name, "next_due_at": due.isoformat()}


async def _remind(context: Context, connection: Connection, arguments: Arguments) -> Answer:
    """Make a reminder by the channel that is given, or else by the one on which the owner is told now."""
    channel = arguments.get("channel")
    if channel is None:
        channel = await contacts.owners_channel(connection) or next(iter(CHANNELS))
    given = {**arguments, "channel": channel}
    answer = await _add(context, connection, _reminder(given, await schedules.now(connection), context.new_id()))
    if not await realms.is_played(connection, str(channel)):
        return answer
    label = CHANNELS[str(channel)].label
    note = f"{label} is the sandbox, where the owner will not see this: remove it, and use a channel that is live."
    return {**answer, "note": note}


def _reminder(arguments: Arguments, now: datetime, new_id: str) -> Schedule:
    """Read a reminder as the schedule it is: a notify to the owner."""
    given = {key: value for key, value in arguments.items() if value is not None}
    text, channel = given.pop("text", None), given.pop("channel")
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput("`text` is missing.", "Say what the owner is to be told.")
    if not isinstance(channel, str) or channel not in CHANNELS:
        raise InvalidInput(f"`channel` is not one of {', '.join(CHANNELS)}.", "Choose one of them, or leave it out.")
    if sum(key in given for key in ("at", "in", "cron")) != 1:
        raise InvalidInput("A reminder says when by one of `at`, `in` and `cron`.", 'Give for example in = "20m".')
    if "in" in given:
        given["at"] = (now + _span(given.pop("in"))).isoformat()
    name = f"reminder-{digest('reminder.v1', new_id)[:12]}"
    told = {"channel": channel, "message": text}
    accept("reminder", told)  # what `notify` would refuse then is refused now
    return when.read_schedule({**given, "name": name, "tool": "notify", "arguments": told}, when.machine_zone())


def _span(found: object) -> timedelta:
    if isinstance(found, str) and found[:-1].isascii() and found[:-1].isdecimal() and found[-1] in UNITS:
        number = int(found[:-1]) if len(found) < 10 else 10**9  # noqa: PLR2004  # longer than anybody waits
        if (seconds := number * UNITS[found[-1]]) <= LONGEST.total_seconds():
            return timedelta(seconds=seconds)
    raise InvalidInput("`in` is no span of time up to ten years.", "Give for example 20m, 3h or 2d.")


def _shown(row: Record) -> Mapping[str, object]:
    shown = {key: row[key] for key in ("name", "source", "cron", "zone", "prompt", "tool", "arguments", "catch_up")}
    for key in ("once_at", "next_due_at", "last_due_at"):
        shown[key.removeprefix("once_")] = None if row[key] is None else row[key].isoformat()
    shown |= {key: row[key] for key in ("last_status", "last_outcome")}
    if row["prompt"] is not None and len(row["prompt"]) > MOST_LISTED:
        shown["prompt"] = f"{row['prompt'][:MOST_LISTED]}…"
    return {key: value for key, value in shown.items() if value is not None}


MODULE: Final = Module("schedule", build)
