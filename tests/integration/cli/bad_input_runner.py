"""Runs a command that is to be refused, and holds it to its word: one sentence, and nothing changed."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import asyncpg

from tests.rig.bench import House
from tests.rig.forks import Order, Process
from tests.rig.rows import every_row

ROLES = "SELECT rolname FROM pg_roles WHERE rolname LIKE $1 ORDER BY 1"
Told = tuple[int, str, str]
DROPPED = ""
# Seconds. Only a failure ever waits so long.
MOST = 60.0


def start(house: House, argv: Sequence[str], env: Mapping[str, str] | None = None, entry: str = "") -> Process:
    """Start `butlers ARGV` in the house's environment; a variable given as DROPPED is taken out."""
    logs = house.folder / "logs"
    logs.mkdir(exist_ok=True)
    log = logs / f"bad-{len(list(logs.iterdir()))}"
    environment = {key: value for key, value in {**house.env, **(env or {})}.items() if value != DROPPED}
    code = Path(__file__).resolve().parents[3] if entry else None
    return house.forks.spawn(Order(argv, environment, house.folder, log, code, entry or "butlers.cli:main"))


def finish(process: Process, seconds: float = MOST) -> Told:
    """Exit code, standard output and standard error, once it ended."""
    assert process.ended.wait(seconds), f"{process.order.argv} did not end\n{process.err.read_text()}"
    assert process.code is not None
    return process.code, process.out.read_text(), process.err.read_text()


def run(house: House, argv: Sequence[str], env: Mapping[str, str] | None = None, entry: str = "") -> Told:
    """Run it to its end."""
    return finish(start(house, argv, env, entry))


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder below, but for logs, with size and time of change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if "logs" not in path.relative_to(folder).parts:
            with suppress(FileNotFoundError):  # a running daemon replaces files
                status = path.lstat()
                found[str(path)] = (0 if path.is_dir() else status.st_size, status.st_mtime_ns)
    return found


async def _rows(house: House) -> list[str]:
    connection = await asyncpg.connect(house.dsn)
    try:
        roles = [str(row[0]) for row in await connection.fetch(ROLES, f"{house.name}%")]
        return [*map(str, (await every_row(connection)).items()), *roles]
    finally:
        await connection.close()


def state(house: House) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """All that a refused command could have changed: files, rows, roles."""
    return files(house.folder), asyncio.run(_rows(house))


def sentences(err: str) -> str:
    """What a person is told; a daemon's own log lines, each a JSON object, are left out."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith("{"))


def demand_refused(
    house: House, argv: Sequence[str], told: str, env: Mapping[str, str] | None = None, entry: str = ""
) -> None:
    """The command ends with 1 and says exactly this, no file and no row is other than before."""
    before = state(house)
    code, out, err = run(house, argv, env, entry)
    assert (code, out, sentences(err)) == (1, "", f"butlers: {told}\n"), err
    assert "Traceback" not in err
    assert state(house) == before


def execute(dsn: str, *statements: str) -> None:
    """Run statements as the superuser."""

    async def go() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(go())
