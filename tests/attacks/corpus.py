"""The attacks as data: one file per class, NN_name.toml, read, checked and multiplied by its tables.

A class that needs a machine of its own (another server at a port, a restored backup, a clock that jumps) is a test
module test_NN_name.py instead; each of its tests is an attempt.

A file holds `class`, `name`, `[[attempt]]`s, and where it needs them `settings` (environment of a fleet of its
own, in one process), `prepare` and `restore` (the superuser's statements around the class), `[outcomes]` (expectations
by name, with what is then allowed) and `[[control]]`s: what must work, or the attempts beside it would prove nothing.

An attempt: `name`, `actor` (A1 to A7), `steps`; before them `given` (what is legitimately so), after the whole class
`later` (what must have come of it); `rows` (a list, or "file.table" beside this file) and `each` (lists, every one
with every other) multiply it; `allows` names what may change (see oracle.py). A step is a verb, `do`, with its
arguments, and `expect`: dotted places in what the step answered with the value or list of values that must be
there, `says` and `never` for pieces of its text, or the name of an outcome. `${name}` is replaced in all texts.
"""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, cast

HERE: Final = Path(__file__).parent
Step = Mapping[str, object]
Values = Mapping[str, object]
ACTORS: Final = {
    "A1": "a prompt-injected model",
    "A2": "a compromised butler process",
    "A3": "a local stranger, or a web page in the owner's browser",
    "A4": "a Telegram user who is not the owner",
    "A5": "a mail recipient or a mail scanner",
    "A6": "a compromised Switchboard",
    "A7": "a reader of the database",
}
CLASSES: Final = tuple(range(1, 48))
NAME: Final = re.compile(r"\$\{([a-z_0-9]+)\}")
_ATTEMPT: Final = {"name", "actor", "given", "steps", "later", "rows", "each", "allows"}
_FILE: Final = {"class", "name", "settings", "prepare", "restore", "outcomes", "attempt", "control"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way in that is tried once, with the values of its row."""

    name: str
    actor: str
    steps: Sequence[Step]
    given: Sequence[Step] = ()
    later: Sequence[Step] = ()
    values: Values = field(default_factory=dict)
    allows: Mapping[str, object] = field(default_factory=dict)
    control: bool = False


@dataclass(frozen=True, slots=True)
class AttackClass:
    """One of those that are data."""

    number: int
    name: str
    attempts: Sequence[Attempt]
    controls: Sequence[Attempt]
    settings: Mapping[str, str]
    prepare: Sequence[str]
    restore: Sequence[str]
    outcomes: Mapping[str, Mapping[str, object]]


@cache
def classes() -> tuple[AttackClass, ...]:
    """Every class that has a file, in their order; raises ValueError for a file that says what nobody reads."""
    return tuple(sorted(map(read, sorted(HERE.glob("[0-9][0-9]_*.toml"))), key=lambda one: one.number))


def modules() -> Mapping[int, Path]:
    """The classes that are test modules, by their number."""
    return {int(path.name.split("_")[1]): path for path in sorted(HERE.glob("test_[0-9][0-9]_*.py"))}


def read(path: Path) -> AttackClass:
    """One file."""
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    _demand_known(path, told, _FILE)
    if not path.name.startswith(f"{told['class']:02d}_"):
        raise ValueError(f"{path.name} is class {told['class']}")
    made = {
        kind: list(_attempts(path, told.get(kind, ()), control=kind == "control")) for kind in ("attempt", "control")
    }
    return AttackClass(
        number=told["class"],
        name=told["name"],
        attempts=made["attempt"],
        controls=made["control"],
        settings=told.get("settings", {}),
        prepare=told.get("prepare", ()),
        restore=told.get("restore", ()),
        outcomes=told.get("outcomes", {}),
    )


def _attempts(path: Path, told: Sequence[Mapping[str, object]], *, control: bool) -> Iterator[Attempt]:
    for one in told:
        _demand_known(path, one, _ATTEMPT)
        steps = _steps(one, "steps")
        if one["actor"] not in ACTORS or not any("expect" in step for step in (*steps, *_steps(one, "later"))):
            raise ValueError(f"{path.name}: {one['name']} has no known actor, or expects nothing")
        if any(step.get("as") == "superuser" for step in steps):
            raise ValueError(f"{path.name}: {one['name']} attacks as the superuser, who is trusted")
        for number, values in enumerate(_values(one), start=1):
            yield Attempt(
                name=_named(f"{one['name']}, {number}", values),
                actor=str(one["actor"]),
                steps=steps,
                given=_steps(one, "given"),
                later=_steps(one, "later"),
                values=values,
                allows=cast("Mapping[str, object]", one.get("allows", {})),
                control=control,
            )


def _steps(one: Mapping[str, object], name: str) -> Sequence[Step]:
    return cast("Sequence[Step]", one.get(name, ()))


def _values(one: Mapping[str, object]) -> Iterator[Values]:
    """Every row with every combination of `each`."""
    each = cast("Mapping[str, Sequence[object]]", one.get("each", {}))
    for row in _rows(one.get("rows")):
        for combined in itertools.product(*each.values()):
            yield {**row, **dict(zip(each, combined, strict=True))}


def _rows(given: object) -> Sequence[Values]:
    """The rows of a table; a bare value is a row of its own."""
    if given is None:
        return [{}]
    if isinstance(given, str):
        file, _, table = given.partition(".")
        given = tomllib.loads((HERE / "tables" / f"{file}.toml").read_text(encoding="utf-8"))[table]
    return [row if isinstance(row, dict) else {"value": row} for row in cast("Sequence[object]", given)]


def _named(name: str, values: Values) -> str:
    told = ", ".join(f"{key}={str(value)[:48]!a}" for key, value in values.items() if key not in {"outcome", "expect"})
    return f"{name} ({told})" if told else name


def _demand_known(path: Path, told: Mapping[str, object], known: set[str]) -> None:
    if strange := told.keys() - known:
        raise ValueError(f"{path.name}: nobody reads {', '.join(sorted(strange))}")


def filled(value: object, known: Values) -> object:
    """The value with every `${name}` replaced, to any depth; a text that is only a name becomes what it stands for."""
    if isinstance(value, str):
        whole = NAME.fullmatch(value)
        if whole:
            return filled(known[whole[1]], known)
        return NAME.sub(lambda found: str(filled(found[0], known)), value)
    if isinstance(value, Mapping):
        return {str(filled(key, known)): filled(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, known) for one in value]
    return value
