"""The data of a backup serves in another home, and what configures its server is ours and not the file's."""

import io
import tarfile
from collections.abc import Iterator

import pytest

from shared.errors import PostgresFailed
from shared.postgres.backup import copy_in, copy_out
from shared.postgres.files import find_data
from shared.postgres.server import stop
from tests.integration.postgres.postgres_runner import House, ask, furnished

THEIRS = {
    "postgresql.conf": b"include_dir = 'theirs'\n",
    "postgresql.auto.conf": b"archive_mode = on\narchive_command = 'theirs'\n",
    "pg_hba.conf": b"local all all trust\n",
    "pg_ident.conf": b"theirs theirs postgres\n",
    "theirs/more.conf": b"session_preload_libraries = 'theirs'\n",
    "more.conf": b"restore_command = 'theirs'\n",
    "standby.signal": b"",
    "recovery.signal": b"",
    "tablespace_map": b"16384 theirs\n",
}


@pytest.fixture
def house() -> Iterator[House]:
    with furnished() as made:
        yield made


@pytest.fixture
def again() -> Iterator[House]:
    with furnished() as made:
        yield made


def changed(data: io.BytesIO) -> io.BytesIO:
    """The same copy with files of somebody else's in the place of its configuration, and beside it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=data) as whole, tarfile.open(fileobj=made, mode="w") as archive:
        for member in whole:
            if member.name not in THEIRS:
                archive.addfile(member, whole.extractfile(member))
        folder = tarfile.TarInfo("theirs")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
        for name, content in THEIRS.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    made.seek(0)
    return made


def test_no_file_of_a_backup_configures_the_server(house: House, again: House) -> None:
    stop(house.start())
    with (house.home.parent / "data").open("w+b") as file:
        major = copy_out(house.home, file)
        file.seek(0)
        theirs = changed(io.BytesIO(file.read()))
    place = copy_in(again.home, theirs, major, again.system)
    (again.home / "postgres" / "password").write_text((house.home / "postgres" / "password").read_text())
    server = again.start()
    try:
        for name, value in {
            "archive_mode": "off",
            "archive_command": "(disabled)",
            "session_preload_libraries": "",
            "restore_command": "",
        }.items():
            assert ask(server.dsn, f"SELECT current_setting('{name}')") == value, name
        assert ask(server.dsn, "SELECT pg_is_in_recovery()") == "False"
        assert ask(server.dsn, "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules") == "scram-sha-256"
        assert ask(server.dsn, "SELECT count(*) FROM pg_ident_file_mappings") == "0"
        assert not [path.name for path in place.data.iterdir() if path.name in {"more.conf", "standby.signal"}]
    finally:
        stop(server)


def test_a_home_without_a_database_is_not_backed_up(house: House) -> None:
    house.home.mkdir(parents=True, exist_ok=True)
    with (house.home.parent / "data").open("w+b") as file, pytest.raises(PostgresFailed, match="There is no database"):
        copy_out(house.home, file)
    assert find_data(house.home) is None
