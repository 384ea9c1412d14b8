"""The fleet: a folder per butler with butler.toml and PERSONA.md, read strictly."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from butlers import fleet_folder, schedules
from shared.errors import InvalidInput, Misconfigured
from shared.storage.schedules import Schedule

SERVICES: Final = ("switchboard", "messenger", "console", "sandbox")
# What `butlers run` calls all butlers together.
WHOLE: Final = "fleet"
RESERVED: Final = frozenset({*SERVICES, WHOLE, "owner", "up", "all"})
# Each key of a butler.toml and what it says, from which docs/butler-toml.md is written.
KEYS: Final[Mapping[str, str]] = {
    "name": "A small letter, then up to 30 of a-z, 0-9 and _.",
    "description": "What the butler is for, in one sentence.",
    "default": "Whether messages that name no butler go to this one; at most one butler of a fleet says so.",
    "classifier": "Whether its runtime is asked which butler takes what nothing else decides; at most one says so.",
    "modules": "What else it can do, by name; a table of a module's name tells it what it may be told.",
    "calls": "The butlers it may ask; nobody if it is left out.",
    "desk": "Whether it may open a popup on your screen.",
    "schedules": "What it does at a time.",
    "runtime": "What thinks for it; nothing if it is left out.",
}
DEMO: Final = Path(__file__).parent / "demo"
# How alike two names must be for the one to be taken for a slip of the other, and for nearly the same word.
ALIKE: Final = 0.6
SAME: Final = 0.8
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_MODULE: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\.)*[a-z][a-z0-9_]{0,30}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """One butler of the fleet as its folder describes it."""

    name: str
    description: str
    persona: str
    modules: Sequence["ModuleEntry"] = ()
    # What thinks for it, if it thinks here; what the table holds, `butlers/sessions/settings.py` checks.
    runtime: "ModuleEntry | None" = None
    # The butlers it may call.
    calls: Sequence[str] = ()
    schedules: Sequence[Schedule] = ()
    is_default: bool = False
    # Whether it may open a popup on the owner's screen.
    has_desk: bool = False
    # Whether its runtime says to which butler a message goes where nothing else does.
    is_classifier: bool = False


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """A module as a butler.toml names it: an installed one by its name, any other by the dotted path of its code.

    What its table `[NAME]` holds, by the last word of that path, the module itself checks.
    """

    path: str
    table: Mapping[str, object] = field(default_factory=dict)
    file: Path = Path("fleet/butler/butler.toml")

    @property
    def name(self) -> str:
        """Return the last word of the path."""
        return self.path.rpartition(".")[2]


def load(folder: Path | None, home: Path | None = None) -> list[Entry]:
    """Read the fleet of this folder, by name, or the demo fleet if none is given; raise Misconfigured if unfit."""
    entries, mistakes = survey(folder, home)
    if mistakes:
        raise mistakes[0]
    return entries


def survey(folder: Path | None, home: Path | None = None) -> tuple[list[Entry], list[Misconfigured]]:
    """Read the fleet of this folder, or the demo fleet; return what can be read, and every mistake there is.

    Nothing in it is believed where somebody else could have put it there.
    """
    where = folder or DEMO
    try:
        if folder is not None:
            fleet_folder.demand_fit(folder, home)
        folders = fleet_folder.butlers_in(where)
    except Misconfigured as unfit:
        return [], [unfit]
    read_all = [_read(path) for path in folders]
    entries = [entry for entry, _ in read_all if entry is not None]
    mistakes = [one for _, found in read_all for one in found]
    mistakes += fleet_folder.left_out(where)
    names = [entry.name for entry in entries]
    mistakes += [
        Misconfigured(f"Two butlers in the fleet are called `{name}`.", "Rename one of them.")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    for key, chosen in (
        ("default", [entry.name for entry in entries if entry.is_default]),
        ("classifier", [entry.name for entry in entries if entry.is_classifier]),
    ):
        if len(chosen) > 1:
            mistakes.append(
                Misconfigured(
                    f"{len(chosen)} butlers in the fleet are the {key}: {', '.join(chosen)}.",
                    f"Keep `{key} = true` in one butler.toml.",
                )
            )
    mistakes += [] if mistakes else [one for entry in entries for one in _unknown_calls(where, entry, names)]
    return entries, mistakes


def _unknown_calls(where: Path, entry: Entry, names: Sequence[str]) -> Iterator[Misconfigured]:
    others = [name for name in names if name != entry.name]
    for called in entry.calls:
        if called not in others:
            hint = nearest(called, others) or 'Write for example calls = ["health"].'
            what = "itself" if called == entry.name else f"`{called}`, who is not in the fleet"
            yield Misconfigured(f"{where}: in the butler.toml of {entry.name}, `calls` names {what}.", hint)


def read(folder: Path) -> Entry:
    """Read one butler's folder; raise Misconfigured for anything missing, wrong or unknown in it."""
    entry, mistakes = _read(folder)
    if entry is None or mistakes:
        raise mistakes[0]
    return entry


