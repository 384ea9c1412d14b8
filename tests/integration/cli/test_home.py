"""A home from outside: found from anywhere below, remembering what it was started with, copied, backed up, restored."""

import asyncio
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.integration.cli.bad_input_runner import MOST, Told, files, finish, sentences
from tests.rig.bench import Bench, House
from tests.rig.cluster import ROOT, write_fleet
from tests.rig.forks import Order, Process

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
ANNA = 5000000000000002


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in which commands are run, with nothing of ours in their environment but what is said."""

    house: House
    folder: Path
    said: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / ".butlers"

    def below(self, name: str) -> "Place":
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return replace(self, folder=self.folder / name)

    def spawn(self, *argv: str) -> Process:
        env = {name: value for name, value in self.house.env.items() if not name.startswith(("BUTLERS_", "DATABASE"))}
        logs = self.house.folder / "logs"
        logs.mkdir(exist_ok=True)
        log = logs / f"home-{len(list(logs.iterdir()))}"
        return self.house.forks.spawn(Order(argv, {**env, **self.said}, self.folder, log))

    def run(self, *argv: str) -> Told:
        return finish(self.spawn(*argv))

    def done(self, *argv: str) -> str:
        code, out, err = self.run(*argv)
        assert (code, sentences(err)) == (0, ""), (argv, out, err)
        return out

    def refused(self, *argv: str) -> str:
        """The one sentence of a command that fails, and changes no file here."""
        before = files(self.folder)
        code, out, err = self.run(*argv)
        assert (code, sentences(err).count("\n")) == (1, 1), (argv, out, err)
        assert files(self.folder) == before
        return sentences(err)

    @contextmanager
    def up(self, *argv: str) -> Iterator[str]:
        """`butlers up`, until the block ends; what it printed until it was ready."""
        process = self.spawn("up", *argv)
        try:
            began = time.monotonic()
            while "Ready." not in process.out.read_text():
                assert process.alive, process.out.read_text() + process.err.read_text()
                assert time.monotonic() - began < MOST, process.err.read_text()
                time.sleep(0.02)
            yield process.out.read_text()
        finally:
            process.send(signal.SIGINT)
            finish(process)

    def journal(self) -> list[Mapping[str, object]]:
        """All that the sandbox was given."""
        return [json.loads(line) for line in (self.home / "sandbox" / "journal.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def house(bench: Bench) -> Iterator[House]:
    """Its ports and its fork server are what is used here."""
    made = asyncio.run(bench.house())
    yield made
    made.close()


@pytest.fixture
def place(house: House, request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty folder with a fleet of one butler beside it; of the data of no home in it anything is left."""
    made = Place(house, house.folder / request.node.name)
    made.folder.mkdir()
    write_fleet(made.folder / "fleet", ["health"])
    yield made
    for where in made.folder.rglob("postgres/where"):
        shutil.rmtree(where.read_text().strip(), ignore_errors=True)
    shutil.rmtree(made.folder)


@pytest.mark.slow
def test_every_command_below_goes_by_what_the_house_was_started_with(place: Place) -> None:
    base, deep = place.house.base, place.below("deep/er")
    with place.up("--fleet", "fleet", "--port-base", str(base)) as printed:
        assert "as last time" not in printed
        assert (place.home / "settings.json").stat().st_mode & 0o777 == 0o600
        config = json.loads(deep.done("mcp-config", "health"))
        assert config["mcpServers"]["health"]["url"] == f"http://127.0.0.1:{base + 10}/mcp"
        assert json.loads(told_owner(deep, config)[1])["status"] == "ok"
        config["mcpServers"]["health"]["headers"]["Authorization"] = f"Bearer {deep.done('token', 'messenger').strip()}"
        refused = "The token is not for `health`. `butlers mcp-config messenger` prints the address"
        assert told_owner(deep, config) == (1, "", f"{refused} of `messenger`.\n")
        answer = json.loads(deep.done("notify", "--as", "health", "--channel", "telegram", "--message", "hello"))
        assert answer["status"] == "ok"
        assert deep.done("token", "health").startswith("ey")
        assert deep.done("sign-in").startswith(f"http://127.0.0.1:{base + 2}/sign-in?code=")
        assert "health is ready." in deep.done("doctor")
        elsewhere = replace(place, folder=place.folder.parent)
        assert f"http://127.0.0.1:{base + 3}" in elsewhere.done("--home", str(place.home), "status")
    with deep.up() as printed:
        assert f"The fleet is {place.folder}/fleet, as last time. Choose another with --fleet.\n" in printed
        assert f"http://127.0.0.1:{base + 10}/mcp\n" in printed
        assert f"{place.home}\n" in printed
        if IS_ROOT:
            data = (place.home / "postgres" / "where").read_text().strip()
            assert data in printed
    (place.folder / "fleet").rename(place.folder / "moved")
    for argv in (("up",), ("mcp-config", "health")):
        told = (
            f"butlers: The fleet folder {place.folder}/fleet does not exist. Put it back, choose another with --fleet"
        )
        assert deep.refused(*argv).startswith(told)


