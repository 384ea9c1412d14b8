"""One story, whoever plays it: read a tool, tell the owner by another, and say the last words."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.rig.model_server import Call, ModelServer, Words

TOLD = "There are 3 beds."
LAST = "The owner knows."
PROGRAM = Path(__file__).with_name("program.py")
STEPS = [
    {"call": "beds"},
    {"call": "notify", "arguments": {"message": "There are ${beds.count} beds."}},
    {"say": LAST},
]


@dataclass(frozen=True, slots=True)
class Player:
    """A runtime and its table; which wire its model is asked on, and how it names its butler's tools."""

    runtime: str
    table: Mapping[str, object]
    path: str | None = None
    key: str = ""
    prefix: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self, models: ModelServer) -> dict[str, str]:
        """What its job has beside the keys."""
        return {} if self.path is None else {"BUTLERS_MODEL_BASE_URL": models.url + self.path}

    def answers(self) -> list[Words | Call]:
        """What its model says."""
        return [Call(f"{self.prefix}beds"), Call(f"{self.prefix}notify", {"message": TOLD}), Words(LAST)]


SCRIPT = Player("script", {"steps": STEPS})
COMMAND = Player("command", {"command": [sys.executable, "-I", str(PROGRAM), "{config}"]})
MESSAGES = Player("agent", {"model": "anthropic:claude-sonnet-4-5"}, "", "BUTLERS_ANTHROPIC_API_KEY")
CHAT = Player("agent", {"model": "openai:gpt-5"}, "/v1", "BUTLERS_OPENAI_API_KEY")


def claude(command: str) -> Player:
    """Claude Code, found at this path."""
    return Player("claude", {"command": command}, "", "BUTLERS_ANTHROPIC_API_KEY", "mcp__garden__")