@contextmanager
def _noting(mistakes: list[Misconfigured]) -> Iterator[None]:
    """Keep a mistake raised in the `with` block, and go on after it to find the next."""
    try:
        yield
    except Misconfigured as mistake:
        mistakes.append(mistake)


def _read(folder: Path) -> tuple[Entry | None, list[Misconfigured]]:
    """Read one butler's folder; return it, unless it has a mistake, and every mistake in it."""
    path, mistakes = folder / "butler.toml", list[Misconfigured]()
    try:
        raw = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as broken:
        return None, [Misconfigured(f"{path} is not valid TOML: {broken}.", "Correct it.")]
    except Misconfigured as unread:
        return None, [unread]
    modules, timed, calls = list[ModuleEntry](), list[Schedule](), list[str]()
    persona, is_true, runtime = "", [False] * 3, None
    with _noting(mistakes):
        modules = _modules(path, raw)
        mistakes += _unknown_keys(path, raw, [*KEYS, *(module.name for module in modules)])
    name, description = raw.get("name"), raw.get("description")
    with _noting(mistakes):
        _demand_name(path, name)
    with _noting(mistakes):
        _demand_description(path, description)
    with _noting(mistakes):
        calls = _calls(path, raw)
    with _noting(mistakes):
        is_true = [_is_true(path, raw, key) for key in ("default", "desk", "classifier")]
    with _noting(mistakes):
        runtime = _runtime(path, raw)
    timed, wrong = _schedules(path, raw)
    mistakes += wrong
    with _noting(mistakes):
        persona = _persona(folder)
    if mistakes:
        return None, mistakes
    return Entry(str(name), str(description).strip(), persona, modules, runtime, calls, timed, *is_true), []


