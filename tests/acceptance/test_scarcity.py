"""A disk that is full and connections that run out: said at once, nothing is lost, and nobody has to lend a hand."""

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import asyncpg
import pytest
import pytest_asyncio

from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST

MEGABYTES: Final = 48
# Longer than what fits into a page, so that every message asks for new ones.
LONG: Final = 9_000
RULE: Final = "INSERT INTO shared.approval_rules (tool_name, effect, arg_constraints) VALUES ('notify', 'allow', $1)"
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def small_disk(bench: Bench) -> Iterator[Path]:
    """A file system of a few megabytes that PostgreSQL may write to."""
    where = Path(tempfile.mkdtemp(prefix="butlers-small-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(where)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        where.rmdir()
        pytest.skip("only root may mount the small disk")
    space = where / "space"
    space.mkdir()
    owner = bench.server.data.stat()
    os.chown(space, owner.st_uid, owner.st_gid)
    where.chmod(0o755)
    yield space
    subprocess.run(["umount", "--lazy", str(where)], check=True)
    where.rmdir()


async def _as_superuser(bench: Bench, *statements: str) -> None:
    connection = await asyncpg.connect(bench.server.dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cramped(bench: Bench, small_disk: Path) -> AsyncIterator[Fleet]:
    """A fleet whose database lies on the small disk."""
    house = await bench.house()
    await _as_superuser(
        bench,
        f"CREATE TABLESPACE small LOCATION '{small_disk}'",
        f"ALTER DATABASE {house.name} SET TABLESPACE small",
    )
    fleet = await Fleet.start(house, "one")
    yield fleet
    await fleet.stop()
    await _as_superuser(bench, f"DROP DATABASE {house.name} WITH (FORCE)", "DROP TABLESPACE small")


async def test_a_full_disk_is_said_and_what_was_accepted_is_delivered(cramped: Fleet, small_disk: Path) -> None:
    first = fresh.words("while there was room")
    assert (await cramped.notify(channel="telegram", message=first))["status"] == "ok"
    ballast = small_disk.parent / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes((MEGABYTES + 1) << 20))
    told: dict[str, Answer] = {}
    async with asyncio.timeout(90):
        while not any(answer["status"] == "error" for answer in told.values()):
            said = fresh.words("no-room:").replace(" ", "")  # one word, which stays whole when a text is split
            told[said] = await cramped.notify(channel="telegram", message=said + "x" * LONG)
    refused = next(answer for answer in told.values() if answer["status"] == "error")
    assert refused["error"]["retryable"] is True, refused  # type: ignore[index]
    ballast.unlink()
    since = time.monotonic()
    last = fresh.words("room again")
    async with asyncio.timeout(LONGEST):
        while (await cramped.notify(channel="telegram", message=last))["status"] != "ok":
            await asyncio.sleep(0.2)
    assert time.monotonic() - since < 10
    for said, answer in told.items():
        entries = await cramped.outside.having(said)
        if answer["status"] == "error":
            assert entries == [], "it was refused and sent all the same"
        else:
            await cramped.outside.until(lambda e, said=said: said in e.text, 1)  # type: ignore[misc]


async def test_a_butler_without_connections_says_so_and_no_other_notices(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(), "each")
    login = f"{fleet.house.name}_greeter"
    try:
        assert (await fleet.notify("greeter", channel="telegram", message=fresh.words()))["status"] == "ok"
        await _as_superuser(
            bench,
            f"ALTER ROLE {login} CONNECTION LIMIT 0",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{login}'",
        )
        without = fresh.words("without connections")
        since = time.monotonic()
        calls = [fleet.notify("greeter", channel="telegram", message=without) for _ in range(40)]
        answers = await asyncio.gather(*calls)
        assert time.monotonic() - since < 14
        assert {answer["status"] for answer in answers} == {"error"}
        assert all(answer["error"]["retryable"] for answer in answers)  # type: ignore[index]
        assert (await fleet.notify("health", channel="telegram", message=fresh.words()))["status"] == "ok"
        assert await fleet.outside.having(without) == []
        await _as_superuser(bench, f"ALTER ROLE {login} CONNECTION LIMIT -1")
        async with asyncio.timeout(LONGEST):
            while (await fleet.notify("greeter", channel="telegram", message=without))["status"] != "ok":
                await asyncio.sleep(0.2)
        assert len(await fleet.outside.having(without)) == 1
    finally:
        await fleet.stop()


UNDER_WAY = "SELECT count(*) FROM messenger.deliveries WHERE status IN ('queued', 'claimed', 'sending')"


async def test_stopping_under_load_leaves_nothing_uncertain(bench: Bench) -> None:
    """Against a provider that is slow but well, eight times: each process ends within its 20 seconds, with 0."""
    fleet = await Fleet.start(await bench.house(), "each")
    try:
        await fleet.sql(RULE, {"recipient": {"type": "domain", "value": "people.test"}})
        told: list[tuple[str, str]] = []
        for _ in range(8):
            batch = [(fresh.words("stopping"), fresh.address()) for _ in range(16)]
            told += batch
            await fleet.outside.fault("email", "dot", "slow", times=16, value=0.5)
            calls = [
                asyncio.ensure_future(fleet.notify(channel="email", message=said, recipient=to)) for said, to in batch
            ]
            await fleet.outside.until(lambda e, first=batch[0][1]: e.to == first, 1)  # type: ignore[misc]
            assert set(await fleet.kill("messenger", signal.SIGTERM)) == {0}
            await asyncio.gather(*calls, return_exceptions=True)
            await fleet.restart("messenger")
        for said, to in told:
            await fleet.outside.arrived(said, to)
        async with asyncio.timeout(LONGEST):  # what arrived is settled a moment later
            while await fleet.value(UNDER_WAY):
                await asyncio.sleep(0.05)
        states = await fleet.sql("SELECT status, count(*) AS n FROM messenger.deliveries GROUP BY status")
        assert {row["status"]: row["n"] for row in states} == {"sent": len(told)}
    finally:
        await fleet.stop()
