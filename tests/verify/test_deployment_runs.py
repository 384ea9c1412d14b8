"""Every container's command as a real process, standing where its container would.

Each listens on a loopback address of its own in place of its name, has its volumes under a root folder of its own,
and knows no other environment than the file's.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import aiohttp
import asyncpg
import pytest
from fastmcp import Client

from butlers.cli.reload import FOLDER as RUNNING
from butlers.setup.scaffold import scaffold
from shared.home_folder import LOGS, SESSIONS
from shared.postgres import server
from shared.postgres.socket_folder import PORT
from tests.rig.waiting import eventually
from tests.verify.composed import ALL, COMPOSE, DAEMONS, HOME, OURS, ROOT, last_stage

BIN = Path(sys.executable).parent
HOSTED = re.compile(rf"(?<=[/@])({'|'.join(ALL)}):(\d+)\b")
TOLD = "Good morning. All containers are up."


@dataclass(slots=True)
class Machine:
    """The containers of the file as processes of this machine (Linux: all of 127.0.0.0/8 is loopback)."""

    folder: Path
    database: server.Server
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def address(self, name: str) -> str:
        """The loopback address that stands for the container's own; no other daemon listens there."""
        pid = os.getpid()
        return f"127.{64 + pid % 128}.{pid // 128 % 250}.{list(ALL).index(name) + 2}"

    def root(self, name: str) -> Path:
        return self.folder / "roots" / name

    def placed(self, name: str, text: str) -> str:
        """The text with its folders and hosts as they are here."""
        database = f"{urllib.parse.quote(str(self.database.folder), safe='')}:{PORT}"
        for path in ("/run/database", "/run/console", "/srv/fleet", HOME):
            text = text.replace(path, f"{self.root(name)}{path}")
        text = HOSTED.sub(lambda m: database if m[1] == "postgres" else f"{self.address(m[1])}:{m[2]}", text)
        text = text.replace("http://fleet", f"http://{self.address('fleet')}")  # each butler adds its port
        return text.replace("0.0.0.0", self.address(name))

    def furnish(self) -> None:
        """Give each container of ours its root with its volumes in it, and nothing else."""
        for name in OURS:
            (self.folder / "tmp" / name).mkdir(parents=True)
            for one in sorted(ALL[name].mounts, key=lambda each: each.target):
                volume, target = self.folder / "volumes" / one.volume, self.root(name) / one.target[1:]
                volume.mkdir(parents=True, exist_ok=True)
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.is_symlink():  # a volume inside a volume is there for all who see the outer one
                    target.symlink_to(volume)
            (self.root(name) / HOME[1:]).mkdir(parents=True, exist_ok=True)
            # The image is read-only, and so is the home: nothing can be made there where no volume is.
            for one_kept in (LOGS, RUNNING, SESSIONS):
                (self.root(name) / HOME[1:] / one_kept).touch()

    def surroundings(self, name: str) -> dict[str, str]:
        """What the process finds: the image's variables, the file's, and where our packages and /tmp are here."""
        image = dict(pair.split("=", 1) for word, rest in last_stage() if word == "ENV" for pair in shlex.split(rest))
        image["PATH"] = f"{BIN}:{os.defpath}"
        given = {key: self.placed(name, value) for key, value in (image | dict(ALL[name].environment)).items()}
        return given | {
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.folder / "tmp" / name),
            "HOME": given.get("BUTLERS_HOME", ""),
        }

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """The container's command, or the image's program with these arguments."""
        program = ALL[name].said.get("entrypoint", json.loads(dict(last_stage())["ENTRYPOINT"]))
        program = [sys.executable, "-m", "butlers.cli"] if program == ["butlers"] else program
        words = [*program, *(arguments or ALL[name].said["command"])]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [self.placed(name, word) for word in words],
                cwd=self.root(name) / HOME[1:],
                env=self.surroundings(name),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if arguments else log,
                stderr=log,
            )

    def once(self, name: str, *arguments: str) -> str:
        """Run it to its end, which must be a good one; what it printed, if it was given arguments."""
        with self.start(name, *arguments) as process:
            printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0, self.log(name)
        return (printed or b"").decode().strip()

    def healthy(self, name: str) -> bool:
        """What the container's own health check finds."""
        kind, *words = ALL[name].said["healthcheck"]["test"]
        assert kind == "CMD"
        words = [word.replace("127.0.0.1", self.address(name)) for word in words]
        done = subprocess.run(words, env=self.surroundings(name), capture_output=True, check=False, timeout=60)
        return done.returncode == 0

    def get(self, name: str, path: str, host: str = "127.0.0.1") -> str:
        """A page of the container, asked for as by somebody who knows it as that host."""
        port = str(ALL[name].said["healthcheck"]["test"][-1]).split(":")[2].partition("/")[0]
        asked = urllib.request.Request(f"http://{self.address(name)}:{port}{path}", headers={"Host": f"{host}:{port}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=30) as answer:
            return str(answer.read().decode())

    def log(self, name: str) -> str:
        return f"{name}:\n{(self.folder / f'{name}.log').read_text()[-3000:]}"

    def end(self) -> None:
        """Leave no process behind, however the test ended."""
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def machine() -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="butlers-containers-"))
    folder.chmod(0o755)  # the account PostgreSQL runs as must be able to pass
    made = Machine(folder, server.start(folder / "server", system_folder=folder / "system"))
    made.furnish()
    try:
        yield made
    finally:
        made.end()
        server.stop(made.database)
        shutil.rmtree(folder)


