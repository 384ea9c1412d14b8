"""The runtime `agent`: pydantic-ai with a model of Anthropic, of OpenAI, or of any server that speaks OpenAI's way."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from butlers.runtime import child
from butlers.runtime.base import ANTHROPIC_KEY, BASE_URL, OPENAI_KEY, Event, Job, Runtime

MEMORY_MB: Final = 1024
CHILD: Final = Path(__file__).with_name("agent_child.py")
LIBRARIES: Final = ("pydantic_ai", "anthropic", "openai")
KEYS: Final = {"anthropic": ANTHROPIC_KEY, "openai": OPENAI_KEY}


class AgentSettings(BaseModel):
    """The table of a butler for which a model thinks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str, Field(pattern=r"^(anthropic|openai):[!-~]+$", max_length=200)] = Field(
        description="The provider's protocol and the model, as `anthropic:claude-sonnet-4-5`."
    )
    notices: Literal["result", "synthetic"] = Field(
        default="result",
        description="Where the model reads a notice: at the end of a tool's result, or as the result of a call that "
        "nobody made.",
    )

    @property
    def provider(self) -> str:
        """Return whose protocol it is."""
        return self.model.partition(":")[0]


def missing(settings: AgentSettings, keys: Mapping[str, str]) -> str | None:
    """Return what is missing here in one sentence, or None; a server of your own may ask for no key."""
    if any(find_spec(name) is None for name in LIBRARIES):
        return "The runtime `agent` is not installed: install `butlers[agent]`."
    key = KEYS[settings.provider]
    if key not in keys and not (settings.provider == "openai" and BASE_URL in keys):
        return f"`{settings.model}` has no key: set {key}, or {key}_FILE."
    return None


def run(job: Job, stop: asyncio.Event) -> AsyncIterator[Event]:
    """Let the model think in a child that holds its key and nothing else of ours."""
    settings = AgentSettings.model_validate(job.settings)
    own = settings.provider.upper()
    told = {
        "url": job.url,
        "token_file": str(job.token_file),
        "persona": job.persona,
        "prompt": job.prompt,
        "model": settings.model,
        "limits": asdict(job.limits),
        "synthetic": job.nonce if settings.notices == "synthetic" else "",
    }
    environment = {
        f"{own}_API_KEY": job.environment.get(KEYS[settings.provider], ""),
        f"{own}_BASE_URL": job.environment.get(BASE_URL, ""),
    }
    handed = {name: value for name, value in environment.items() if value}
    command = child.Command((sys.executable, "-I", str(CHILD)), json.dumps(told), MEMORY_MB, handed, paid=True)
    return child.played(job, command, child.told, stop)


AGENT: Final = Runtime("agent", AgentSettings, missing, run)
