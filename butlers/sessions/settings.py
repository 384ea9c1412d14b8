"""The table `[runtime]` of a butler.toml: which runtime thinks for the butler, and how much a session may take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, create_model

from butlers.fleet import Entry, ModuleEntry, nearest
from butlers.modules import loader
from butlers.runtime.base import Limits, Runtime
from butlers.runtime.registry import RUNTIMES
from shared.errors import Misconfigured

EXAMPLE: Final = 'Write for example kind = "claude" below [runtime].'
COUNTED: Final = ("turns", "tokens", "dollars", "dollars_per_day")


class RuntimeTable(BaseModel):
    """The keys that every runtime takes; its own come beside them."""

    model_config = ConfigDict(extra="forbid")
    kind: str = Field(description="Which runtime.")
    at_once: int = Field(1, ge=1, le=16, description="Sessions of this butler at once, in all processes together.")
    minutes: float = Field(10, gt=0, le=1440, description="The time of one session.")
    turns: int = Field(
        30, ge=1, le=10_000, description="How often one session asks its model, or calls a tool; not for `command`."
    )
    tokens: int = Field(200_000, ge=1, le=1_000_000_000, description="The tokens of one session; not for `command`.")
    dollars: float = Field(1.0, gt=0, le=10_000, description="The dollars of one session; not for `command`.")
    dollars_per_day: float = Field(
        10.0,
        gt=0,
        le=100_000,
        description="Of all its sessions in any 24 hours, half of it for what you began; not for `command`.",
    )


@dataclass(frozen=True, slots=True)
class Setup:
    """How a butler's sessions are run: its runtime with what that is told, how many at once, and the limits."""

    runtime: Runtime
    own: BaseModel
    at_once: int
    limits: Limits
    dollars_per_day: float


def setup_of(entry: ModuleEntry) -> Setup:
    """Check the table; raise Misconfigured with file, key and nearest name for what does not fit."""
    runtime = _runtime(entry, entry.table.get("kind"))
    # One model of both, so that a mistyped key is told from all there are.
    whole = create_model("Whole", __base__=(RuntimeTable, runtime.config))
    loader.configured(entry, whole)
    if not runtime.is_counted:
        _demand_uncounted(entry, runtime)
    common = RuntimeTable.model_validate(_part(entry.table, RuntimeTable))
    own = runtime.config.model_validate(_part(entry.table, runtime.config))
    limits = Limits(common.minutes, common.turns, common.tokens, common.dollars)
    return Setup(runtime, own, common.at_once, limits, common.dollars_per_day if runtime.is_counted else inf)


def demand_setups(entries: Sequence[Entry]) -> None:
    """Raise Misconfigured for the first butler whose table does not fit."""
    for entry in entries:
        if entry.runtime is not None:
            setup_of(entry.runtime)


def _part(table: Mapping[str, object], model: type[BaseModel]) -> dict[str, object]:
    return {key: value for key, value in table.items() if key in model.model_fields}


def _demand_uncounted(entry: ModuleEntry, runtime: Runtime) -> None:
    for key in COUNTED:
        if key in entry.table:
            said = f"What a `{runtime.name}` uses is not counted, so that it would bound nothing."
            raise Misconfigured(f"{entry.file}: [runtime] {key}: {said}", "Take it out; `minutes` bounds a session.")


def _runtime(entry: ModuleEntry, kind: object) -> Runtime:
    if kind is None:
        raise Misconfigured(f"{entry.file}: [runtime] has no `kind`.", EXAMPLE)
    found = RUNTIMES.get(kind) if isinstance(kind, str) else None
    if found is None:
        hint = nearest(str(kind), [*RUNTIMES]) or f"Choose from: {', '.join(RUNTIMES)}."
        raise Misconfigured(f"{entry.file}: [runtime] kind: there is no runtime `{kind}`.", hint)
    return found
