"""The table [runtime] of a butler.toml: what does not fit is refused by file, key and nearest name."""

from pathlib import Path

import pytest

from butlers.fleet import DEMO, ModuleEntry, load
from butlers.runtime.base import Limits
from butlers.sessions.settings import demand_setups, setup_of
from shared.errors import Misconfigured

STEPS = [{"say": "hello"}]
WRONG: dict[str, tuple[dict[str, object], str]] = {
    "no kind": ({}, "b.toml: [runtime] has no `kind`. Write for example"),
    "unknown kind": ({"kind": "skript"}, "there is no runtime `skript`. Did you mean `script`?"),
    "a list for a kind": ({"kind": []}, "there is no runtime `[]`."),
    "unknown key": ({"kind": "script", "steps": STEPS, "minute": 1}, "unknown key `minute`. Did you mean `minutes`?"),
    "another's key": ({"kind": "script", "steps": STEPS, "model": "x"}, "[runtime] has the unknown key `model`."),
    "a limit that bounds nothing": (
        {"kind": "command", "command": ["a"], "tokens": 1},
        "[runtime] tokens: What a `command` uses is not counted, so that it would bound nothing. Take it out;",
    ),
    "no place": ({"kind": "script", "steps": STEPS, "at_once": 0}, "[runtime] at_once: Input should be greater"),
    "no time": ({"kind": "script", "steps": STEPS, "minutes": 0}, "[runtime] minutes: Input should be greater than 0"),
    "no number": ({"kind": "script", "steps": STEPS, "dollars": "much"}, "[runtime] dollars: Input should be a valid"),
    "nothing to do": ({"kind": "script"}, "[runtime] has no `steps`. Add it: What is done, one after the other."),
    "a step's unknown key": (
        {"kind": "script", "steps": [{"tool": "notify"}]},
        "[runtime] has the unknown key `steps.0.tool`. `steps.0` takes call, arguments, keep, say, wait.",
    ),
    "a step's mistyped key": ({"kind": "script", "steps": [{"cal": "notify"}]}, "`steps.0.cal`. Did you mean `call`?"),
    "two things at once": (
        {"kind": "script", "steps": [{"call": "notify", "say": "x"}]},
        "[runtime] steps.0: A step has one of call, say and wait. Correct it.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_by_file_and_key(name: str) -> None:
    table, said = WRONG[name]
    with pytest.raises(Misconfigured) as wrong:
        setup_of(ModuleEntry("runtime", table, Path("b.toml")))
    assert str(wrong.value).startswith("b.toml: ")
    assert said in str(wrong.value)


def test_what_is_not_said_is_as_documented() -> None:
    setup = setup_of(ModuleEntry("runtime", {"kind": "script", "steps": STEPS, "turns": 3}, Path("b.toml")))
    assert (setup.at_once, setup.dollars_per_day, setup.limits) == (1, 10.0, Limits(10, 3, 200_000, 1.0))


def test_the_demo_s_table_fits() -> None:
    entries = load(DEMO)
    assert [entry.runtime is not None for entry in entries] == [True]
    demand_setups(entries)
