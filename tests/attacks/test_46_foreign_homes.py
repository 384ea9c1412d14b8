"""A3: a home that somebody else laid in the way, and a backup that somebody else made, lead nothing astray."""

import asyncio
import gzip
import io
import json
import os
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.integration.cli.bad_input_runner import files
from tests.integration.cli.test_home import Place
from tests.rig.bench import Bench, House
from tests.rig.cluster import write_fleet

# They start whole programs: `make test` runs them where what they try has changed, `make verify` always.
pytestmark = pytest.mark.slow

STRANGER: Final = 64009
ROOT_ONLY: Final = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders for others")
COMMANDS: Final = (
    ("notify", "--as", "health", "--channel", "telegram", "--message", "secret"),
    ("mcp-config", "health"),
    ("token", "health"),
    ("sign-in",),
    ("status",),
    ("doctor",),
    ("brake", "off"),
    ("approvals", "approve", "1"),
    ("backup", "house.backup"),
    ("run", "health"),
    ("migrate",),
    ("up",),
)
ABOUT: Final = json.dumps({"made_at": "2026-01-01T00:00:00Z", "program": "0.1.0", "postgres": 18, "form": 1})


@pytest.fixture(scope="module")
def house(bench: Bench) -> Iterator[House]:
    """Its environment and its fork server are what is used here."""
    made = asyncio.run(bench.house())
    yield made
    made.close()


@pytest.fixture
def place(house: House) -> Iterator[Place]:
    """An empty folder with a fleet in it, in which commands are run."""
    made = Place(house, Path(tempfile.mkdtemp(dir=house.folder)))
    made.folder.chmod(0o755)
    write_fleet(made.folder / "fleet", ["health"])
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture
def trap() -> Iterator[socket.socket]:
    """A port of the stranger's, to which the planted home leads."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        yield listening


def plant(home: Path, trap: socket.socket, owner: int) -> None:
    """Lay a home into the way that says where the daemons are."""
    (home / "keys").mkdir(parents=True)
    said = {"BUTLERS_PORT_BASE": str(trap.getsockname()[1] - 10), "BUTLERS_FLEET": str(home / "fleet")}
    (home / "settings.json").write_text(json.dumps(said))
    for path in (home, *home.rglob("*")):
        os.chown(path, owner, owner)


def caught(trap: socket.socket) -> bool:
    """Whether anything of ours came to the stranger's port."""
    with suppress(BlockingIOError):
        trap.accept()[0].close()
        return True
    return False


def test_the_same_home_of_our_own_would_be_believed(place: Place, trap: socket.socket) -> None:
    plant(place.home, trap, os.geteuid())
    assert f"BUTLERS_PORT_BASE={trap.getsockname()[1] - 10}\n" in place.below("deep").done("config", "dump")


@ROOT_ONLY
@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_a_strangers_home_above_us(place: Place, trap: socket.socket, argv: tuple[str, ...]) -> None:
    plant(place.home, trap, STRANGER)
    told = place.below("deep").refused(*argv)
    assert told.startswith(f"butlers: The home {place.home} belongs to another user, ")
    assert not caught(trap)


@ROOT_ONLY
@pytest.mark.parametrize("kind", ["nearer than ours", "by a link", "empty", "a link to ours beside it"])
def test_a_strangers_home_in_other_shapes(place: Place, trap: socket.socket, kind: str) -> None:
    near = place.below("deep").home
    if kind == "nearer than ours":
        plant(place.home, trap, os.geteuid())
        plant(near, trap, STRANGER)
    elif kind == "by a link":
        plant(place.folder / "his", trap, STRANGER)
        near.symlink_to(place.folder / "his")
    elif kind == "empty":
        near.mkdir()
        os.chown(near, STRANGER, STRANGER)
    else:
        plant(place.home, trap, STRANGER)
        (place.home / "settings.json").unlink()
        (place.home / "settings.json").symlink_to(place.folder / "fleet")
    assert " belongs to another user, " in place.below("deep").refused("mcp-config", "health")
    assert not caught(trap)


@pytest.mark.parametrize("argv", [COMMANDS[0], COMMANDS[1], ("up",)], ids=" ".join)
def test_a_home_of_ours_that_everybody_may_write_to(place: Place, trap: socket.socket, argv: tuple[str, ...]) -> None:
    plant(place.home, trap, os.geteuid())
    place.home.chmod(0o1777)
    assert place.refused(*argv).startswith(f"butlers: Every user can write to the home {place.home}. ")
    assert not caught(trap)


def crafted(file: Path, *members: tuple[tarfile.TarInfo, bytes]) -> None:
    """Write a backup of this form with these members beside what it says of itself."""
    with gzip.open(file, "wb") as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        about = tarfile.TarInfo("about.json")
        for member, content in ((about, ABOUT.encode()), *members):
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """A member of a tar by this name."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, 0o755
    return made


@pytest.mark.parametrize("way", ["up", "root", "root folder", "link", "hard link", "device", "fifo", "where", "beside"])
def test_a_strangers_backup_writes_and_removes_nothing_elsewhere(place: Place, way: str) -> None:
    victim = place.below("victim").folder
    (victim / "kept").write_text("kept")
    victim.chmod(0o700)
    members = {
        "up": (member("home/../../victim/new"), b"x"),
        "root": (member(f"home/{victim}/new"), b"x"),
        "root folder": (member(f"home/{victim}", tarfile.DIRTYPE), b""),
        "link": (member("home/keys", tarfile.SYMTYPE, str(victim)), b""),
        "hard link": (member("home/mine", tarfile.LNKTYPE, str(victim / "kept")), b""),
        "device": (member("home/null", tarfile.CHRTYPE), b""),
        "fifo": (member("home/pipe", tarfile.FIFOTYPE), b""),
        "where": (member("home/postgres/where"), str(victim).encode()),
        "beside": (member(f"{victim}/new"), b"x"),
    }
    first = [(member("home/postgres", tarfile.DIRTYPE), b"")] if way == "where" else []
    crafted(place.folder / "theirs.backup", *first, members[way])
    before = files(victim), victim.stat().st_mode
    code, _, wrong = place.run("restore", str(place.folder / "theirs.backup"), "--home", str(place.folder / "new"))
    assert (code, " is no whole backup: " in wrong) == (1, True), wrong
    assert (files(victim), victim.stat().st_mode) == before
    assert not (place.folder / "new").exists()