def _demand_name(path: Path, name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Misconfigured(f"{path} has no valid name.", "Use a small letter, then up to 30 of a-z, 0-9 and _.")
    if name in RESERVED:
        raise Misconfigured(f"{path}: `{name}` is a reserved name.", "Choose another name.")


def _demand_description(path: Path, description: object) -> None:
    if not isinstance(description, str) or not description.strip():
        raise Misconfigured(f"{path} has no description.", "Say in one sentence what the butler is for.")


def _persona(folder: Path) -> str:
    persona = folder / "PERSONA.md"
    if not persona.is_file():
        raise Misconfigured(f"{persona} is missing.", "Describe who this butler is.")
    return _text(persona)


def _is_true(path: Path, raw: Mapping[str, object], key: str) -> bool:
    said = raw.get(key, False)
    if not isinstance(said, bool):
        raise Misconfigured(f"{path}: `{key}` is neither true nor false.", f"Write {key} = true, or leave it out.")
    return said


def _runtime(path: Path, raw: Mapping[str, object]) -> ModuleEntry | None:
    table = raw.get("runtime")
    if table is not None and not isinstance(table, dict):
        raise Misconfigured(f"{path}: `runtime` is not a table.", "Write its keys below [runtime].")
    if table is None and raw.get("classifier") is True:
        raise Misconfigured(f"{path}: `classifier` needs a runtime, and the butler has none.", "Add a table [runtime].")
    return None if table is None else ModuleEntry("runtime", table, path)


def _calls(path: Path, raw: Mapping[str, object]) -> list[str]:
    named = raw.get("calls", [])
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise Misconfigured(f"{path}: `calls` is no list of butlers.", 'Write for example calls = ["health"].')
    return list(dict.fromkeys(named))


def _schedules(path: Path, raw: Mapping[str, object]) -> tuple[list[Schedule], list[Misconfigured]]:
    """Return the schedules the file has, and each mistake in them."""
    tables, found, mistakes = raw.get("schedules", []), dict[str, Schedule](), list[Misconfigured]()
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        return [], [Misconfigured(f"{path}: `schedules` is no list of tables.", "Begin each with [[schedules]].")]
    for number, table in enumerate(tables, 1):
        where = f"{path}: [[schedules]] {table['name'] if isinstance(table.get('name'), str) else number}"
        try:
            one = schedules.read_schedule(table, schedules.machine_zone())
        except InvalidInput as wrong:
            mistakes.append(Misconfigured(f"{where}: {wrong.message}", wrong.remedy))
            continue
        if one.name in found:
            mistakes.append(Misconfigured(f"{where}: there are two of that name.", "Rename one of them."))
        if one.prompt is not None and "runtime" not in raw:
            mistakes.append(
                Misconfigured(
                    f"{where}: `prompt` needs a runtime, and the butler has none.",
                    "Add a table [runtime], or call a `tool` instead.",
                )
            )
        found[one.name] = one
    return list(found.values()), mistakes


def _modules(path: Path, raw: Mapping[str, object]) -> list[ModuleEntry]:
    """Return the modules the file names, each with its table; raise Misconfigured for a list that is none."""
    named, found = raw.get("modules", []), dict[str, ModuleEntry]()
    for one in named if isinstance(named, list) else [named]:
        if not isinstance(named, list) or not isinstance(one, str) or not _MODULE.fullmatch(one):
            raise Misconfigured(
                f"{path}: `modules` is no list of module names.", 'Write for example modules = ["state"].'
            )
        entry = ModuleEntry(one, file=path)
        if entry.name in found or entry.name in KEYS:
            raise Misconfigured(f"{path}: two modules are called `{entry.name}`.", "Remove or rename one of them.")
        table = raw.get(entry.name, {})
        if not isinstance(table, dict):
            raise Misconfigured(f"{path}: `{entry.name}` is not a table.", f"Write its keys below [{entry.name}].")
        found[entry.name] = replace(entry, table=table)
    return list(found.values())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Misconfigured(f"{path} is not UTF-8 text.", "Save it as UTF-8.") from None
    except OSError as refused:
        raise Misconfigured(f"{path} cannot be read: {refused.strerror}.", "Correct it.") from None


def _unknown_keys(path: Path, raw: Mapping[str, object], known: Sequence[str]) -> Iterator[Misconfigured]:
    choices = f"hoose from: {', '.join(known)}."
    for key, value in raw.items():
        if key not in known and isinstance(value, dict):
            hint = nearest(key, known, SAME) or f"If it is a module's, add that to `modules`; otherwise c{choices}"
            yield Misconfigured(f"{path} has the unknown table [{key}].", hint)
        elif key not in known:
            hint = nearest(key, known) or f"C{choices}"
            yield Misconfigured(f"{path} has the unknown key `{key}`.", hint)


def nearest(name: str, known: Sequence[str], near_enough: float = ALIKE) -> str | None:
    """Ask whether the nearest of what is known was meant, if one is near."""
    near = difflib.get_close_matches(name, known, 1, near_enough)
    return f"Did you mean `{near[0]}`?" if near else None
