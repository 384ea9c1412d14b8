"""Where the embedded server's socket lies, who may be there, and what a dead server leaves behind."""

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from shared.postgres.files import Account, find_place
from shared.postgres.process import find_postmaster
from shared.postgres.server import PostgresFailed, running, stop
from shared.postgres.socket_folder import NAME, PASSING, folder_for
from tests.integration.postgres.postgres_runner import IS_ROOT, House, ask, furnished


@pytest.fixture
def house() -> Iterator[House]:
    with furnished() as made:
        yield made


def test_only_the_account_that_serves_may_put_a_socket_there_and_others_may_be_let_pass(house: House) -> None:
    server = house.start()
    assert server.folder.stat().st_mode & 0o777 == 0o700
    assert server.folder.stat().st_uid == server.data.stat().st_uid
    stop(server)
    server.folder.chmod(0o711)
    again = house.start()
    assert again.folder.stat().st_mode & 0o777 == 0o711
    again.folder.chmod(0o777)
    for attempt in (house.start, partial(running, house.home)):
        with pytest.raises(PostgresFailed, match="is writable for others than the user with id") as caught:
            attempt()
        assert caught.value.code == "postgres_socket_folder"
    again.folder.chmod(0o700)
    assert stop(again)


def test_where_the_path_is_too_long_the_socket_lies_in_a_short_folder_of_our_own(house: House) -> None:
    passing = house.system.parent / "passing"
    passing.mkdir()
    base = house.system / ("long" * 25)
    base.mkdir(parents=True)
    folder = folder_for(base, Account(), passing)
    assert folder.parent == passing
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder == folder_for(base, Account(), passing) != folder_for(base / "x", Account(), passing)
    folder.rmdir()
    elsewhere = house.system / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    with pytest.raises(PostgresFailed, match=r"Find out who created it.*--home"):
        folder_for(base, Account(), passing)


def test_an_ordinary_users_home_with_a_long_path_is_served_all_the_same(house: House) -> None:
    deep = replace(house, home=house.home / ("a" * 60) / ("b" * 60))
    deep.home.mkdir(parents=True)
    become = ""
    if IS_ROOT:
        os.chown(deep.home, 65534, 65534)
        become = "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    begin_and_look = "server = start(home, system_folder=system)\nsame = running(home).pid == server.pid"
    folder, same, ended = deep.told(f"{become}{begin_and_look}\nsay(server.folder, same, stop(server))")[-1].split()
    assert (Path(folder).parent, same, ended) == (PASSING, "True", "True")
    shutil.rmtree(folder)


def test_a_server_of_an_older_program_on_tcp_is_ended_and_its_data_goes_on(house: House) -> None:
    first = house.start()
    ask(first.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    stop(first)
    older = on_tcp(house)
    try:
        with pytest.raises(PostgresFailed, match=r"still serving an older version of Butlers by TCP"):
            running(house.home)
        with (first.data.parent / "users.lock").open() as used:
            fcntl.flock(used, fcntl.LOCK_SH)
            with pytest.raises(PostgresFailed, match="still serving an older"):
                house.start()
        second = house.start()
    finally:
        older.kill()
        older.wait()
    assert (second.started_by_us, ask(second.dsn, "SELECT answer FROM kept")) == (True, "42")
    assert stop(second)


def on_tcp(house: House) -> "subprocess.Popen[bytes]":
    """The data's server as older programs started it; blocks until it is ready."""
    place = find_place(house.home, house.system)
    options = ("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", f"port={free_port()}")
    process = subprocess.Popen(
        [place.binaries / "postgres", "-D", place.data, *options],
        stderr=subprocess.DEVNULL,
        cwd="/",
        user=place.account.uid,
        group=place.account.gid,
        extra_groups=place.account.groups,
    )
    while (found := find_postmaster(place.data)) is None or not found.ready:
        assert process.poll() is None
        time.sleep(0.01)
    return process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_what_a_killed_server_left_running_is_ended_and_the_next_start_waits_for_no_hand(house: House) -> None:
    server = house.start()

    async def orphan() -> None:
        connection = await asyncpg.connect(server.dsn)
        counting = asyncio.ensure_future(connection.execute("SELECT count(*) FROM generate_series(1, 10000000000)"))
        await asyncio.sleep(0.3)
        os.kill(server.pid, signal.SIGKILL)
        again = await asyncio.to_thread(house.start)
        with suppress(asyncpg.PostgresError, OSError):
            await counting
        assert again.pid != server.pid
        assert stop(server) is False
        assert stop(again)

    asyncio.run(orphan())


@pytest.mark.parametrize("lock", ["postmaster.pid", "socket"])
def test_a_lock_that_was_left_empty_is_no_obstacle(house: House, lock: str) -> None:
    server = house.start()
    stop(server)
    left = server.folder / f"{NAME}.lock" if lock == "socket" else server.data / lock
    left.touch(mode=0o600)
    owner = server.data.stat()
    os.chown(left, owner.st_uid, owner.st_gid)
    assert stop(house.start())


def test_a_stale_lock_whose_id_belongs_to_a_stranger_of_the_same_account_is_no_obstacle(house: House) -> None:
    server = house.start()
    stop(server)
    owner = server.data.stat()
    sleeping = ("sleep", "600")
    uid, gid = (owner.st_uid, owner.st_gid) if IS_ROOT else (None, None)
    stranger = subprocess.Popen(sleeping, user=uid, group=gid, extra_groups=[] if IS_ROOT else None)
    try:
        for left in (server.data / "postmaster.pid", server.folder / f"{NAME}.lock"):
            left.write_text(f"{stranger.pid}\n{server.data}\n0\n5432\n{server.folder}\n\n0 0\nready   \n")
            left.chmod(0o600)
            os.chown(left, owner.st_uid, owner.st_gid)
        again = house.start()
        assert stranger.poll() is None
        assert stop(again)
    finally:
        stranger.kill()
        stranger.wait()
