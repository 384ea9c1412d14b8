"""What stands in the way of a start: database, schema, ports, data directory, interruption."""

import asyncio
import os
import shutil
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import asyncpg
import pytest

from butlers.setup.migrate import LOCK, demand_version, head
from shared.errors import Misconfigured
from tests.integration.cli.bad_input_runner import (
    DROPPED,
    MOST,
    demand_refused,
    execute,
    files,
    finish,
    run,
    sentences,
    start,
    state,
)
from tests.rig.bench import Bench, House
from tests.rig.forks import Process
from tests.rig.waiting import eventually

# They start whole programs: `make test` runs them where what they try has changed, `make verify` always.
pytestmark = pytest.mark.slow

IS_ROOT = os.geteuid() == 0
OUR_NAME = Path("/proc/self/comm").read_text().strip()
NOBODY = 65534
WAITING = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'public.schema_version'::regclass AND NOT granted)"
CORRECT = "Start it, or correct DATABASE_URL."


@pytest.fixture(scope="module")
def house(bench: Bench) -> Iterator[House]:
    """One house for all: nothing here may change it."""
    made = asyncio.run(bench.house())
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nobody_left(house: House) -> Iterator[None]:
    """What a failed test leaves running would use the next one's ports."""
    yield
    house.forks.kill_all()


def server_of(house: House) -> str:
    return house.dsn.rpartition("@")[2].partition("/")[0]


def test_a_refused_connection_and_an_unknown_host_are_named_without_the_password(house: House) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{closed.getsockname()[1]}/house"
        env = {"DATABASE_URL": f"postgresql://postgres:s3cret@{where}"}
        for argv in (("up",), ("migrate",), ("contacts", "list")):
            told = f"The database {where} cannot be reached: Connection refused. {CORRECT}"
            demand_refused(house, argv, told, env)
    for argv in (("up",), ("migrate",), ("contacts", "list"), ("run", "switchboard")):
        code, _, err = run(house, argv, {"DATABASE_URL": "postgresql://u:s3cret@nowhere.invalid/house"})
        assert code == 1
        assert sentences(err).startswith("butlers: The database")
        assert sentences(err).endswith(f"{CORRECT}\n")
        assert "s3cret" not in err


@pytest.mark.parametrize("command", ["up", "migrate"])
def test_a_database_that_refuses_the_login_is_named(house: House, command: str) -> None:
    server = server_of(house)
    wrong = {"DATABASE_URL": f"postgresql://postgres:s3cret@{server}/{house.name}"}
    server = unquote(server)
    told = f'The database {server}/{house.name} refused the login: password authentication failed for user "postgres".'
    demand_refused(house, (command,), f"{told} Correct DATABASE_URL.", wrong)
    missing = {"DATABASE_URL": f"{house.dsn.rpartition('/')[0]}/nowhere"}
    told = f'The database {server}/nowhere refused the login: database "nowhere" does not exist.'
    demand_refused(house, (command,), f"{told} Correct DATABASE_URL.", missing)


def test_a_console_is_served_with_no_password_that_is_soon_guessed(house: House) -> None:
    told = "The console's password has 7 characters. Give between 8 and 1024."
    demand_refused(house, ("run", "console"), told, {"BUTLERS_CONSOLE_PASSWORD": "seven77"})


def test_mails_to_people_come_from_no_address_of_the_sandboxs(house: House) -> None:
    told = "Mails need an address that they come from. Set BUTLERS_EMAIL_FROM."
    demand_refused(house, ("run", "messenger"), told, {"BUTLERS_SMTP_URL": "smtps://mail.people.example.org"})


def test_the_doctor_says_so_before_the_messenger_is_started_again(house: House) -> None:
    told = "wrong    email: Mails need an address that they come from. Set BUTLERS_EMAIL_FROM.\n"
    live = {"BUTLERS_SMTP_URL": "smtps://mail.people.example.org"}
    assert told in run(house, ("doctor",), live)[1]
    assert told not in run(house, ("doctor",), {**live, "BUTLERS_EMAIL_FROM": "butlers@people.example.org"})[1]


def test_a_daemon_whose_login_the_database_does_not_know_names_the_missing_step(house: House) -> None:
    missing = {"DATABASE_URL": f"{house.dsn.rpartition('/')[0]}/nowhere"}
    told = 'The database refused the login: password authentication failed for user "nowhere_switchboard".'
    demand_refused(house, ("run", "switchboard"), f"{told} Run `butlers migrate`, which creates the logins.", missing)
    told = "The database does not know this installation. Run `butlers migrate`."
    demand_refused(house, ("contacts", "list"), told, missing)


