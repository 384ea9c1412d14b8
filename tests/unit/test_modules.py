"""Modules: found by name, told what butler.toml says, and degraded alone when they break."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from butlers.butler import Arguments, Components, Result, Tool, ToolCall, joined
from butlers.fleet import Entry, ModuleEntry
from butlers.modules.loader import built, load
from butlers.modules.watch import FAILURES, Watch
from butlers.tools.gated import sentence
from shared.auth.tokens import Caller
from shared.config.timings import STANDARD
from shared.errors import Degraded, InvalidInput, Misconfigured, Unavailable

pytestmark = pytest.mark.asyncio
CALL = ToolCall(Caller("health", "client", "j"), {})
Write = Callable[[str, str], None]
SOON = replace(STANDARD, module_again=0.001, module_failures_within=0.5)


class Beds(BaseModel):
    """What a module of these tests takes."""

    model_config = ConfigDict(extra="forbid")
    rows: int = 1


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a Python module that can be imported by its name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)

    return write


def entry(path: str, **table: object) -> Entry:
    return Entry("health", "x", "x", [ModuleEntry(path, table, Path("fleet/health/butler.toml"))])


def tools(*names: str) -> Components:
    async def water(_: ToolCall) -> Result:
        return Result({"watered": True})

    return Components([Tool(name, "Water.", {}, water) for name in names])


BEDS = "from tests.unit.test_modules import Beds, tools\nfrom butlers.butler import Module\n"


async def test_a_module_is_found_by_its_path_and_told_its_table(code: Write) -> None:
    code("beds_told", f"{BEDS}MODULE = Module('beds_told', lambda c, s: tools('water'), Beds)")
    (loaded,) = load(entry("beds_told", rows=3))
    assert loaded.config == Beds(rows=3)


@pytest.mark.parametrize(
    ("source", "table", "said"),
    [
        (
            "MODULE = Module('b', lambda c, s: tools(), Beds)",
            {"rws": 1},
            "[b] has the unknown key `rws`. Did you mean `rows`?",
        ),
        (
            "MODULE = Module('b', lambda c, s: tools())",
            {"rows": 1},
            "[b] has the unknown key `rows`. [b] takes no key at all.",
        ),
        (
            "MODULE = Module('b', lambda c, s: tools(), Beds)",
            {"rows": "many"},
            "[b] rows: Input should be a valid integer",
        ),
        ("MODULE = Module('c', lambda c, s: tools())", {}, "holds no module called `b`"),
        ("OTHER = 1", {}, "holds no module called `b`"),
    ],
    ids=["unknown key", "no key", "unfit", "another name", "none"],
)
async def test_what_does_not_fit_is_refused_by_file_and_key(
    code: Write, source: str, table: dict[str, object], said: str, request: pytest.FixtureRequest
) -> None:
    name = f"beds_{request.node.callspec.id.replace(' ', '_')}"
    code(name, BEDS + source.replace("'b'", f"'{name}'"))
    with pytest.raises(Misconfigured) as refused:
        load(entry(name, **table))
    assert said.replace("[b]", f"[{name}]").replace("`b`", f"`{name}`") in str(refused.value)
    assert "fleet/health/butler.toml" in str(refused.value)


async def test_a_module_that_is_not_there_is_refused() -> None:
    with pytest.raises(Misconfigured, match="there is no module `no_such_beds`"):
        load(entry("no_such_beds"))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise ValueError('x')", "fails at import (ValueError)"),
        ("import no_such_library", "needs the Python module `no_such_library`"),
    ],
    ids=["a bug", "a library"],
)
async def test_code_that_breaks_at_import_is_degraded_alone(code: Write, source: str, why: str) -> None:
    name = f"beds_{source.split(maxsplit=1)[0]}"
    code(name, source)
    (loaded,) = load(entry(name))
    parts = loaded.module.build(None, loaded.config)  # type: ignore[arg-type]  # it looks at no context
    assert parts.start is not None
    with pytest.raises(Misconfigured) as refused:
        await parts.start()
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise SystemExit(0)", "fails at import (SystemExit)"),
        ("MODULE = Module(__name__, lambda c, s: exit(0))", "its code fails (SystemExit)"),
    ],
    ids=["at import", "as it is built"],
)
async def test_code_that_exits_is_degraded_alone(
    code: Write, source: str, why: str, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id.replace(" ", "_")
    code(name, BEDS + source)
    (loaded,) = load(entry(name))
    parts = built(loaded, None)  # type: ignore[arg-type]  # it looks at no context
    assert parts.start is not None
    with pytest.raises(Misconfigured) as refused:
        await parts.start()
    assert why in str(refused.value)


async def test_a_tool_that_exits_as_it_says_what_it_would_do_refuses_that_call_alone() -> None:
    def says(_: Arguments) -> str:
        raise SystemExit(0)

    (tool,) = tools("water").tools
    with pytest.raises(InvalidInput, match="`water` cannot say what it would do"):
        sentence(replace(tool, gate="ask", says=says), {})


async def test_two_tools_with_one_name_are_refused() -> None:
    with pytest.raises(Misconfigured, match="Two tools are called `water`"):
        joined([tools("water"), tools("dig", "water")])


async def watched(parts: Components, seen: Callable[[Components, Watch], Awaitable[None]]) -> None:
    """Run what the watch makes of these parts until `seen` has returned."""
    watch, stopping = Watch("beds", SOON), asyncio.Event()
    made = watch.over(parts)
    running = [asyncio.ensure_future(one(stopping)) for one in made.loops]
    try:
        async with asyncio.timeout(20):
            await seen(made, watch)
    finally:
        stopping.set()
        await asyncio.gather(*running)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


async def test_a_module_that_cannot_start_refuses_its_tools_and_starts_later() -> None:
    missing = ["the file", "the file"]

    async def start() -> None:
        if missing:
            raise Unavailable(f"There is not {missing.pop()}.", "Put it there.")

    async def seen(made: Components, watch: Watch) -> None:
        with pytest.raises(Degraded) as refused:
            await made.tools[0].handler(CALL)
        assert "`water` cannot be used now." in str(refused.value)
        await until(lambda: len(missing) == 1)
        assert made.remarks() == ["The module `beds` is degraded. There is not the file. Put it there."]
        await until(lambda: watch.trouble is None)
        assert (await made.tools[0].handler(CALL)).answer == {"watered": True}
        assert made.remarks() == []

    await watched(replace(tools("water"), start=start), seen)


async def test_a_loop_that_keeps_breaking_degrades_its_module_until_it_lasts() -> None:
    begun = 0

    async def breaks(stopping: asyncio.Event) -> None:
        nonlocal begun
        begun += 1
        if begun <= FAILURES:
            raise ValueError(begun)
        await stopping.wait()

    async def seen(made: Components, watch: Watch) -> None:
        await until(lambda: watch.trouble is not None)
        assert begun >= FAILURES
        with pytest.raises(Degraded, match="One of its loops keeps breaking"):
            await made.tools[0].handler(CALL)
        await until(lambda: watch.trouble is None)
        assert begun == FAILURES + 1

    await watched(replace(tools("water"), loops=[breaks]), seen)


async def test_a_loop_that_broke_once_degrades_nothing() -> None:
    begun = 0

    async def breaks(stopping: asyncio.Event) -> None:
        nonlocal begun
        begun += 1
        if begun < FAILURES:
            raise ValueError(begun)
        await stopping.wait()

    async def seen(made: Components, watch: Watch) -> None:
        await until(lambda: begun == FAILURES)
        assert watch.trouble is None
        assert (await made.tools[0].handler(CALL)).answer == {"watered": True}

    await watched(replace(tools("water"), loops=[breaks]), seen)


async def test_what_would_end_the_house_is_an_error_of_its_module() -> None:
    begun, ends, raised = 0, [SystemExit(2), asyncio.CancelledError()], [SystemExit(2), asyncio.CancelledError()]

    async def exits(_: ToolCall) -> Result:
        raise raised.pop()

    async def breaks(stopping: asyncio.Event) -> None:
        nonlocal begun
        begun += 1
        if ends:
            raise ends.pop()
        await stopping.wait()

    async def seen(made: Components, watch: Watch) -> None:
        await until(lambda: begun == 3)
        for said in ("what was cancelled", "SystemExit"):
            with pytest.raises(RuntimeError, match=said):
                await made.tools[0].handler(CALL)
        assert watch.trouble is None

    parts = tools("water")
    await watched(replace(parts, tools=[replace(parts.tools[0], handler=exits)], loops=[breaks]), seen)


async def test_a_start_that_cancels_itself_is_tried_again() -> None:
    begun = 0

    async def start() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise asyncio.CancelledError

    async def seen(_: Components, watch: Watch) -> None:
        await until(lambda: watch.trouble is None)
        assert begun == 2

    await watched(replace(tools("water"), start=start), seen)


async def test_a_loop_that_is_cut_off_is_waited_for() -> None:
    begun, done = asyncio.Event(), []

    async def puts_away(_: asyncio.Event) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            done.append("put away")

    made = Watch("beds", SOON).over(Components(loops=[puts_away]))
    running = asyncio.ensure_future(made.loops[0](asyncio.Event()))
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    assert done == ["put away"]
