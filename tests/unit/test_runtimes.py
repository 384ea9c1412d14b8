"""The tables of runtimes: what the page shows fits, and what has no meaning is refused."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from butlers.runtime.registry import RUNTIMES, keys_of
from shared.config.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SHOWN = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "runtimes.md").read_text(encoding="utf-8"), re.DOTALL)


def test_every_runtime_is_shown_with_a_table_that_fits() -> None:
    tables = [tomllib.loads(text)["runtime"] for text in SHOWN]
    kinds = [table.pop("kind") for table in tables]
    assert sorted(kinds) == sorted(RUNTIMES)
    for kind, table in zip(kinds, tables, strict=True):
        RUNTIMES[kind].config.model_validate(table)


WRONG: list[tuple[str, Mapping[str, object]]] = [
    ("script", {"steps": []}),
    ("script", {"steps": [{}]}),
    ("script", {"steps": [{"say": "a", "wait": 1}]}),
    ("script", {"steps": [{"say": "a", "arguments": {"b": 1}}]}),
    ("script", {"steps": [{"call": "a", "argument": {}}]}),
    ("command", {"command": []}),
    ("command", {"command": ["a"], "keys": ["telegram"]}),
    ("command", {"command": ["a"], "environment": {"A=B": "c"}}),
    ("claude", {"model": "--dangerously-skip-permissions"}),
    ("agent", {}),
    ("agent", {"model": "gpt-5"}),
    ("agent", {"model": "google:gemini"}),
]


@pytest.mark.parametrize(("kind", "table"), WRONG, ids=str)
def test_a_table_that_does_not_fit_is_refused(kind: str, table: Mapping[str, object]) -> None:
    with pytest.raises(ValidationError):
        RUNTIMES[kind].config.model_validate(table)


def test_only_the_keys_there_are_reach_a_job() -> None:
    said = {"BUTLERS_OPENAI_API_KEY": "sk-of-somebody", "BUTLERS_MODEL_BASE_URL": "http://127.0.0.1:11434/v1"}
    assert keys_of(Settings.from_env({**said, "BUTLERS_CONSOLE_PASSWORD": "of the owner"})) == said
    assert keys_of(Settings.from_env({})) == {}
