"""The fleet: a folder per butler with butler.toml and PERSONA.md, read strictly."""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from shared.errors import Misconfigured

SERVICES: Final = ("switchboard", "messenger", "console", "sandbox")
# What `butlers run` calls all butlers together.
WHOLE: Final = "fleet"
RESERVED: Final = frozenset({*SERVICES, WHOLE, "owner", "up", "all"})
KEYS: Final = ("name", "description", "modules", "default")
DEMO: Final = Path(__file__).parent / "demo"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_MODULE: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\.)*[a-z][a-z0-9_]{0,30}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """One butler of the fleet as its folder describes it."""

    name: str
    description: str
    persona: str
    modules: Sequence["ModuleEntry"] = ()
    is_default: bool = False


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


def load(folder: Path | None) -> list[Entry]:
    """Read the fleet of this folder, by name, or the demo fleet if none is given; raise Misconfigured if unfit."""
    where = folder or DEMO
    if not where.is_dir():
        what = "is not a folder" if where.exists() else "does not exist"
        remedy = "Put it back, choose another with --fleet, or create a butler with `butlers init NAME`."
        raise Misconfigured(f"The fleet folder {where} {what}.", remedy)
    entries = [read(path) for path in sorted(where.iterdir()) if path.is_dir() and (path / "butler.toml").exists()]
    if not entries:
        raise Misconfigured(f"The fleet folder {where} contains no butler.", "Create one with `butlers init NAME`.")
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise Misconfigured(f"Two butlers in the fleet are called `{name}`.", "Rename one of them.")
    defaults = [entry.name for entry in entries if entry.is_default]
    if len(defaults) > 1:
        raise Misconfigured(
            f"{len(defaults)} butlers in the fleet are the default: {', '.join(defaults)}.",
            "Keep `default = true` in one butler.toml.",
        )
    return entries


def read(folder: Path) -> Entry:
    """Read one butler's folder; raise Misconfigured for anything missing, wrong or unknown in it."""
    path = folder / "butler.toml"
    try:
        raw = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as broken:
        raise Misconfigured(f"{path} is not valid TOML: {broken}.", "Correct it.") from None
    modules = _modules(path, raw)
    _demand_known(path, raw, [*KEYS, *(module.name for module in modules)])
    name, description = raw.get("name"), raw.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Misconfigured(f"{path} has no valid name.", "Use a small letter, then up to 30 of a-z, 0-9 and _.")
    if name in RESERVED:
        raise Misconfigured(f"{path}: `{name}` is a reserved name.", "Choose another name.")
    if not isinstance(description, str) or not description.strip():
        raise Misconfigured(f"{path} has no description.", "Say in one sentence what the butler is for.")
    persona = folder / "PERSONA.md"
    if not persona.is_file():
        raise Misconfigured(f"{persona} is missing.", "Describe who this butler is.")
    default = raw.get("default", False)
    if not isinstance(default, bool):
        raise Misconfigured(f"{path}: `default` is neither true nor false.", "Write default = true, or leave it out.")
    return Entry(name, description.strip(), _text(persona), modules, default)


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


def _demand_known(path: Path, raw: Mapping[str, object], known: Sequence[str]) -> None:
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            hint = f"Did you mean `{near[0]}`?" if near else f"Choose from: {', '.join(known)}."
            raise Misconfigured(f"{path} has the unknown key `{key}`.", hint)


def scaffold(folder: Path, name: str) -> Path:
    """Make a new butler's folder with both files, or raise Misconfigured."""
    if name in RESERVED:
        taken = ", ".join(sorted(RESERVED))
        raise Misconfigured(f"`{name}` is a reserved name.", f"Choose another name; reserved are {taken}.")
    if not _NAME.fullmatch(name):
        raise Misconfigured(f"`{name}` is not a valid name for a butler.", "Use a small letter, then a-z, 0-9 and _.")
    made = folder / name
    if made.exists():
        raise Misconfigured(f"{made} already exists.", "Choose another name.")
    try:
        made.mkdir(parents=True)
    except OSError as refused:
        raise Misconfigured(f"{made} cannot be created: {refused.strerror}.", "Correct --fleet.") from None
    toml = f'name = "{name}"\ndescription = "Say in one sentence what {name} is for."\n'
    (made / "butler.toml").write_text(toml, encoding="utf-8")
    (made / "PERSONA.md").write_text(f"# {name}\n\nWho this butler is, and how it speaks.\n", encoding="utf-8")
    return made