async def become_the_container(machine: Machine) -> None:
    """Make of the server what the image would have made of it."""
    password = (machine.folder / "volumes" / "superuser" / "password").read_text()
    connection = await asyncpg.connect(machine.database.dsn)
    await connection.execute(f"CREATE DATABASE {ALL['postgres'].environment['POSTGRES_DB']}")
    await connection.execute(f"ALTER ROLE postgres PASSWORD '{password}'")
    await connection.close()


def kept(machine: Machine) -> dict[str, bytes]:
    """All that the volumes hold which no daemon may write; the Messenger's witness it writes itself."""
    daemons = {"sandbox", "database", "sessions"}
    folders = [machine.folder / "volumes" / name for name in COMPOSE["volumes"] if name not in daemons]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and "witness" not in path.name]
    return {str(path): path.read_bytes() for path in files}


def image_files(machine: Machine) -> list[str]:
    """All that lies in the roots outside of volumes, where the image is read-only."""
    return sorted(str(path) for path in (machine.folder / "roots").rglob("*"))


async def all_healthy(machine: Machine, patience: float) -> None:
    deadline = time.monotonic() + patience
    waiting = set(DAEMONS)
    while waiting:
        waiting = {name for name in waiting if not machine.healthy(name)}
        dead = [name for name, process in machine.processes.items() if process.poll() is not None]
        assert not dead, machine.log(dead[0])
        assert not waiting or time.monotonic() < deadline, "\n".join(map(machine.log, waiting))
        await asyncio.sleep(0.2)


async def all_known(machine: Machine, patience: float) -> None:
    """Wait until the fleet knows all its daemons as ready, as `status` says where the sandbox cannot be reached."""
    deadline = time.monotonic() + patience
    ready: set[str] = set()
    while ready != {"switchboard", "messenger", "console", "greeter", "health"}:
        assert time.monotonic() < deadline, f"ready are only {ready}"
        ready = {one["name"] for one in json.loads(machine.once("cli", "status", "--json"))["daemons"] if one["ready"]}


async def answers(machine: Machine, name: str) -> None:
    """Wait until it says that it is ready to who names it as the health check and a published port do."""

    async def ready() -> bool:
        try:
            return bool(machine.get(name, "/readyz"))
        except urllib.error.HTTPError as refused:
            if refused.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return False

    await eventually(ready)


