"""The runtime `script`: the same steps every time, without a model and without a key; for demos and tests."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from butlers.runtime import child
from butlers.runtime.base import Event, Job, Runtime

MEMORY_MB: Final = 256
CHILD: Final = Path(__file__).with_name("script_child.py")


class Step(BaseModel):
    """One step: call a tool, say a text, or wait so many seconds.

    A text may hold `${prompt}` and `${NAME.key.0}` of an earlier answer, which is known by `keep`, else by its tool.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    call: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(None, description="The tool to call.")
    arguments: dict[str, JsonValue] = Field({}, description="Its arguments.")
    keep: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] | None = Field(
        None, description="By what name its answer is known; else by the tool's."
    )
    say: str | None = Field(None, description="A text to say.")
    wait: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] | None = Field(
        None, description="Seconds to wait."
    )

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        if sum(one is not None for one in (self.call, self.say, self.wait)) != 1:
            raise ValueError("A step has one of call, say and wait.")
        if self.call is None and (self.arguments or self.keep):
            raise ValueError("Only a step with call has arguments and keep.")
        return self


class ScriptSettings(BaseModel):
    """The table of a butler that plays a script."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=1000)] = Field(
        description="What is done, one after the other."
    )


def missing(_settings: ScriptSettings, _keys: Mapping[str, str]) -> str | None:
    """Return None: a script needs nothing but this program."""
    return None


def run(job: Job, stop: asyncio.Event) -> AsyncIterator[Event]:
    """Play the steps in a child that is an MCP client of its butler."""
    settings = ScriptSettings.model_validate(job.settings)
    told = {
        "url": job.url,
        "token_file": str(job.token_file),
        # A script obeys nobody, and is handed the words alone.
        "prompt": job.words or job.prompt,
        "turns": job.limits.turns,
        "steps": [step.model_dump(exclude_none=True) for step in settings.steps],
    }
    command = child.Command((sys.executable, "-I", "-S", str(CHILD)), json.dumps(told), MEMORY_MB)
    return child.played(job, command, child.told, stop)


SCRIPT: Final = Runtime("script", ScriptSettings, missing, run, hears=False)
