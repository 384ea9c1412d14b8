"""Daemons under users of their own: what code in a butler's process finds on the machine, and in the database."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg
import pytest
from fastmcp import Client

from butlers import fleet
from butlers.cli.client import mint
from butlers.setup import migrate
from shared.auth import keystore as home
from shared.config.settings import Settings
from shared.db import dsn
from shared.postgres import server as postgres
from tests.privileges import attempts, matrix
from tests.rig.bench import free_block
from tests.rig.cluster import write_fleet

ROOT: Final = Path(__file__).resolve().parents[2]
USERS: Final = {"sandbox": 64001, "switchboard": 64002, "messenger": 64003, "greeter": 64004, "health": 64005}
# Run by the butler's user, in the butler's environment: it is told what to try, and says what it got.
PROBE: Final = """
import asyncio, json, os, sys
sys.path.insert(0, {root!r})
import asyncpg
from tests.privileges.attempts import is_allowed

def readable(path):
    try:
        with open(path, "rb") as file:
            return bool(file.read(1) or True)
    except OSError:
        return False

def listed(path):
    try:
        return bool(os.listdir(path) or True)
    except OSError:
        return False

async def opens(dsn):
    try:
        await (await asyncpg.connect(dsn, timeout=60)).close()
    except (asyncpg.PostgresError, OSError):
        return False
    return True

async def main(task):
    told = dict(files=[one for one in task["files"] if readable(one)],
        folders=[one for one in task["folders"] if listed(one)],
        doors=[one for one in task["doors"] if await opens(one)], cells=[])
    connection = await asyncpg.connect(task["own"])
    for name, verb, text in task["cells"]:
        if await is_allowed(connection, text):
            told["cells"].append([name, verb])
    await connection.close()
    print(json.dumps(told))

asyncio.run(main(json.load(sys.stdin)))
"""


def as_user(name: str, *argv: str) -> list[str]:
    """The command line that becomes that daemon's user, without a group or a capability, and then this."""
    user = str(USERS[name])
    return [
        "setpriv",
        f"--reuid={user}",
        f"--regid={user}",
        "--clear-groups",
        "--inh-caps=-all",
        "--no-new-privs",
        *argv,
    ]


def unfit() -> str:
    """Why this machine cannot give daemons users of their own; empty if it can."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return "only root may start processes under other users, and setpriv does it"
    asked = as_user("greeter", sys.executable, "-c", "import butlers.cli, asyncpg")
    if subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode:
        return "other users cannot read this checkout or its interpreter"
    return ""


@dataclass(slots=True)
class Machine:
    """One home, its embedded server, and daemons that each own nothing but their folder of keys."""

    folder: Path
    server: postgres.Server
    base: int
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def dsn(self) -> str:
        return self.server.dsn_of(dsn.DATABASE)

    def env(self) -> dict[str, str]:
        """What every daemon is told; the URL names no login, so that each takes its own."""
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "DATABASE_URL": f"postgresql:///{dsn.DATABASE}?host={self.server.folder}",
            "BUTLERS_HOME": str(self.home),
            "BUTLERS_FLEET": str(self.folder / "fleet"),
            "BUTLERS_PORT_BASE": str(self.base),
            "BUTLERS_SANDBOX_URL": f"http://127.0.0.1:{self.base + 3}",
            "BUTLERS_SANDBOX_SMTP_URL": f"smtp://127.0.0.1:{self.base + 4}",
            "BUTLERS_SANDBOX_IMAP_URL": f"imap://127.0.0.1:{self.base + 5}",
        }

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                as_user(name, sys.executable, "-m", "butlers.cli", "run", name),
                cwd=ROOT,
                env=self.env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + 300
        while not all("is ready at" in self.said(name) for name in self.processes):
            for name, process in self.processes.items():
                assert process.poll() is None, self.said(name)
            assert time.monotonic() < deadline, {name: self.said(name)[-500:] for name in self.processes}
            time.sleep(0.1)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def probe(self, task: Mapping[str, object]) -> Mapping[str, Sequence[object]]:
        """What code in the greeter's process would get of this."""
        asked = as_user("greeter", sys.executable, "-c", PROBE.format(root=str(ROOT)))
        done = subprocess.run(
            asked, env=self.env(), cwd=ROOT, input=json.dumps(task), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        told: Mapping[str, Sequence[object]] = json.loads(done.stdout)
        return told

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def machine() -> Iterator[Machine]:
    if why := unfit():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="butlers-users-"))
    folder.chmod(0o755)
    base, claim = free_block()
    made = Machine(folder, postgres.start(folder / "home", system_folder=folder / "system"), base)
    try:
        write_fleet(folder / "fleet", ("greeter", "health"))
        made.server.folder.chmod(0o711)  # the owner lets these users connect, and nobody make a socket
        asyncio.run(migrate.ensure_database(made.dsn))
        settings = Settings.from_env({"BUTLERS_HOME": str(made.home)})
        asyncio.run(migrate.migrate(settings, made.dsn, fleet.load(folder / "fleet")))
        (made.home / "sandbox").mkdir(mode=0o700)
        os.chown(made.home / "sandbox", USERS["sandbox"], USERS["sandbox"])
        for name in set(USERS) - {"sandbox"}:
            keys = home.folder(made.home, name)
            for path in (keys, *keys.iterdir()):
                os.chown(path, USERS[name], USERS[name])
        yield made
    finally:
        made.end()
        postgres.stop(made.server)
        claim.close()
        shutil.rmtree(folder)


