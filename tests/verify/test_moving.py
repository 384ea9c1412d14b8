"""The database moves to another server by the commands of docs/operations.md, and the house goes on with all it had."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import pytest_asyncio

from shared.postgres import server
from shared.postgres.files import SYSTEM_FOLDER, find_place
from shared.postgres.socket_folder import PORT
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench
from tests.rig.drill import KNOWN, Drill
from tests.rig.fleet import UP, Fleet
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
UNSEALED = """
SELECT count(*) = 0 FROM shared.approval_events e
WHERE NOT EXISTS (SELECT FROM shared.audit_seals s WHERE e.seq <@ s.seqs)
"""

CAME_IN = "SELECT count(*) = 1 FROM switchboard.inbox WHERE text = $1"


def commands(kind: str) -> list[str]:
    """The blocks of commands of this kind in the section."""
    section = OPERATIONS.read_text().partition("## Moving the database\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{kind}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def shell(script: str, folder: Path, environment: Mapping[str, str], user: int | None = None) -> None:
    """Run the commands as a person would; each must end well."""
    done = subprocess.run(
        ["sh", "-ec", script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        user=user,
    )
    assert done.returncode == 0, done.stderr


@pytest_asyncio.fixture(loop_scope="session")
async def elsewhere(bench: Bench) -> AsyncIterator[server.Server]:
    """Another PostgreSQL, with nothing in it."""
    folder = bench.folder / "elsewhere"
    made = server.start(folder, system_folder=bench.folder / "elsewhere-system")
    yield made
    server.stop(made)


async def test_a_dump_moves_the_house_to_another_server(bench: Bench, elsewhere: server.Server) -> None:
    fleet = await Fleet.start(await bench.house())
    anna = await fleet.contact("Anna", telegram=fresh.chat())
    ended, _, wrong = await fleet.house.butlers("rules", "add", "--to", "Anna")
    assert ended == 0, wrong
    sent, waits = fresh.words("sent before"), fresh.words("waits")
    assert (await fleet.notify(channel="telegram", contact_id=anna, message=sent))["status"] == "ok"
    assert (await fleet.house.butlers("brake", "on", "--owner-too"))[0] == 0
    assert (await fleet.notify(channel="telegram", contact_id=anna, message=waits))["status"] == "queued"
    await Drill(bench, fleet).sealed()
    assert await fleet.value(UNSEALED)
    late = fresh.words("written before the stop")
    await fleet.outside.say(OWNER, late)
    await eventually(lambda: fleet.value(CAME_IN, late))
    assert await fleet.kill(UP, signal.SIGTERM) == [0]
    await fleet.abandon()

    source, new = (urlsplit(one) for one in (bench.server.dsn, elsewhere.dsn))
    binaries = str(find_place(bench.folder / "postgres", bench.folder / "system").binaries)
    dump = commands("console")[0].split("pg_dump", 1)[1].partition('"host=')[0].replace("\\\n", " ")
    folder = fleet.house.folder
    where = {"PGPORT": str(PORT), "PGUSER": "postgres", "PATH": f"{binaries}:{os.environ['PATH']}"}
    told = {"PGHOST": str(bench.server.folder), "PGPASSWORD": unquote(source.password or "")}
    shell(f"pg_dump {dump} {fleet.house.name}", folder, {**where, **told})
    told = {"PGHOST": str(elsewhere.folder), "PGPASSWORD": unquote(new.password or "")}
    shell(commands("sh")[0], folder, {**where, **told})

    dsn = elsewhere.dsn_of("butlers")
    house = replace(fleet.house, dsn=dsn, env={**fleet.house.env, "DATABASE_URL": dsn})
    moved = await Fleet.start(house)
    ended, said, wrong = await house.butlers("audit", "verify")
    assert ended == 0, said + wrong
    assert (await moved.notify(channel="telegram", contact_id=anna, message=sent)).get("duplicate") is True
    assert (await house.butlers("brake", "off"))[0] == 0

    async def arrived() -> bool:
        return any(waits in one.text for one in await moved.outside.journal())

    await eventually(arrived)
    assert await moved.value(KNOWN) == 0, "a house that moved whole counts as one that was restored"
    assert await moved.value(CAME_IN, late), "Telegram brings it no more"
    await moved.stop()


async def test_a_dump_becomes_the_embedded_database_of_a_new_home(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house())
    ended, _, wrong = await fleet.house.butlers("contacts", "add", "Anna", "--telegram", str(fresh.chat()))
    assert ended == 0, wrong
    await Drill(bench, fleet).sealed()
    await bench.ran("pg_dump", "--format=custom", f"--file={fleet.house.folder / 'butlers.dump'}", fleet.house.dsn)
    await fleet.stop()

    home = fleet.house.folder / "embedded"
    house = replace(fleet.house, env={**fleet.house.env, "DATABASE_URL": "", "BUTLERS_HOME": str(home)})
    assert (await house.butlers("migrate"))[0] == 0
    shutil.rmtree(home / "keys")
    shutil.copytree(fleet.house.home / "keys", home / "keys")
    place = find_place(home, SYSTEM_FOLDER)
    dump = place.base / "butlers.dump"
    shutil.copy(fleet.house.folder / "butlers.dump", dump)
    if place.account.uid is not None:
        os.chown(dump, place.account.uid, -1)
    script = "\0".join(commands("console")).replace("$ ", "").replace("$PWD/.butlers/postgres", str(place.base))
    script = script.replace('$(cat "$D/password")', (home / "postgres" / "password").read_text())
    out, into = script.split("\0")
    path = {"PATH": f"{place.binaries}:{os.environ['PATH']}"}
    try:
        shell(into, place.base, path, place.account.uid)
        assert (await house.butlers("migrate"))[0] == 0
        served = server.start(home)
        try:
            ended, said, wrong = await house.butlers("audit", "verify")
            assert ended == 0, said + wrong
            assert "Anna" in (await house.butlers("contacts", "list"))[1]
        finally:
            server.stop(served)
        os.truncate(dump, 0)
        shell(out, place.base, path, place.account.uid)
        assert dump.stat().st_size, "and out of it again"
    finally:
        shutil.rmtree(place.base)