def told_owner(place: Place, config: object) -> Told:
    """How the example ends that tells the owner something, and what it says."""
    (place.folder / "config.json").write_text(json.dumps(config))
    argv = [sys.executable, str(ROOT / "examples" / "tell_owner.py"), "config.json", "It is done."]
    ended = subprocess.run(argv, cwd=place.folder, capture_output=True, text=True, timeout=MOST, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def test_where_no_home_is_above_a_command_says_so_and_makes_none(place: Place) -> None:
    told = f"There is no installation in {place.folder} or in a folder above it."
    remedy = "Run the command where it is, or name its home with --home."
    for argv in (("status",), ("mcp-config", "health"), ("doctor",), ("run", "health"), ("backup", "file")):
        assert place.refused(*argv) == f"butlers: {told} {remedy}\n"


def test_a_home_that_is_named_as_usual_is_not_the_one_above(place: Place) -> None:
    (place.home / "keys").mkdir(parents=True)
    trial = place.below("trial")
    assert f"BUTLERS_HOME={place.home}\n" in trial.done("config", "dump")
    told = f"butlers: There is no installation in {trial.home}. Correct --home or BUTLERS_HOME.\n"
    for named, *argv in ((trial, "--home", ".butlers"), (replace(trial, said={"BUTLERS_HOME": ".butlers"}),)):
        assert f"BUTLERS_HOME={trial.home}\n" in named.done("config", "dump", *argv)
        assert named.refused("contacts", "list", *argv) == told


@pytest.mark.skipif(not IS_ROOT, reason="only root makes folders for others")
def test_another_users_home_is_not_taken_for_ours(place: Place) -> None:
    (place.home / "keys").mkdir(parents=True)
    os.chown(place.home, NOBODY, NOBODY)
    for argv in (("status",), ("up",)):
        told = place.below("deep").refused(*argv)
        assert told.startswith(f"butlers: The home {place.home} belongs to another user, ")
        assert told.endswith("Run the command as that user, or name a home of your own with --home.\n")


def test_a_home_of_an_earlier_program_keeps_its_ports(place: Place) -> None:
    (place.home / "keys").mkdir(parents=True)
    assert "BUTLERS_PORT_BASE=41100\n" in place.done("config", "dump")
    (place.home / "keys").rmdir()
    assert "BUTLERS_PORT_BASE=14100\n" in place.done("config", "dump")


@pytest.mark.slow
def test_a_copied_home_never_writes_into_the_data_of_the_first(place: Place) -> None:
    copy = place.below("copy")
    with place.up("--port-base", str(place.house.base)):
        shutil.copytree(place.home, copy.home, ignore=shutil.ignore_patterns("socket"))
        told = copy.refused("contacts", "add", "Anna") if IS_ROOT else ""
    refused = copy.refused("up")
    assert told in {"", refused}
    assert f" belongs to the home {place.home}, and this is {copy.home}. " in refused
    assert (
        "If it was moved, run `butlers up --moved` here. If it is a copy, remove it, run `butlers backup FILE`"
        in refused
    )
    shutil.rmtree(copy.home)
    moved = place.below("elsewhere")
    place.home.rename(moved.home)
    with moved.up():
        assert "Owner" in moved.done("contacts", "list")
    # To another file system a home is moved by a copy.
    shutil.copytree(moved.home, place.home, ignore=shutil.ignore_patterns("socket"))
    shutil.rmtree(moved.home)
    assert "--moved" in place.refused("up")
    with place.up("--moved"):
        assert "Owner" in place.done("contacts", "list")
    with place.up():
        pass


@pytest.mark.slow
def test_of_a_home_that_was_put_back_by_hand_its_owner_says_so_before_it_starts(place: Place) -> None:
    place.done("migrate", "--port-base", str(place.house.base))
    place.home.rename(place.folder / "kept")
    shutil.copytree(place.folder / "kept", place.home, ignore=shutil.ignore_patterns("socket"))
    assert place.done("restored").startswith("Noted. ")
    with place.up():
        assert "a backup was restored" in place.done("brake", "status")


def asked(place: Place, words: str) -> Mapping[str, object]:
    """What the butler is told of a message to Anna."""
    argv = ("--as", "health", "--channel", "telegram", "--to", "Anna", "--message", words)
    return dict(json.loads(place.done("notify", *argv)))


@pytest.mark.slow
def test_what_was_restored_sends_nothing_to_others_before_its_owner_looked(place: Place) -> None:
    again, file = place.below("again"), place.folder / "house.backup"
    with place.up("--fleet", "fleet", "--port-base", str(place.house.base)):
        place.done("contacts", "add", "Anna", "--telegram", str(ANNA))
        place.done("rules", "add", "--contact-id", "Anna")
        assert asked(place, "before")["status"] == "ok"
        place.done("backup", str(file))
        assert asked(place, "after")["status"] == "ok"
        told = place.refused("restore", str(file))
        assert f"There is a running installation in {place.home}, which a restore never replaces." in told
    assert file.stat().st_mode & 0o777 == 0o600
    assert place.refused("backup", str(file)) == f"butlers: {file} already exists. Choose another name.\n"
    assert "lies in the home" in place.refused("backup", str(place.home / "house.backup"))
    assert "There is an installation in" in place.refused("restore", str(file))
    for size in (0, 1000, file.stat().st_size // 2, file.stat().st_size - 4):
        cut = again.folder / "cut"
        cut.write_bytes(file.read_bytes()[:size])
        told = again.refused("restore", str(cut), "--home", str(again.home))
        assert told.startswith(f"butlers: {cut} is no whole backup: it was cut off, or changed. Nothing was restored;")
    (again.folder / "other").write_bytes(gzip.compress(b"nothing of ours"))
    assert "is no whole backup" in again.refused("restore", "other", "--home", str(again.home))
    out = again.done("restore", str(file), "--home", str(again.home))
    assert "What was sent after that time is not in it" in out
    assert "butlers brake off" in out
    assert again.home.stat().st_mode & 0o777 == 0o711
    with again.up():
        assert asked(again, "before")["status"] == "ok"  # its answer of then
        assert asked(again, "after")["status"] != "ok"
        assert "a backup was restored" in again.done("brake", "status")
        assert [one["to"] for one in again.journal()].count(str(ANNA)) == 1
        code, said, err = again.run("audit", "verify")
        assert code == 0, said + err
        again.done("brake", "off")
        again.done("backup", str(again.folder / "second"))
    third = place.below("third")
    third.done("restore", str(again.folder / "second"), "--home", str(third.home))
    with third.up():
        assert "a backup was restored" in third.done("brake", "status"), "once more"


@pytest.mark.slow
def test_what_of_a_home_lies_on_another_disk_is_in_its_backup(place: Place) -> None:
    disk, again = place.folder / "disk", place.below("again")
    disk.mkdir()
    place.home.mkdir(mode=0o711)
    (place.home / "postgres").symlink_to(disk)
    (place.home / ".cache").mkdir()
    (place.home / ".cache" / "left").write_text("Of no backup, and in nobody's way.")
    place.done("migrate", "--port-base", str(place.house.base))
    place.done("backup", "house.backup")
    again.done("restore", str(place.folder / "house.backup"), "--home", ".butlers")
    again.done("migrate", "--home", ".butlers")
    assert (again.home / "postgres" / "password").read_bytes() == (disk / "password").read_bytes()
    link = place.home / "keys" / "owner"
    link.rename(place.folder / "owner")
    link.symlink_to(place.folder / "owner")
    code, _, err = place.run("backup", "second.backup")
    told = f"butlers: {link} is a link that a backup cannot follow. Put what belongs there in its place.\n"
    assert (code, sentences(err), (place.folder / "second.backup").exists()) == (1, told, False)
