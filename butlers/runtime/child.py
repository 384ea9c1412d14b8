"""A session's child process: its own process group and folder, an exact environment, bounded memory, output and time.

A shell launches the program and leaves a watcher in its group, which reads the pipe that we hold the other end of: when
this process is gone, however it went, the watcher kills the whole group.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, cast

from butlers.runtime.base import Called, Ended, Event, Job, Limits, Said, Used, reached
from shared.loops import first_of

Reader: TypeAlias = Callable[[bytes], Iterable[Event]]  # one line of output -> what it tells
Finish: TypeAlias = Callable[[int | None], Ended | None]  # exit code -> the end, if it is one

MOST_OUTPUT: Final = 10_000_000
GRACE: Final = 2.0
"""Seconds between being asked to end and being killed."""
LONGEST_SENTENCE: Final = 300
NOT_STARTED: Final = frozenset({126, 127})
"""What a shell says of a program that it could not start."""
AT_ONCE: Final = 200
"""Lines that are read before others have their turn."""
SHORTEST_SECRET: Final = 8
MCP_CONFIG: Final = "mcp.json"
MASK: Final = b"***"
SEARCHED: Final = "/usr/local/bin:/usr/bin:/bin"
# No memory image is written, which would hold keys. What is limited is memory that can be written: engines reserve
# address space by the gigabyte which they never touch.
WATCHED: Final = """
ulimit -c 0; ulimit -d "$1"; exec 3<&0 <"$2"; shift 2
(trap '' HUP INT TERM; read -r _; kill -KILL 0) <&3 >/dev/null 2>&1 &
exec 3<&- "$@"
"""
LAUNCH: Final = ("/bin/sh", "-c", WATCHED, "runtime")


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run: what it reads, its memory, and the variables it has beside PATH, HOME, TMPDIR and LANG.

    `files` are put into its folder, each made of the job and the session's token; what is `paid` is not even begun
    where no dollar is left.
    """

    arguments: Sequence[str]
    stdin: str = field(repr=False)
    memory_mb: int
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, Callable[[Job, str], str]] = field(default_factory=dict)
    paid: bool = False


async def played(
    job: Job, command: Command, read: Reader, stop: asyncio.Event, finish: Finish = lambda _: None
) -> AsyncIterator[Event]:
    """Run the program, and yield what `read` makes of each of its lines, then exactly one end.

    `finish` says how it ended, by its exit code, where no line did. When this is left, nothing of the program's process
    group is alive.
    """
    if command.paid and job.limits.dollars <= 0:
        yield Ended("limit", "The session has no dollars left.")
        return
    try:
        transport, child = await _launched(job, command)
    except (OSError, ValueError) as refused:
        why = getattr(refused, "strerror", None) or type(refused).__name__
        yield Ended("failed", f"The session's process cannot be started: {why}.")
        return
    keeper = asyncio.create_task(_keep(child, stop, job.limits))
    end: Ended | None = None
    try:
        async for line in child.lines():
            for event in read(line):
                if isinstance(event, Ended):
                    end = event
                    break
                yield event
                if isinstance(event, Used) and (limit := reached(job.limits, event)):
                    end = Ended("limit", limit)
                    break
            if end is not None or keeper.done():
                break
        else:
            await keeper
    finally:
        keeper.cancel()
        child.signal_group(signal.SIGKILL)
        transport.close()
    code = transport.get_returncode()
    yield child.cut_short or end or finish(code) or _broke_off(command, code, child.last_complaint())


def told(line: bytes) -> Iterator[Event]:
    """Read one line of a child of ours: a JSON object with one key."""
    with suppress(ValueError, TypeError, KeyError):
        match json.loads(line):
            case {"said": str(text)}:
                yield Said(text)
            case {"called": str(tool)}:
                yield Called(tool)
            case {"used": [int(turns), int(tokens), int() | float() as dollars]}:
                yield Used(turns, tokens, float(dollars))
            case {"ended": ("done" | "failed" | "limit") as outcome, "text": str(text)}:
                yield Ended(outcome, text)
            case _:
                pass


def mcp_config(job: Job, token: str) -> str:
    """Return what MCP clients read their servers from: the session's own butler alone."""
    server = {"type": "http", "url": job.url, "headers": {"Authorization": f"Bearer {token}"}}
    return json.dumps({"mcpServers": {job.butler: server}})