@pytest.mark.parametrize("argv", [("up",), ("migrate",), ("run", "switchboard"), ("contacts", "list")], ids=" ".join)
def test_a_database_url_that_is_none_is_refused(house: House, argv: tuple[str, ...]) -> None:
    told = (
        "DATABASE_URL is not a URL such as postgresql://user:password@host:5432/database, with its login "
        "percent-encoded. Correct DATABASE_URL, or remove it."
    )
    demand_refused(house, argv, told, {"DATABASE_URL": "localhost"})
    for port in ("abc", "99999"):
        told = "DATABASE_URL has an invalid port. Use a number from 1 to 65535."
        demand_refused(house, argv, told, {"DATABASE_URL": f"postgresql://u:s3cret@127.0.0.1:{port}/house"})


def test_parameters_of_the_url_hold_for_the_migration_too(house: House) -> None:
    execute(house.dsn, "CREATE DATABASE bad_start_fresh")
    url = f"{house.dsn.rpartition('/')[0]}/bad_start_fresh?sslmode=disable"
    code, _, err = run(house, ("migrate",), {"DATABASE_URL": url})
    assert (code, err) == (0, "")


def test_a_login_that_may_not_make_roles_or_tables_where_they_are_needed_is_refused(house: House) -> None:
    server = server_of(house)
    execute(
        house.dsn,
        "CREATE ROLE bad_start_weak LOGIN PASSWORD 'w'",
        "CREATE DATABASE bad_start_weak OWNER bad_start_weak",
        "CREATE ROLE bad_start_guest LOGIN CREATEROLE PASSWORD 'w'",
        f"GRANT CONNECT ON DATABASE {house.name} TO bad_start_weak",
    )
    env = {"DATABASE_URL": f"postgresql://bad_start_weak:w@{server}/{house.name}"}
    told = (
        "The login `bad_start_weak` of DATABASE_URL may not create roles, and this database's daemons have logins of "
        "their own. Give it CREATEROLE, or use another login."
    )
    for command in ("up", "migrate"):
        demand_refused(house, (command,), told, env)
    env = {"DATABASE_URL": f"postgresql://bad_start_guest:w@{server}/bad_start_weak"}
    told = f"The database's schema cannot be brought from nothing to {head()}: permission denied for schema public."
    demand_refused(house, ("migrate",), f"{told} Nothing was changed. Fix the cause, or restore a backup.", env)
    env = {"DATABASE_URL": f"postgresql://bad_start_guest:w@{server}/{house.name}"}
    server = unquote(server)
    told = f'The database {server}/{house.name} refused the login: permission denied for database "{house.name}".'
    demand_refused(house, ("up",), f"{told} Correct DATABASE_URL.", env)


@contextmanager
def at_revision(house: House, revision: str) -> Iterator[None]:
    execute(house.dsn, f"UPDATE public.schema_version SET version_num = '{revision}'")
    yield
    execute(house.dsn, f"UPDATE public.schema_version SET version_num = '{head()}'")


def test_an_older_schema_names_migrate_and_one_that_cannot_be_migrated_stays_as_it_is(house: House) -> None:
    with at_revision(house, "0001"):
        told = f"The database's schema is at 0001, this version needs {head()}. Run `butlers migrate`."
        for argv in (("run", "switchboard"), ("run", "console"), ("run", "greeter"), ("contacts", "list")):
            demand_refused(house, argv, told)
        why = f'The database\'s schema cannot be brought from 0001 to {head()}: schema "messenger" already exists.'
        for command in ("up", "migrate"):
            demand_refused(house, (command,), f"{why} Nothing was changed. Fix the cause, or restore a backup.")


def test_a_newer_schema_is_left_to_the_newer_program(house: House) -> None:
    told = (
        f"The database's schema is at 9999, which is newer than this version's {head()}. "
        "Start the version of Butlers that created it, or restore a backup."
    )
    with at_revision(house, "9999"):
        for argv in (("up",), ("migrate",), ("run", "messenger"), ("approvals", "list")):
            demand_refused(house, argv, told)


class OldServer(socketserver.BaseRequestHandler):
    """As much of PostgreSQL 14 as a login needs (PostgreSQL documentation, 55.7 Message Formats)."""

    def handle(self) -> None:
        (length, _) = struct.unpack("!II", self.request.recv(8))
        if length == 8:  # SSLRequest
            self.request.sendall(b"N")
        self.request.recv(4096)
        version = b"server_version\x0014.9\x00"
        status = b"S" + struct.pack("!I", 4 + len(version)) + version
        ready = b"K" + struct.pack("!III", 12, 1, 1) + b"Z" + struct.pack("!I", 5) + b"I"
        self.request.sendall(b"R" + struct.pack("!II", 8, 0) + status + ready)
        self.request.recv(4096)