async def cells(machine: Machine) -> tuple[list[tuple[str, str, str]], list[list[str]]]:
    """Every cell of the matrix as (object, verb, statement), and those that a butler is to get through with."""
    connection = await asyncpg.connect(machine.dsn)
    known = await attempts.writable(connection)
    await connection.close()
    tried, allowed = [], []
    for name, granted in matrix.read().items():
        if name.partition(" ")[0] in {*matrix.VERBS} - {"columns"}:
            for verb, text in attempts.statements(known, name).items():
                tried.append((name, verb, text))
                allowed += [[name, verb]] if verb in granted["butler"] else []
    return tried, allowed


def surroundings(machine: Machine) -> tuple[list[str], list[str]]:
    """All files of the installation and of its processes that hold what others must not know; and all its folders."""
    places = [machine.home, machine.server.data.parent]
    files = [str(path) for place in places for path in place.rglob("*") if path.is_file()]
    folders = [str(path) for place in places for path in place.rglob("*") if path.is_dir()]
    pids = [process.pid for name, process in machine.processes.items() if name != "greeter"] + [machine.server.pid]
    files += [f"/proc/{pid}/{what}" for pid in pids for what in ("environ", "mem", "maps")]
    return files, folders + [f"/proc/{pid}/fd" for pid in pids]


def doors(machine: Machine, password: str) -> list[str]:
    """The other logins by the greeter's password, and the superuser; by it and by their own names."""
    others = {*USERS, "console", home.OWNER, home.UP} - {"greeter"}
    logins = [*(dsn.role_of(machine.dsn, name) for name in sorted(others)), "postgres"]
    server = machine.dsn.rpartition("@")[2]
    return [f"postgresql://{login}:{secret}@{server}" for login in logins for secret in (password, login)]


def titles(machine: Machine) -> bytes:
    """What every user of the machine sees of the daemons' command lines."""
    return b"".join(Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in machine.processes.values())


@pytest.mark.slow
async def test_a_butler_s_process_finds_its_own_keys_its_own_cells_and_nothing_else(machine: Machine) -> None:
    for name in ("sandbox", "switchboard", "messenger", "greeter"):
        machine.start(name)
    await asyncio.to_thread(machine.wait_ready)
    settings = Settings.from_env({"BUTLERS_HOME": str(machine.home), "DATABASE_URL": machine.dsn})
    token = await mint(settings, "greeter", timedelta(hours=1))
    async with Client(f"http://127.0.0.1:{machine.base + 10}/mcp", auth=token) as client:
        answer = await client.call_tool("notify", {"channel": "telegram", "message": "Each of us is somebody else."})
        assert answer.structured_content is not None
        assert answer.structured_content["status"] in {"ok", "queued"}, answer.structured_content

    password = home.read(machine.home, "greeter").password
    tried, allowed = await cells(machine)
    files, folders = surroundings(machine)
    own = dsn.dsn_as(machine.dsn, "greeter", password)
    keys = home.folder(machine.home, "greeter")
    told = machine.probe(
        {
            "files": files,
            "folders": folders,
            "doors": [*doors(machine, password), own],
            "own": own,
            "cells": tried,
        }
    )
    assert set(told["files"]) == {str(machine.home / "ports"), *(str(path) for path in keys.rglob("*"))}
    assert set(told["folders"]) == {str(keys)}
    assert told["doors"] == [own]
    assert told["cells"] == allowed
    assert len(tried) - len(allowed) > 100
    assert password.encode() not in titles(machine)