def _write_private(path: Path, text: str) -> Path:
    """Write a new file that nobody else may read: words and bearers lie in it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


class _Child(asyncio.SubprocessProtocol):
    """What a process has said so far, secrets of ours masked, and whether it goes on."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.exited = asyncio.Event()
        self.flooded = asyncio.Event()
        self.closed = asyncio.Event()
        self.heard = asyncio.Event()
        self.cut_short: Ended | None = None
        self._pid = 0
        self._secrets = [secret.encode() for secret in secrets if len(secret) >= SHORTEST_SECRET]
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._complaints = b""
        self._open = {1, 2}
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note its process id, which is its group's."""
        self._pid = cast("asyncio.SubprocessTransport", transport).get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep what it writes, until that is too much."""
        self._size += len(data)
        if self._size > MOST_OUTPUT:
            self.flooded.set()
        elif fd == 1:
            self._said.put_nowait(data)
        else:
            self._complaints = (self._complaints + data)[-65_536:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's own name
        """Note that nothing more comes."""
        self._open.discard(fd)
        if fd == 1:
            self._said.put_nowait(None)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        """Note that the program has ended; what it started may still hold its pipes."""
        self.exited.set()

    def signal_group(self, number: signal.Signals) -> None:
        """Signal all of its group, which is there as long as the watcher in it is."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def silence(self) -> None:
        """Let nobody wait for more words."""
        self._said.put_nowait(None)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield each line, the last one also if nothing ends it; of many, let others have their turn between."""
        rest = bytearray()
        while (data := await self._said.get()) is not None:
            head, newline, tail = data.rpartition(b"\n")
            if not newline:
                rest += data
                continue
            for number, line in enumerate(self._masked(bytes(rest) + head).split(b"\n")):
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
                yield line
            rest = bytearray(tail)
        if rest and not self.flooded.is_set():
            yield self._masked(bytes(rest))
        self.heard.set()

    def last_complaint(self) -> str:
        """Return the last line on its standard error."""
        lines = self._masked(self._complaints).decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:LONGEST_SENTENCE]

    def _masked(self, text: bytes) -> bytes:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


async def _launched(job: Job, command: Command) -> tuple[asyncio.SubprocessTransport, _Child]:
    keys = [key for name, key in job.environment.items() if not name.endswith("_URL")]
    token = job.token_file.read_text(encoding="utf-8").strip()
    stdin = _write_private(job.folder / "stdin", command.stdin)
    for name, made in command.files.items():
        _write_private(job.folder / name, made(job, token))
    program = Path(command.arguments[0]).parent
    environment = {
        **command.environment,
        "PATH": f"{program}:{SEARCHED}" if program.is_absolute() else SEARCHED,
        "HOME": str(job.folder),
        "TMPDIR": str(job.folder),
        "LANG": "C.UTF-8",
    }
    words = (*LAUNCH, str(command.memory_mb * 1024), str(stdin), *command.arguments)
    transport, child = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Child([*keys, token]), *words, cwd=job.folder, env=environment, start_new_session=True
    )
    return transport, child


async def _keep(child: _Child, stop: asyncio.Event, limits: Limits) -> None:
    """Wait until all that the program said is read or it must end, and end all of its group then."""
    try:
        async with asyncio.timeout(limits.minutes * 60):
            await first_of(stop, child.exited, child.flooded)
            if child.exited.is_set():
                await _clear(child)
                await first_of(stop, child.heard, child.flooded)
    except TimeoutError:
        minutes = f"{limits.minutes:g} minute{'' if limits.minutes == 1 else 's'}"
        child.cut_short = Ended("limit", f"The session took longer than {minutes}.")
    else:
        if child.flooded.is_set():
            child.cut_short = Ended("failed", f"The session's process wrote more than {MOST_OUTPUT // 1_000_000} MB.")
        elif not (child.exited.is_set() and child.heard.is_set()):
            child.cut_short = Ended("failed", "The session was stopped.")
    if not child.exited.is_set():
        child.signal_group(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(child.exited.wait(), GRACE)
    await _clear(child)


async def _clear(child: _Child) -> None:
    """End what is left of the group, and let its last words come; who left it and holds the pipes is not awaited."""
    child.signal_group(signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await child.closed.wait()
    child.silence()


def _broke_off(command: Command, code: int | None, complaint: str) -> Ended:
    """Return the end of a program that did not say how it ended."""
    name, why = Path(command.arguments[0]).name, f": {complaint}" if complaint else ""
    if code in NOT_STARTED:
        return Ended("failed", f"`{name}` cannot be started{why or '.'}")
    if code is not None and code < 0:
        return Ended("failed", f"`{name}` was ended by {signal.Signals(-code).name}{why or '.'}", died=True)
    return Ended("failed", f"`{name}` ended with exit code {code} before it was done{why or '.'}")