def test_a_server_that_is_too_old_is_refused_by_its_version(house: House) -> None:
    told = "The database server is PostgreSQL 14, which is too old. Use PostgreSQL 15 or newer."
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), OldServer) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        env = {"DATABASE_URL": f"postgresql://u@127.0.0.1:{server.server_address[1]}/house"}
        for command in ("up", "migrate"):
            demand_refused(house, (command,), told, env)
        server.shutdown()
    demand_version(15)
    with pytest.raises(Misconfigured, match="PostgreSQL 9, which"):
        demand_version(9)


def test_a_taken_port_is_named_before_anything_is_made(house: House) -> None:
    nohome = str(house.folder / "nohome")
    for offset in (0, 1, 2, 3, 4, 10, 11):
        with socket.create_server(("127.0.0.1", house.base + offset)):
            stop = "Stop that program, or choose other ports with `butlers up --port-base` or `butlers run --port`."
            told = f"Port {house.base + offset} is in use by {OUR_NAME} (process {os.getpid()}). {stop}"
            demand_refused(house, ("up",), told)
            demand_refused(house, ("up", "--home", nohome), told, {"DATABASE_URL": DROPPED})
            if offset == 1:
                demand_refused(house, ("run", "messenger", "--port", str(house.base + offset)), told)


def test_a_port_that_nobody_will_look_at_may_be_taken(house: House) -> None:
    with socket.create_server(("127.0.0.1", house.base + 12)):
        process = start(house, ("up",))
        assert ready(process)
        process.send(signal.SIGINT)
        assert finish(process)[0] == 0


def ready(process: Process, seconds: float = MOST) -> float:
    """The seconds until a person was told that all is ready."""
    started = time.monotonic()
    while "Ready." not in process.out.read_text():
        assert process.alive, process.err.read_text()
        assert time.monotonic() - started < seconds, process.err.read_text()
        time.sleep(0.02)
    return time.monotonic() - started


@pytest.fixture
def embedded(house: House) -> Iterator[Path]:
    """A BUTLERS_HOME with a server of its own to be; nothing is left of it or its data."""
    home = house.folder / "embedded"
    yield home
    where = home / "postgres" / "where"
    base = Path(where.read_text().strip()) if where.exists() else None
    shutil.rmtree(home, ignore_errors=True)
    if base is not None:
        shutil.rmtree(base)


def kept(keys: Path) -> dict[str, tuple[int, int]]:
    """The same of its keys, without the witness, which the Messenger moves by itself, and the folder it lies in."""
    return {
        name: known for name, known in files(keys).items() if Path(name) != keys / "messenger" and "witness" not in name
    }


def env_of(home: Path) -> dict[str, str]:
    return {"DATABASE_URL": DROPPED, "BUTLERS_HOME": str(home)}


def postmasters(home: Path) -> list[str]:
    """The command lines of the servers of that home."""
    where = home / "postgres" / "where"
    base = where.read_text().strip() if where.exists() else str(home / "postgres")
    ps = ("ps", "-A", "-ww", "-o", "pid=,ppid=,args=")
    listed = subprocess.run(ps, capture_output=True, text=True, check=True).stdout
    found = [line.split(maxsplit=2) for line in listed.splitlines() if "postgres -D" in line and base in line]
    # A child that was just forked has its parent's command line until it has named itself.
    own = {pid for pid, _, _ in found}
    return [command for _, parent, command in found if parent not in own]


def test_a_second_up_is_told_who_uses_the_home_and_a_kill_needs_no_hand(house: House, embedded: Path) -> None:
    first = start(house, ("up",), env_of(embedded))
    ready(first)
    before = kept(embedded / "keys")
    for more in ({}, {"BUTLERS_PORT_BASE": str(house.base + 5)}):
        code, out, err = run(house, ("up",), {**env_of(embedded), **more})
        told = f"Another `butlers up` (process {first.pid}) is using {embedded}. "
        assert (code, out) == (1, "")
        assert err == f"butlers: {told}Stop that one first, or choose another folder with --home.\n"
    assert kept(embedded / "keys") == before
    first.send(signal.SIGKILL)
    finish(first)
    [left] = postmasters(embedded)
    again = start(house, ("up",), env_of(embedded))
    ready(again)
    assert postmasters(embedded) == [left]
    again.send(signal.SIGTERM)
    code, _, err = finish(again)
    assert (code, sentences(err)) == (0, "")
    assert postmasters(embedded) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_no_server_and_its_data_whole(
    house: House, embedded: Path, number: signal.Signals
) -> None:
    for seconds in (0.4, 0.5, 0.7, 1.0, 1.5, 2.0):
        process = start(house, ("up",), env_of(embedded))
        time.sleep(seconds)
        asked = time.monotonic()
        process.send(number)
        code, _, err = finish(process)
        assert time.monotonic() - asked < 40  # 5 s on an idle machine
        # On a slow machine a SIGTERM comes before anything was begun, and ends it as it ends any program.
        assert code in {0, 130} or code == -signal.SIGTERM == -number, (seconds, err)
        assert sentences(err) == ""
        assert postmasters(embedded) == []
    process = start(house, ("up",), env_of(embedded))
    ready(process)
    code, out, _ = run(house, ("contacts", "list", "--json"), env_of(embedded))
    assert code == 0
    assert out.count("owner@sandbox.test") == 1
    process.send(signal.SIGINT)
    assert finish(process)[0] == 0
    assert postmasters(embedded) == []


