"""What every answer of the timekeeper shares: checked arguments, published forms, blocks and errors."""

import json
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mcp_types import TextContent

from butlers.butler import Result, Tool, ToolCall
from butlers.modules.manictime.source import in_thread
from shared.errors import ButlersError, InvalidInput

JSON_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
LARGEST: Final = 2**63 - 1
Shape: TypeAlias = Mapping[str, object]
FALLBACK: Final = "FallbackComputation"
# What a reason means for a reader, and what to do.
HINTS: Final = {
    FALLBACK: "Computed from single activities, since ManicTime's summary tables are missing or of another form.",
    "NoCommonGroup": "Names across timelines are missing; names of the timeline's own groups are shown.",
    "NoTags": "ManicTime's tables of tags are missing; tags are read from the names in the timeline of tags.",
    "NoTimeline": "ManicTime has no timeline of this kind. See get_timelines.",
    "ScreenshotsCaptureDisabled": "The folder of screenshots is not there. Turn screenshots on in ManicTime, or "
    "correct `screenshots` in butler.toml.",
    "ScreenshotsRetention": "ManicTime keeps screenshots for a few days only; these are gone. Ask for a later time.",
    "ScreenshotsUnknown": "There are screenshots, but none of this time. The computer may have been off or away.",
    "NoEnvironment": "ManicTime's table of computers is missing.",
    "NoActivities": "The database cannot be read; screenshots are chosen by time alone. See manictime://health.",
}


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of a tool: its type, its bounds, and what it is if it is left out."""

    name: str
    kind: str
    says: str
    required: bool = False
    default: object = None
    # What lies above is taken down to it, not refused.
    most: int | None = None
    choices: Sequence[str] = ()

    @property
    def schema(self) -> Shape:
        """Return what is published of it."""
        made: dict[str, object] = {"type": self.kind, "description": self.says}
        if self.default is not None:
            made["default"] = self.default
        if self.most is not None:
            made |= {"minimum": 1, "description": f"{self.says} At most {self.most}; more is taken as that."}
        if self.choices:
            made["enum"] = list(self.choices)
        return made


class Given:
    """The arguments of one call, checked against what the tool takes."""

    def __init__(self, params: Sequence[Param], arguments: Mapping[str, object]) -> None:
        self.names = frozenset(param.name for param in params)
        if not self.names >= arguments.keys():
            raise InvalidInput("There is an argument that this tool does not take.", f"It takes {_list(self.names)}.")
        self._values = {param.name: _checked(param, arguments.get(param.name)) for param in params}

    def get(self, name: str) -> object:
        """Return an argument, None if it is left out and has no default."""
        return self._values[name]

    def text(self, name: str) -> str:
        """Return a text that was given."""
        return str(self._values[name])

    def flag(self, name: str) -> bool:
        """Return whether it is on."""
        return bool(self._values[name])

    def number(self, name: str) -> float:
        """Return a number that was given or has a default."""
        return float(str(self._values[name]))

    def count(self, name: str) -> int:
        """Return a whole number that was given or has a default."""
        return int(str(self._values[name]))


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


def _checked(param: Param, value: object) -> object:
    if value is None:
        if param.required:
            raise InvalidInput(f"`{param.name}` is missing.", param.says)
        return param.default
    if param.kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, JSON_TYPES[param.kind]) or (isinstance(value, bool) and param.kind != "boolean"):
        raise InvalidInput(f"`{param.name}` is not of the type {param.kind}.", param.says)
    if param.choices and value not in param.choices:
        code = {"samplingStrategy": "invalid_sampling_strategy"}.get(param.name, "invalid_coordinate_units")
        choices = _list(param.choices)
        raise InvalidInput(f"`{param.name}` has no such value.", f"Choose from {choices}.", code=code)
    return _bounded(param, value)


def _bounded(param: Param, value: object) -> object:
    """Return a number within its bounds; whoever may be below one, such as a place, is checked where it is used."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if param.kind == "integer" and not -LARGEST <= value <= LARGEST:
        value = LARGEST if value > 0 else -LARGEST
    if param.most is not None:
        if value < 1:
            raise InvalidInput(f"`{param.name}` is below 1.", f"Use 1 to {param.most}.", code="limit_out_of_range")
        return min(value, param.most)
    if param.name.endswith("Minutes") and not 0 <= value < math.inf:
        raise InvalidInput(f"`{param.name}` is no number of minutes.", "Use 0 or more.", code="limit_out_of_range")
    return value


def form(fields: Mapping[str, object]) -> Shape:
    """Return the JSON schema of an object; `name?` may be left out, and more may stand in it, such as a notice."""
    return {
        "type": "object",
        "properties": {name.removesuffix("?"): _form(one) for name, one in fields.items()},
        "required": [name for name in fields if not name.endswith("?")],
    }


def _form(one: object) -> Shape:
    if isinstance(one, Mapping):
        return form(one)
    if isinstance(one, list):
        return {"type": "array", "items": _form(one[0])}
    return {"type": one}


TEXT, WHOLE, NUMBER, FLAG = "string", "integer", "number", "boolean"
TRUNCATION: Final = {"truncated": FLAG, "returnedCount": WHOLE, "totalAvailable?": WHOLE}
DIAGNOSTICS: Final = {"degraded": FLAG, "reasonCode?": TEXT, "remediationHint?": TEXT}
BLOCKS: Final = {"truncation": TRUNCATION, "diagnostics": DIAGNOSTICS}


def truncation(returned: int, total: int | None = None, *, truncated: bool = False) -> dict[str, object]:
    """Return the block that says whether there is more."""
    more = truncated or (total is not None and total > returned)
    return {"truncated": more, "returnedCount": returned, "totalAvailable": total}


def diagnostics(reason: str | None = None) -> dict[str, object]:
    """Return the block that says what is missing, and what to do."""
    return {"degraded": reason is not None, "reasonCode": reason, "remediationHint": HINTS[reason] if reason else None}


def trimmed(value: object) -> object:
    """Return the same without whatever is None."""
    if isinstance(value, Mapping):
        return {key: trimmed(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [trimmed(one) for one in value]
    return value


def as_json(value: object) -> str:
    """Return it as text, without what is None."""
    return json.dumps(trimmed(value), ensure_ascii=False, separators=(",", ":"))


def error_json(refused: ButlersError) -> str:
    """Return an error as a program reads it."""
    return as_json({"error": {"code": refused.code, "message": refused.message, "remediation": refused.remedy}})


Work: TypeAlias = Callable[[Given, ToolCall], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Told:
    """What is published of a tool: its name, what it is for, what it takes, and the form of what it answers."""

    name: str
    says: str
    params: Sequence[Param]
    gives: Mapping[str, object]
    writes: bool = False

    def tool(self, work: Work) -> Tool:
        """Return the tool that answers so; an error is a result with its code, its sentence and its remedy."""

        async def handler(call: ToolCall) -> Result:
            try:
                made = await work(Given(self.params, call.arguments), call)
            except ButlersError as refused:
                said = TextContent(type="text", text=f"{refused}\n{error_json(refused)}")
                return Result(blocks=[said], is_error=True)
            # In a thread, since thousands of rows would stop the event loop.
            answer = await in_thread(trimmed, made.answer) if made.answer is not None else None
            return Result(answer if isinstance(answer, dict) else None, made.blocks, asks=made.asks)

        takes = {
            "type": "object",
            "properties": {param.name: param.schema for param in self.params},
            "required": [param.name for param in self.params if param.required],
            "additionalProperties": False,
        }
        return Tool(
            self.name, self.says, takes, handler, read_only=not self.writes, waits=self.writes, output=form(self.gives)
        )