async def signed_in(machine: Machine) -> bool:
    """Whether the console takes the password that a person finds in its container."""
    password = (machine.folder / "volumes" / "console" / "password").read_text()
    url = f"http://{machine.address('console')}:14102"
    published = "127.0.0.1:14102"
    headers = {"Host": published, "Origin": f"http://{published}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        asked = session.post(f"{url}/sign-in", data={"password": password}, allow_redirects=False)
        async with asked as answer:
            return answer.status == 303 and answer.headers["location"] == "/"


def stop_all(machine: Machine) -> None:
    for process in machine.processes.values():
        process.send_signal(signal.SIGTERM)
    for name, process in machine.processes.items():
        grace = int(ALL[name].said["stop_grace_period"].removesuffix("s"))
        assert process.wait(timeout=grace) == 0, machine.log(name)


def make_passwords(folder: Path, console: str, superuser: str) -> tuple[str, str, str]:
    """Run the container `password` with these words of .env: the console's, the superuser's, and the URL."""
    said = ALL["password"].said
    for name in ("console", "database"):
        (folder / name).mkdir(exist_ok=True)
    words = [sys.executable, *said["entrypoint"][1:], *(word.replace("/run", str(folder)) for word in said["command"])]
    given = {"BUTLERS_CONSOLE_PASSWORD": console, "POSTGRES_PASSWORD": superuser}
    assert set(given) == set(ALL["password"].environment)
    subprocess.run(words, env=given, check=True, timeout=300)
    files = (folder / "console" / "password", folder / "database" / "password", folder / "database" / "url")
    assert [oct(path.stat().st_mode & 0o777) for path in files] == ["0o600", "0o644", "0o644"]
    return files[0].read_text(), files[1].read_text(), files[2].read_text()


def test_passwords_are_made_once_and_differ_everywhere(tmp_path: Path) -> None:
    first = make_passwords(tmp_path, "", "")
    assert make_passwords(tmp_path, "", "") == first
    (tmp_path / "other").mkdir()
    assert not set(make_passwords(tmp_path / "other", "", "")) & set(first)
    assert min(map(len, first)) >= 20


def test_given_passwords_count_whatever_is_in_them(tmp_path: Path) -> None:
    console, superuser, url = make_passwords(tmp_path, "Größe 1", "p@ss:/w%rd?ü")
    assert (console, superuser) == ("Größe 1", "p@ss:/w%rd?ü")
    read = urllib.parse.urlsplit(url)
    assert (read.hostname, read.port, read.path) == ("postgres", 5432, "/butlers")
    assert urllib.parse.unquote(read.password or "") == superuser
    assert make_passwords(tmp_path, "another one", "ignored") == ("another one", superuser, url)


@pytest.mark.slow
async def test_every_container_starts_by_its_command_and_a_message_goes_all_the_way(machine: Machine) -> None:
    machine.once("password")
    await become_the_container(machine)
    shutil.copytree(ROOT / "fleet", machine.folder / "volumes" / "fleet", dirs_exist_ok=True)
    scaffold(machine.folder / "volumes" / "fleet", "health")
    machine.once("migrate")
    made = kept(machine)
    keys = [path.name for path in (machine.folder / "volumes" / "keys-fleet").iterdir() if not path.is_symlink()]
    assert sorted(keys) == ["greeter", "health"], "the butlers see keys of others"
    for name in ("password", "migrate"):
        machine.once(name)
    assert kept(machine) == made, "a second start changed a key or a password"
    image = image_files(machine)

    machine.processes |= {name: machine.start(name) for name in DAEMONS}
    await all_healthy(machine, patience=300)
    for name in DAEMONS:
        await answers(machine, name)
    assert await signed_in(machine)
    await all_known(machine, patience=300)

    for butler, port, channel in (("greeter", 14110, "telegram"), ("health", 14111, "email")):
        printed = machine.once("cli", "mcp-config", butler)
        assert f"http://127.0.0.1:{port}/mcp" in printed
        # What is published on this computer's loopback is here on the container's own address.
        config = json.loads(printed.replace("//127.0.0.1:", f"//{machine.address('fleet')}:"))
        async with Client(config) as client:
            answer = await client.call_tool("notify", {"channel": channel, "message": TOLD})
            assert answer.structured_content is not None
            assert answer.structured_content["status"] == "ok", answer.structured_content
    asked = "Do sessions run here?"
    assert machine.once("cli", "ask", "greeter", asked) == "> I have told you by Telegram: ok."
    assert f"You asked: {asked}" in machine.get("sandbox", "/api/journal")
    journal = [json.loads(line) for line in machine.get("sandbox", "/api/journal").splitlines()]
    assert [line["channel"] for line in journal if TOLD in json.dumps(line["payload"])] == ["telegram", "email"]
    assert TOLD in (machine.folder / "volumes" / "sandbox" / "journal.jsonl").read_text()

    stop_all(machine)
    assert not list((machine.folder / "volumes" / "sessions").iterdir()), "a session left something behind"
    assert kept(machine) == made, "a daemon wrote to a volume that it has read-only"
    assert image_files(machine) == image, "something was written into the image"
