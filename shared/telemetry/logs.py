"""What a process says about itself: JSON log lines on stderr without secrets, and its metrics.

Our own lines and those of every library go the same way, and each value is made plain and scrubbed as the last step,
since HTTP libraries log URLs, and a bot token stands in them. Of an exception, the place and the kind are logged; its
words may quote what somebody wrote, so only those of our own errors are.
"""

import json
import logging
import os
import queue
import re
import sys
import threading
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO, TypeAlias
from urllib.parse import quote, quote_plus, unquote

import structlog
from prometheus_client import ProcessCollector

from shared.config.settings import MASK, Secret
from shared.display.visible import visible
from shared.errors import ButlersError
from shared.telemetry.metrics import REGISTRY

Event = MutableMapping[str, object]
Processor = Callable[[object, str, Event], Mapping[str, object] | str]
Raised: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]

# Of each process the latest file and one older are kept.
FILE_BYTES: Final = 5_000_000
# Lines that wait for whoever reads them.
MOST_WAITING: Final = 10_000
_LONGEST: Final = 8000
_MARGIN: Final = 3000
_SHORTEST_LITERAL: Final = 6
_CHATTY: Final = (
    "httpx",
    "httpcore",
    "httpx2",
    "aiosqlite",
    "asyncio",
    "aiohttp.access",
    "mail.log",
    "alembic",
    "fastmcp",
    "uvicorn",
    "uvicorn.error",
    "uvicorn.access",
    "mcp",
    "telegram",
)
_PATTERNS: Final = (
    (re.compile(r"\b[0-9]{3,20}(?::|%3[Aa])[A-Za-z0-9_-]{30,}"), MASK),
    (re.compile(r"(?<=/bot)[0-9]{1,20}(?::|%3[Aa])[A-Za-z0-9_%-]+"), MASK),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), MASK),
    (re.compile(r"\bBearer(\s+|%20)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"Bearer\1{MASK}"),
    (re.compile(r"\b(Authorization[\"']?\s*[:=]\s*[\"']?\w+)\s+[^\s\"']+", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"(?<=://)([^/?#\s:@]*):(?![0-9]{1,5}(?:[/?#]|$))\S+@"), rf"\1:{MASK}@"),
    (re.compile(r"\b(pass(?:word|wd)?|token|secret)=[^\s&\"',;]+", re.IGNORECASE), rf"\1={MASK}"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL), MASK),
)
# INVARIANT: whatever a pattern above matches has one of these in it; nearly all that is logged has none.
_SUSPECT: Final = re.compile(r"[:%=]|eyJ|bearer|-----BEGIN", re.IGNORECASE)

# What is secret in a URL, and in a bot token.
_PASSWORD: Final = re.compile(r"://([^/?#\s:@]*):(.+)@")
_TOKEN: Final = re.compile(r"[0-9]+:(\S+)")

_BEFORE: Final[tuple[structlog.typing.Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
)

ProcessCollector(registry=REGISTRY)


def redacted(value: object, literals: tuple[str, ...] = ()) -> object:
    """Return the value made of plain JSON types, with everything that looks like a secret masked."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, Mapping):
        return {scrubbed(str(key), literals): redacted(item, literals) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(item, literals) for item in value]
    return scrubbed(value if isinstance(value, str) else repr(value), literals)


def scrubbed(text: str, literals: tuple[str, ...] = ()) -> str:
    """Return the text with known secrets and whatever has a secret's shape masked, cut after about 8,000 characters."""
    whole = len(text) <= _LONGEST
    # The margin is scrubbed and then dropped, so that no secret is cut in half by the end and shows its head.
    head = text if whole else text[: _LONGEST + _MARGIN]
    for literal in literals:
        head = head.replace(literal, MASK)
    for pattern, mask in _PATTERNS if _SUSPECT.search(head) else ():
        head = pattern.sub(mask, head)
    return head if whole else f"{head[:-_MARGIN]}... ({len(text)} characters)"


def forms(secret: str) -> Iterator[str]:
    """Yield the forms a secret may take: whole, its password or token alone, quoted for a URL or JSON, in Base64."""
    found, token = _PASSWORD.search(secret), _TOKEN.fullmatch(secret)
    bare = [secret, *([unquote(found[2])] if found else []), *([token[1]] if token else [])]
    if found:
        user, password = unquote(found[1]), unquote(found[2])
        bare += [f"{user}:{password}", f"\0{user}\0{password}"]
    for text in bare:
        encoded = b64encode(text.encode("utf-8", "surrogatepass")).decode()
        spelled = (text, quote(text, safe=""), quote(text), quote_plus(text), json.dumps(text)[1:-1], encoded)
        yield from (one for one in spelled if len(one) >= _SHORTEST_LITERAL)


def configure(
    daemon: str,
    *,
    pretty: bool = False,
    secrets: Iterable[Secret] = (),
    stream: TextIO | None = None,
    folder: Path | None = None,
) -> None:
    """Send every log line of this process to stderr (or `stream`), as JSON or, if `pretty`, for a person.

    With a folder, keep the latest lines there too, as JSON in a file of this name, for `butlers logs`.
    `secrets` are masked wherever they appear. Where one process holds several daemons, each binds its own
    name: `structlog.contextvars.bind_contextvars(daemon=...)`.
    """
    literals = tuple(sorted({form for one in secrets for form in forms(one.reveal())}, key=len, reverse=True))
    plain = structlog.processors.JSONRenderer()
    for_a_person = [_visible, structlog.dev.ConsoleRenderer(colors=False)]
    shown = Unhurried(sys.stderr.fileno()) if stream is None else logging.StreamHandler(stream)
    handlers: list[logging.Handler] = [shown]
    handlers[0].setFormatter(_formatter(daemon, literals, *(for_a_person if pretty else [plain])))
    if folder is not None:
        handlers.append(OwnFile(folder / f"{daemon}.jsonl"))
        handlers[1].setFormatter(_formatter(daemon, literals, plain))
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_BEFORE,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    _hush()


def _formatter(
    daemon: str, literals: tuple[str, ...], *written: structlog.typing.Processor
) -> structlog.stdlib.ProcessorFormatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_BEFORE,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.StackInfoRenderer(),
            structlog.processors.ExceptionRenderer(_place_and_kind),
            _first_line_of_asyncio,
            _of_daemon(daemon),
            _redaction(literals),
            *written,
        ],
    )


