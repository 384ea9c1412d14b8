"""The loader: finds the modules that a butler.toml names, and checks what it says to them.

A module is installed and named by its entry point, or its code is found by its dotted path: where Python looks, or in
the fleet's folder, beside the butlers' folders.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from butlers.butler import Components, Context, Module, NoConfig, joined
from butlers.fleet import Entry, ModuleEntry, nearest
from butlers.modules.watch import Watch
from butlers.setup.chain import Chain, demand
from shared.errors import Misconfigured
from shared.telemetry.logs import logger

log = logger("butlers.modules")
# The entry points by which an installed distribution offers its modules.
GROUP: Final = "butlers.modules"
ATTRIBUTE: Final = "MODULE"
# Those that come with the program, named by their last word.
OURS: Final = ("files", "manictime", "schedule", "sessions", "state")
# Schemas that are there already.
RESERVED: Final = frozenset({"shared", "switchboard", "messenger", "console", "public", "information_schema"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A module and what butler.toml tells it; one whose code breaks at import comes as one that cannot start."""

    module: Module
    config: BaseModel


def chains(entries: Sequence[Entry]) -> list[Chain]:
    """Return the chain of migrations of each module of this fleet that has tables."""
    modules = {one.module.name: one.module for entry in entries for one in load(entry)}
    return [Chain(name, module.migrations) for name, module in modules.items() if module.migrations is not None]


def build(modules: Sequence[Loaded], context: Context) -> Components:
    """Make what the modules add to this butler, each under its watch."""
    timings = context.settings.timings
    return joined([Watch(one.module.name, timings).over(built(one, context)) for one in modules])


def built(one: Loaded, context: Context) -> Components:
    """Make what one module adds; of one that breaks here, nothing but a start that says why."""
    module = one.module
    try:
        parts = module.build(context, one.config)
    except (Exception, SystemExit) as bug:
        log.exception("a module broke as it was built", module=module.name)
        return unable(f"its code fails ({type(bug).__name__})")
    if module.migrations is None:
        return parts
    chain = Chain(module.name, module.migrations)

    async def start() -> None:
        async with context.db.work() as connection:
            await demand(connection, chain)
        if parts.start is not None:
            await parts.start()

    return replace(parts, start=start)


def load(entry: Entry) -> list[Loaded]:
    """Return the butler's modules; raise Misconfigured for a name that is none, and for a table that does not fit."""
    return [_load(one, _installed()) for one in entry.modules]


@cache
def _installed() -> Mapping[str, EntryPoint]:
    """Return the modules of installed distributions, all of whose metadata is read for it, once."""
    return {point.name: point for point in entry_points(group=GROUP)}


def _load(entry: ModuleEntry, installed: Mapping[str, EntryPoint]) -> Loaded:
    fleet_folder = str(entry.file.resolve().parents[1])
    if fleet_folder not in sys.path:
        sys.path.append(fleet_folder)  # at the end: it takes the place of nothing that is installed
    path = f"{__package__}.{entry.path}" if entry.path in OURS else entry.path
    path = installed[entry.path].module if entry.path in installed else path
    try:
        module = getattr(importlib.import_module(path), ATTRIBUTE, None)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{path}.".startswith(f"{missing.name}."):
            return _broken(entry, f"it needs the Python module `{missing.name}`, which is not installed")
        raise _unknown(entry, [*OURS, *installed]) from None
    except (Exception, SystemExit) as bug:
        log.exception("a module broke at import", module=entry.path)
        return _broken(entry, f"its code fails at import ({type(bug).__name__})")
    if entry.name in RESERVED:
        raise Misconfigured(f"{entry.file}: `{entry.name}` is a reserved name for a module.", "Rename the module.")
    if not isinstance(module, Module) or module.name != entry.name:
        raise Misconfigured(
            f"{entry.file}: `{entry.path}` holds no module called `{entry.name}`.",
            f"Give it the value {ATTRIBUTE} = Module({entry.name!r}, ...).",
        )
    return Loaded(module, configured(entry, module.config))


def configured(entry: ModuleEntry, model: type[BaseModel]) -> BaseModel:
    """Return the table as this model; raise Misconfigured with file, key and nearest name if it does not fit."""
    try:
        return model.model_validate(dict(entry.table))
    except ValidationError as wrong:
        first = wrong.errors()[0]
        key = ".".join(str(step) for step in first["loc"])
        table, known = f"{entry.file}: [{entry.name}]", _fields_at(model, first["loc"][:-1])
        if first["type"] == "extra_forbidden":
            where = ".".join(str(step) for step in first["loc"][:-1])
            takes = f"{f'`{where}`' if where else f'[{entry.name}]'} takes {', '.join(known) or 'no key at all'}."
            hint = nearest(str(first["loc"][-1]), [*known]) or takes
            raise Misconfigured(f"{table} has the unknown key `{key}`.", hint) from None
        if first["type"] == "missing":
            means = known[str(first["loc"][-1])].description
            raise Misconfigured(f"{table} has no `{key}`.", f"Add it: {means}" if means else "Add it.") from None
        said = first["msg"].removeprefix("Value error, ").removesuffix(".")
        raise Misconfigured(f"{table} {key}: {said}.", "Correct it.") from None


def _fields_at(model: type[BaseModel], steps: Sequence[int | str]) -> Mapping[str, FieldInfo]:
    """Return the fields of the table at this place, which stands in lists and tables of the model."""
    for step in steps:
        field = model.model_fields.get(step) if isinstance(step, str) else None
        inner = (one for one in _types_in(field.annotation if field else None) if issubclass(one, BaseModel))
        model = next(inner, model)
    return model.model_fields


def _types_in(annotation: object) -> Iterator[type]:
    """Yield the classes of which an annotation is made."""
    if inner := get_args(annotation):
        for one in inner:
            yield from _types_in(one)
    elif isinstance(annotation, type):
        yield annotation


def unable(why: str) -> Components:
    """Return what is left of a module that has no tools and cannot start, for the reason given."""

    async def start() -> None:
        raise Misconfigured(f"It cannot be loaded: {why}.", "Correct it and start the butler again.")

    return Components(start=start)


def _broken(entry: ModuleEntry, why: str) -> Loaded:
    return Loaded(Module(entry.name, lambda _context, _config: unable(why)), NoConfig())


def _unknown(entry: ModuleEntry, installed: Sequence[str]) -> Misconfigured:
    there = f" Installed: {', '.join(sorted(installed))}." if installed else ""
    hint = nearest(entry.path, installed) or f"Install it, or name its Python module.{there}"
    return Misconfigured(f"{entry.file}: there is no module `{entry.path}`.", hint)
