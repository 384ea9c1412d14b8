"""The registry of runtimes: every kind that a butler.toml may name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from butlers.runtime.agent import AGENT
from butlers.runtime.base import ANTHROPIC_KEY, BASE_URL, OPENAI_KEY, Runtime
from butlers.runtime.claude import CLAUDE
from butlers.runtime.command import COMMAND
from butlers.runtime.script import SCRIPT
from shared.config.settings import Secret, Settings

RUNTIMES: Final[Mapping[str, Runtime]] = MappingProxyType({one.name: one for one in (SCRIPT, COMMAND, CLAUDE, AGENT)})


def keys_of(settings: Settings) -> Mapping[str, str]:
    """Return the keys there are, as a job's `environment` and what `missing` is handed."""
    found = {
        ANTHROPIC_KEY: settings.anthropic_api_key,
        OPENAI_KEY: settings.openai_api_key,
        BASE_URL: settings.model_base_url,
    }
    revealed = {name: one.reveal() if isinstance(one, Secret) else one for name, one in found.items()}
    return {name: one for name, one in revealed.items() if one}