def test_an_interrupt_while_modules_are_imported_is_quiet() -> None:
    """Ctrl-C at once: the signal comes in the middle of the imports, on the slowest machine and on the fastest."""
    program = """
import os, signal, sys
from butlers.cli import main
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "butlers.cli.contacts":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background has it ignored
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_an_interrupt_while_the_database_keeps_us_waiting_ends_the_start(house: House) -> None:
    async def hold() -> None:
        connection = await asyncpg.connect(house.dsn)
        try:
            await connection.execute(f"BEGIN; {LOCK}")
            process = start(house, ("up",))
            try:
                await eventually(lambda: connection.fetchval(WAITING))
            except TimeoutError:
                pytest.fail(f"It never asked for what is held: {process.err.read_text()}")
            asked = time.monotonic()
            process.send(signal.SIGINT)
            told = await asyncio.to_thread(finish, process)
        finally:
            await connection.close()
        assert told == (130, "", "")
        assert time.monotonic() - asked < 40  # nobody would have let it go on

    before = state(house)
    asyncio.run(hold())
    assert state(house) == before


def test_data_of_another_version_is_refused_and_kept(house: House, embedded: Path) -> None:
    data = embedded / "postgres" / "99"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("99\n")
    for command in ("up", "migrate"):
        before = files(embedded)
        code, out, err = run(house, (command,), env_of(embedded))
        assert (code, out) == (1, "")
        assert err.startswith("butlers: The data was created by PostgreSQL 99, and only [")
        assert err.endswith("Install PostgreSQL 99, or move the data folder away to start with an empty database.\n")
        assert files(embedded) == before
    (data / "PG_VERSION").write_text("98\n")
    told = f"The folder {data} should hold data of PostgreSQL 99, but its PG_VERSION says '98'."
    away = "Move that folder away, or put back the one that belongs there."
    demand_refused(house, ("up",), f"{told} {away}", env_of(embedded))


def test_a_home_that_is_a_file_is_named_and_no_schema_is_made(house: House) -> None:
    home = house.folder / "afile"
    home.write_text("a file where a folder should be")
    execute(house.dsn, "CREATE DATABASE bad_start_empty")
    url = f"{house.dsn.rpartition('/')[0]}/bad_start_empty"
    told = f"{home}/keys/switchboard cannot be written: File exists. Correct BUTLERS_HOME."
    for command in ("up", "migrate"):
        demand_refused(house, (command, "--home", str(home)), told, {"DATABASE_URL": url})
    told = f"{home} cannot be used: File exists. Correct it, or its owner."
    demand_refused(house, ("run", "sandbox", "--home", str(home)), told)
    told = f"PostgreSQL's files cannot be used: File exists: {home}."
    access = "Give this user access to that path, or choose another folder with --home."
    demand_refused(house, ("up",), f"{told} {access}", env_of(home))


@pytest.fixture
def passable(bench: Bench) -> Iterator[None]:
    """Other users of this computer may connect to the server."""
    bench.server.folder.chmod(0o711)
    yield
    bench.server.folder.chmod(0o700)


@pytest.mark.usefixtures("passable")
def test_a_home_closed_to_this_user_is_named(house: House) -> None:
    closed = house.folder / "closed"
    closed.mkdir(mode=0o755 if IS_ROOT else 0o555)
    entry = "tests.integration.cli.test_bad_start:as_nobody" if IS_ROOT else ""
    told = f"{closed}/h/keys/switchboard cannot be written: Permission denied. Correct BUTLERS_HOME."
    demand_refused(house, ("migrate", "--home", f"{closed}/h"), told, {"HOME": str(closed)}, entry)
    told = f"PostgreSQL's files cannot be used: Permission denied: {closed}/h."
    access = "Give this user access to that path, or choose another folder with --home."
    demand_refused(house, ("migrate",), f"{told} {access}", env_of(closed / "h"), entry)
    if IS_ROOT:  # this home is another user's
        told = f"{house.home}/settings.json cannot be read: Permission denied."
        remedy = "Start as the user who made it, or correct --home."
        demand_refused(house, ("contacts", "list"), f"{told} {remedy}", entry=entry)


def as_nobody() -> None:
    """The command line as a user who owns nothing; what it needs is imported before it is nobody."""
    from butlers.cli.app import run as command_line  # noqa: PLC0415

    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    command_line()
