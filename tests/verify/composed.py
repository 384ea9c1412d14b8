"""Dockerfile and docker-compose.yml as their tests read them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: Mapping[str, Any] = yaml.safe_load(TEXT)
HOME = "/var/lib/butlers"
VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>[A-Z_]+):-(?P<default>[^}]*)\})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One volume, or one folder beside the file, in one container."""

    volume: str
    target: str
    read_only: bool

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder beside the file."""
        return self.volume.startswith("./")


@dataclass(frozen=True, slots=True)
class Container:
    """One container as the file describes it, with the variables of a .env filled in."""

    name: str
    said: Mapping[str, Any] = field(repr=False)
    environment: Mapping[str, str]
    mounts: Sequence[Mount]

    @property
    def ours(self) -> bool:
        """Whether it runs our image."""
        return str(self.said["image"]).startswith("butlers:")

    @property
    def daemon(self) -> bool:
        """Whether it is one of our daemons."""
        return self.ours and "restart" in self.said

    @property
    def networks(self) -> set[str]:
        """The networks it is in."""
        return set(self.said.get("networks", ()))


def filled(text: str, variables: Mapping[str, str]) -> str:
    """The text as Compose reads it with these variables."""
    assert not re.search(r"\$(?!\$|\{[A-Z_]+:-)", VARIABLE.sub("", text)), f"a default is missing: {text}"
    return VARIABLE.sub(lambda m: "$" if m["escaped"] else variables.get(m["name"]) or m["default"], text)


def mount(text: str) -> Mount:
    volume, target, *mode = text.split(":")
    assert mode in ([], ["ro"])
    return Mount(volume, target, bool(mode))


def containers(variables: Mapping[str, str] | None = None) -> dict[str, Container]:
    """All containers of the file, as they would be with a .env of these variables."""
    given = variables or {}
    return {
        name: Container(
            name,
            said,
            {key: filled(value, given) for key, value in said.get("environment", {}).items()},
            [mount(text) for text in said.get("volumes", ())],
        )
        for name, said in COMPOSE["services"].items()
    }


ALL = containers()
OURS = [name for name, one in ALL.items() if one.ours]
DAEMONS = [name for name, one in ALL.items() if one.daemon]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions in order: (word, the rest)."""
    kept = "\n".join(line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    lines = kept.replace("\\\n", " ").splitlines()
    return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines) if word]


def last_stage() -> list[tuple[str, str]]:
    steps = instructions()
    return steps[max(n for n, (word, _) in enumerate(steps) if word == "FROM") :]
