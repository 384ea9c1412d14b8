"""A butler keeps its port, whoever comes and goes beside it."""

from dataclasses import replace
from pathlib import Path

import pytest

from butlers import fleet
from butlers.daemon.sockets import default_port
from butlers.setup import ports
from shared.config.settings import Settings
from shared.errors import Misconfigured


def test_a_butler_keeps_its_port_when_others_come_and_go(tmp_path: Path) -> None:
    settings = replace(Settings.from_env({}), home=tmp_path)

    def port_of(name: str, *names: str) -> int:
        entries = [fleet.Entry(one, "A butler.", "# Who") for one in sorted(names)]
        ports.note(tmp_path, [entry.name for entry in entries])
        return default_port(settings, entries, name) - settings.port_base

    assert [port_of(name, "greeter", "health") for name in ("greeter", "health")] == [10, 11]
    assert [port_of(name, "atlas", "greeter", "health") for name in ("atlas", "greeter", "health")] == [12, 10, 11]
    assert [port_of(name, "health", "zoe") for name in ("health", "zoe")] == [11, 13]
    assert port_of("greeter", "greeter", "health") == 10
    assert (tmp_path / ports.FILE).stat().st_mode & 0o777 == 0o644
    (tmp_path / ports.FILE).write_text("greeter first\n")
    with pytest.raises(Misconfigured, match="cannot be read"):
        port_of("greeter", "greeter")


def test_before_the_first_migration_ports_follow_the_names(tmp_path: Path) -> None:
    assert ports.places(tmp_path / "nowhere", ["a", "b"]) == {"a": 0, "b": 1}
