"""The reference of butler.toml and of the modules: `python -m tests.reference` writes docs/butler-toml.md anew."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from butlers import fleet, schedules
from butlers.butler import Context, Module, NoConfig, Tool
from butlers.daemon.app import CORE
from butlers.modules import loader
from butlers.runtime.registry import RUNTIMES
from butlers.runtime.script import Step
from butlers.sessions.settings import RuntimeTable
from butlers.tools import ask_butler, desk_notify
from shared.config.timings import STANDARD

FILE = Path(__file__).resolve().parents[1] / "docs" / "butler-toml.md"
HEAD = """# Reference of butler.toml and of the modules

Written from the code by `python -m tests.reference`. How these things work together stands in
[schedules.md](schedules.md), [runtimes.md](runtimes.md), [sessions.md](sessions.md) and [modules.md](modules.md).
"""
# What `build` of a module looks at; it reads and writes nothing.
NOWHERE = cast("Context", SimpleNamespace(settings=SimpleNamespace(timings=STANDARD)))


def text() -> str:
    """The page as the code is now."""
    return "\n".join([HEAD, *_file(), *_runtimes(), *_tools()])


def _file() -> Iterator[str]:
    yield from ("## The file", "", *_table(fleet.KEYS), "", "## [[schedules]]", "")
    yield from _table({key: f"{said} `{schedules.EXAMPLES[key]}`" for key, said in schedules.KEYS.items()})
    yield ""


def _runtimes() -> Iterator[str]:
    yield from ("## [runtime]", "", *_fields(RuntimeTable), "")
    for name, runtime in RUNTIMES.items():
        yield from (f'### kind = "{name}"', "", *_fields(runtime.config), "")
    yield from ("### [[runtime.steps]] of a script", "", *_fields(Step), "")


def _tools() -> Iterator[str]:
    yield from ("## The tools that every butler has", "")
    for module in CORE:
        yield from map(_tool, module.build(NOWHERE, NoConfig()).tools)
    yield from ("", "With `calls`:", "", *map(_tool, _for_clients(ask_butler.asking(NOWHERE, ["health"]).tools)), "")
    yield from ("With `desk = true`:", "", *map(_tool, desk_notify.popups(NOWHERE).tools), "")
    for name in loader.OURS:
        module = cast("Module", import_module(f"butlers.modules.{name}").MODULE)
        yield from (f"## The module `{name}`", "")
        if module.config is not NoConfig:
            yield from (f"Its table `[{name}]`:", "", *_fields(module.config), "")
        yield from (*map(_tool, module.build(NOWHERE, module.config()).tools), "")


def _for_clients(tools: object) -> Iterator[Tool]:
    return (tool for tool in cast("list[Tool]", tools) if not tool.hop)


def _tool(tool: Tool) -> str:
    """One line: its name with its arguments, those that may be left out with a question mark, and what it does."""
    required = cast("list[str]", tool.parameters.get("required", []))
    names = cast("Mapping[str, object]", tool.parameters.get("properties", {}))
    taken = ", ".join(name if name in required else f"{name}?" for name in names)
    return f"- `{tool.name}({taken})`: {' '.join(tool.description.split())}"


def _fields(model: type[BaseModel]) -> Iterator[str]:
    yield from ("| key | default | |", "| --- | --- | --- |")
    for name, one in model.model_fields.items():
        default = "" if one.default is PydanticUndefined or one.default is None else f"`{_toml(one.default)}`"
        assert one.description, f"{model.__name__}.{name} has no description"
        yield f"| `{name}` | {default} | {one.description} |"


def _toml(value: object) -> str:
    if isinstance(value, frozenset):
        return str(sorted(value))
    return f'"{value}"' if isinstance(value, str) else str(value)


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    yield from ("| key | |", "| --- | --- |")
    yield from (f"| `{key}` | {said} |" for key, said in rows.items())


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