class Unhurried(logging.Handler):
    """Lines that a thread of their own writes to a file descriptor.

    A terminal that stands still, or a pipe that nobody reads, stops that thread; the lines beyond are lost.
    """

    def __init__(self, descriptor: int, most: int = MOST_WAITING) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._most = most
        # INVARIANT: no lock is held here for which the same thread may come again: what is garbage logs as it ends.
        self._lines = queue.SimpleQueue[bytes | threading.Event]()
        threading.Thread(target=self._write, name="logs", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the line over, if there is room; whoever logs hears of nothing that goes wrong with it."""
        with suppress(Exception):
            if self._lines.qsize() < self._most:
                self._lines.put(f"{self.format(record)}\n".encode(errors="backslashreplace"))

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            with suppress(OSError):
                while line:
                    line = line[os.write(self._descriptor, line) :]

    def flush(self) -> None:
        """Wait until all is written, but no longer than a second: the library asks for it as the process ends."""
        written = threading.Event()
        self._lines.put(written)
        written.wait(1)


class OwnFile(RotatingFileHandler):
    """A file that others cannot read, nor the one that it puts aside.

    It is made for the first line, and where that cannot be, or the disk is full, stderr still has every line.
    """

    def __init__(self, path: Path, most: int = FILE_BYTES) -> None:
        super().__init__(path, maxBytes=most, backupCount=1, encoding="utf-8", delay=True)

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(mode=0o700, exist_ok=True)
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=_privately)  # type: ignore[return-value]

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: ARG002, N802
        """Return whether the file is full; the library would write out each line once more to measure it."""
        return self.stream is not None and self.stream.tell() >= self.maxBytes

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the library's name
        """Lose the line."""


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _hush() -> None:
    """Log only warnings of these libraries; a lost connection is logged in one line by the code that needed it."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of one module; it may be made before `configure`."""
    return structlog.stdlib.get_logger(name)


def _of_daemon(daemon: str) -> Processor:
    def add_daemon(_logger: object, _method: str, event: Event) -> Event:
        event.setdefault("daemon", daemon)
        return event

    return add_daemon


def _place_and_kind(exc_info: Raised) -> str:
    """Return where an exception was raised, its kind, and what caused it; the words only of our own errors."""
    return _told(exc_info[1])


def _told(raised: BaseException) -> str:
    error: BaseException | None = raised
    told = list[str]()
    while error is not None:
        said = f": {error.message}" if isinstance(error, ButlersError) else ""
        inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        lines = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
        head = f"Traceback (most recent call last):\n{lines}{type(error).__qualname__}{said}"
        told.append("\nof\n".join([head, *map(_told, inside)]))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\ncaused\n".join(reversed(told))


def _first_line_of_asyncio(_logger: object, _method: str, event: Event) -> Event:
    """Keep the first line only of asyncio's events: what follows it shows the task with its exception's words."""
    if event.get("logger") == "asyncio":
        event["event"] = str(event["event"]).partition("\n")[0]
    return event


def _visible(_logger: object, _method: str, event: Event) -> Mapping[str, object]:
    """Write out what a terminal would obey, or not show: a library's line may quote what somebody sent."""
    return {key: visible(value) if isinstance(value, str) else value for key, value in event.items()}


def _redaction(literals: tuple[str, ...]) -> Processor:
    def redact(_logger: object, _method: str, event: Event) -> Mapping[str, object]:
        return {key: redacted(value, literals) for key, value in event.items()}

    return redact
