"""A server that does not prove itself gets no password and is not believed; one that does is let in."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
import uvloop

from shared.db.pool import LOST, Database
from shared.db.proof import Unproved, connect
from shared.errors import Misconfigured, Unavailable
from tests.integration.house import House
from tests.rig.gate import Gate, by_port, server_of
from tests.rig.tls import certificate
from tests.rig.usurper import SCRIPTS, Usurper

SECRET = "correct-horse-battery"
ITSELF = "asks for the password itself, or for what gives it away. Let its pg_hba.conf say scram-sha-256"
UNSHOWN = "did not show that it knows our password. Let its pg_hba.conf say scram-sha-256"
NONE = "is not PostgreSQL"
SAID = {
    "scram with endless rounds": "asks for more rounds of hashing than are done",
    "trust": UNSHOWN,
    "scram without its end": UNSHOWN,
    "scram with half its end": UNSHOWN,
    "cleartext in a message that is too short": NONE,
    "cleartext in a message of negative length": NONE,
    "ready without a login": NONE,
}


@asynccontextmanager
async def usurping(made: Usurper) -> AsyncIterator[str]:
    """The URL at which it waits, with a password."""
    await made.listen(0)
    yield f"postgresql://house_up:{SECRET}@127.0.0.1:{made.port}/house"
    made.close()


@pytest.mark.parametrize("script", [one for one in SCRIPTS if one != "scram with a wrong end"])
@pytest.mark.parametrize("pace", ["at once", "byte by byte"])
def test_who_does_not_prove_itself_gets_no_password_and_is_not_believed(script: str, pace: str) -> None:
    async def go() -> None:
        usurper = Usurper(script, dribbles=pace == "byte by byte")
        async with usurping(usurper) as dsn:
            with pytest.raises(Unproved) as caught:
                await connect(dsn, 5)
            with pytest.raises(Misconfigured) as again:
                await Database.open(dsn)
        assert SAID.get(script, ITSELF) in str(caught.value)
        assert str(again.value) == str(caught.value)
        assert SECRET.encode() not in usurper.heard
        assert usurper.visits == 2

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(go())


async def test_the_last_word_of_scram_is_compared() -> None:
    usurper = Usurper("scram with a wrong end")
    async with usurping(usurper) as dsn:
        with pytest.raises(LOST):
            await connect(dsn, 5)


async def test_an_encrypted_wire_is_read_along_too(tmp_path: Path) -> None:
    usurper = Usurper("cleartext", tls=certificate(tmp_path)[0])
    async with usurping(usurper) as dsn:
        with pytest.raises(Unproved, match="asks for the password itself"):
            await connect(f"{dsn}?sslmode=require", 5)
    assert usurper.heard
    assert SECRET.encode() not in usurper.heard


async def test_who_has_no_password_needs_no_proof() -> None:
    usurper = Usurper("trust")
    async with usurping(usurper) as dsn:
        connection = await connect(dsn.replace(f":{SECRET}", ""), 5)
        connection.terminate()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_socket_is_spoken_to_where_its_folders_owner_listens(
    tmp_path: Path, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    place = tmp_path / ".s.PGSQL.5432"

    async def go() -> None:
        usurper = Usurper("trust")
        await usurper.listen(place)
        dsn = f"postgresql://house_up:{SECRET}@/house?host={tmp_path}&port=5432"
        (await connect(dsn, 5)).terminate()  # the kernel says that it is us
        assert usurper.heard
        usurper.close()

    if os.geteuid() == 0:
        os.chown(tmp_path, 64009, 64009)  # a folder of somebody else's, in which root listens
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(go())


async def test_a_pool_whose_server_is_replaced_waits_for_the_true_one(still_house: House) -> None:
    gate = Gate(server_of(still_house.dsn))
    await gate.open()
    database = await Database.open(by_port(still_house.dsn, gate.port), most=2)
    gate.shut()
    usurper = Usurper("cleartext")
    await usurper.listen(gate.port)
    async with asyncio.timeout(20):
        while not usurper.visits:
            with pytest.raises(Unavailable):
                async with database.work():
                    pass
            await asyncio.sleep(0.05)
    usurper.close()
    password = still_house.dsn.rpartition("@")[0].rpartition(":")[2]
    assert password.encode() not in usurper.heard
    await gate.open()
    async with asyncio.timeout(20):
        while True:
            try:
                async with database.work() as connection:
                    assert await connection.fetchval("SELECT 1") == 1
                break
            except Unavailable:
                await asyncio.sleep(0.05)
    await database.close()
    gate.shut()


def test_one_place_alone_connects() -> None:
    root = Path(__file__).resolve().parents[3]
    allowed = {"shared/db/pool.py", "shared/db/proof.py"}
    for package in ("butlers", "messenger", "shared", "switchboard"):
        for path in (root / package).rglob("*.py"):
            text = path.read_text()
            assert str(path.relative_to(root)) in allowed or "asyncpg.connect(" not in text, path
            assert "create_pool(" not in text or path.name == "pool.py", path
    assert asyncpg.protocol.Protocol.__module__ == "shared.db.proof"
