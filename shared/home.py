"""BUTLERS_HOME: where each daemon's key, password and secret lie, and how it reaches the database."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from shared import postgres
from shared.auth import generate_key
from shared.config import Settings
from shared.errors import Misconfigured

OWNER = "owner"
UP = "up"
DATABASE = "butlers"
LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Keys:
    """What one daemon holds and nobody else."""

    name: str
    private_pem: bytes
    password: str
    secret: bytes


def folder(home: Path, name: str) -> Path:
    """Where the keys of one daemon lie."""
    return home / "keys" / name


def read(home: Path, name: str) -> Keys:
    """The keys of one daemon; Misconfigured names the missing step."""
    where = folder(home, name)
    try:
        return Keys(
            name,
            (where / "key.pem").read_bytes(),
            (where / "password").read_text(encoding="ascii").strip(),
            (where / "secret").read_bytes(),
        )
    except FileNotFoundError:
        raise Misconfigured(f"There are no keys for {name} in {where}.", "Run `butlers migrate` first.") from None
    except (OSError, UnicodeDecodeError) as unfit:
        why = getattr(unfit, "strerror", None) or "the password is no plain text"
        remedy = "Correct BUTLERS_HOME, or start as the user who made it."
        raise Misconfigured(f"The keys for {name} in {where} cannot be read: {why}.", remedy) from None


def ensure(home: Path, name: str) -> Keys:
    """The keys of one daemon, made where they are missing; nobody else may read them."""
    where = folder(home, name)
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(where, 0o700)  # noqa: PTH101  # an existing folder, such as a mounted volume, may be wider
        _write_once(where / "key.pem", generate_key()[0])
        _write_once(where / "password", secrets.token_urlsafe(32).encode())
        _write_once(where / "secret", secrets.token_bytes(32))
    except OSError as refused:
        raise Misconfigured(f"{where} cannot be written: {refused.strerror}.", "Correct BUTLERS_HOME.") from None
    return read(home, name)


def _write_once(path: Path, content: bytes) -> None:
    """Whoever comes first writes; a half-written file is never seen."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def admin_dsn(settings: Settings) -> str:
    """The URL that may make roles and tables: DATABASE_URL, or the embedded server if it runs."""
    if settings.database_url is not None:
        dsn = settings.database_url.reveal()
        if not _has_fitting_ports(dsn):
            raise Misconfigured("DATABASE_URL names a port that is none.", "Use a number from 1 to 65535.")
        return dsn
    server = postgres.running(settings.home)
    if server is None:
        raise Misconfigured("The database is not running.", "Start everything with `butlers up`, or set DATABASE_URL.")
    return server.dsn_of(DATABASE)


def _has_fitting_ports(dsn: str) -> bool:
    """Whether each of the hosts, separated by commas as libpq has them, has a fitting port or none."""
    hosts = urlsplit(dsn).netloc.rpartition("@")[2].split(",")
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    return all(not port or (port.isdecimal() and port.isascii() and 0 < int(port) <= LAST_PORT) for port in ports)


def trouble(error: BaseException) -> str:
    """What the database or the way to it says is wrong, as the end of a sentence without its full stop."""
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return next(iter(str(error).splitlines()), type(error).__name__).strip().rstrip(".")


def place_of(dsn: str) -> str:
    """Where that database is, as a person would know it: no login, no password."""
    return f"{urlsplit(dsn).netloc.rpartition('@')[2] or 'this machine'}/{database_of(dsn)}"


def dsn_as(admin: str, name: str, password: str) -> str:
    """The same database by the login of one daemon."""
    parts = urlsplit(admin)
    login = f"{quote(database_of(admin))}_{name}:{quote(password, safe='')}"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, f"{login}@{host}", parts.path, parts.query, ""))


def database_of(dsn: str) -> str:
    """The database's name in a URL."""
    return urlsplit(dsn).path.lstrip("/") or "postgres"


def role_of(dsn: str, name: str) -> str:
    """The login role of one daemon in that database."""
    return f"{database_of(dsn)}_{name}"
