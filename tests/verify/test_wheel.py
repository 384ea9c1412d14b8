"""What a stranger installs: the wheel alone, and a fresh clone."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from tests.rig.bench import free_block

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"butlers", "switchboard", "messenger", "shared", "migrations"}
BIN = Path(sys.executable).parent
Meanwhile = Callable[[Path, int, Path], None]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What the command printed; its own words if it failed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def project_files() -> list[str]:
    """All files of the project: what git knows or would take."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return [name for name in set(listed.split("\0")) if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=ROOT)
    [made] = out.glob("butlers-*.whl")
    return made


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """The program `butlers` as `uv tool install` puts it, in an empty folder."""
    folder = tmp_path / "tool"
    run(
        BIN / "uv",
        "tool",
        "install",
        wheel,
        cwd=tmp_path,
        UV_TOOL_DIR=str(folder / "tools"),
        UV_TOOL_BIN_DIR=str(folder / "bin"),
        UV_PYTHON=sys.executable,
    )
    yield folder / "bin" / "butlers"
    shutil.rmtree(folder)


def test_the_wheel_holds_our_packages_with_all_their_files_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if not name.endswith("/")}
    [info] = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    assert {name.partition("/")[0] for name in names} == PACKAGES | {info}
    ours = {name for name in project_files() if name.partition("/")[0] in PACKAGES}
    assert {name for name in names if not name.startswith(info)} == ours
    assert {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names


def test_the_wheel_is_never_to_be_uploaded(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        [metadata] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        assert "Classifier: Private :: Do Not Upload" in opened.read(metadata).decode()


def test_the_installed_program_runs_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "up" in run(installed, "--help", cwd=empty)
    assert list(empty.iterdir()) == []


def test_the_wheel_alone_brings_a_fleet_up_and_delivers(installed: Path, tmp_path: Path) -> None:
    """Its butler has the module in examples/, which no wheel holds."""
    fleet = tmp_path / "place" / "fleet"
    shutil.copytree(ROOT / "butlers/demo/greeter", fleet / "greeter")
    shutil.copytree(ROOT / "examples/module/beds", fleet / "beds")
    told = fleet / "greeter/butler.toml"
    told.write_text(f'modules = ["beds"]\n{told.read_text()}')
    deliver_and_stop([str(installed), "up", "--fleet", "fleet"], installed, fleet.parent, water)


def water(butlers: Path, base: int, where: Path) -> None:
    """Water a bed; the tool answers with its object and a picture."""
    token = run(butlers, "token", "greeter", "--for", "1h", cwd=where, **newcomers(base)).strip()

    async def call() -> None:
        async with Client(StreamableHttpTransport(f"http://127.0.0.1:{base + 10}/mcp", auth=token)) as client:
            made = await client.call_tool("water", {"bed": "roses"})
        assert made.structured_content == {"waterings": {"roses": 1}}
        assert made.content[1].type == "image"

    asyncio.run(call())


def test_a_fresh_clone_installs_with_make_and_the_second_time_at_once(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for name in project_files():  # the working tree as it would be cloned
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, clone / name)
    assert "50 of " in run("make", ".venv/.run", cwd=clone)  # how far it has come, as it takes a minute
    assert "up" in run(clone / ".venv" / "bin" / "butlers", "--help", cwd=clone)
    assert "Installing" not in run("make", ".venv/.run", cwd=clone)
    deliver_and_stop(["make", "up"], clone / ".venv" / "bin" / "butlers", clone)


def deliver_and_stop(up: list[str], butlers: Path, where: Path, then: Meanwhile | None = None) -> None:
    """Start as a newcomer does, tell the owner something on both channels, find it, and press Ctrl-C."""
    base, claim = free_block()
    log = where / "up.log"

    def meanwhile() -> None:
        deliver(butlers, base, where)
        if then is not None:
            then(butlers, base, where)

    with claim:
        seconds = [stand_and_stop(up, base, log, meanwhile)]
        # What holds its end up does so each time, and a busy machine is slow now and then.
        while seconds[-1] >= 5 and len(seconds) < 3:
            seconds.append(stand_and_stop(up, base, log, lambda: None))
    assert seconds[-1] < 5, f"{seconds}\n{log.read_text()}"


def stand_and_stop(up: list[str], base: int, log: Path, meanwhile: Callable[[], None]) -> float:
    """Start it, do that once it is ready, and press Ctrl-C; the seconds until it has ended."""
    with (
        log.open("w") as sink,
        subprocess.Popen(
            up,
            cwd=log.parent,
            env={**os.environ, **newcomers(base)},
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            wait_for(lambda: "Ready." in log.read_text(), 300, log)
            meanwhile()
        finally:
            pressed = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
            seconds = time.monotonic() - pressed
    assert "Traceback" not in log.read_text()
    return seconds


def newcomers(base: int) -> dict[str, str]:
    """What the environment says besides; what `up` has compiled is kept, whatever ours says, else commands are slow."""
    return {"BUTLERS_PORT_BASE": str(base), "PYTHONDONTWRITEBYTECODE": ""}


def deliver(butlers: Path, base: int, where: Path) -> None:
    """Tell the owner something on both channels; it arrives."""
    for channel in ("telegram", "email"):
        told = run(
            butlers,
            *("notify", "--as", "greeter", "--channel", channel, "--message", f"Hello by {channel}"),
            cwd=where,
            **newcomers(base),
        )
        assert json.loads(told)["status"] == "ok", told
    with urlopen(f"http://127.0.0.1:{base + 3}/api/journal") as journal:
        arrived = journal.read().decode()
    assert "Hello by telegram" in arrived
    assert "Hello by email" in arrived


def wait_for(holds: Callable[[], bool], seconds: float, log: Path) -> None:
    """Return once it holds; fail with the log at the deadline."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
