"""BUTLERS_HOME: where each daemon's key, password and secret lie, and how it reaches the database."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from shared import home_folder
from shared.auth.keypairs import generate_key, public_key
from shared.config.settings import Settings
from shared.errors import Misconfigured
from shared.postgres import server as postgres

OWNER = "owner"
UP = "up"
DATABASE = "butlers"
LAST_PORT = 65535
# The public keys that key.pem had before, one a line, the oldest first.
FORMER = "former"


@dataclass(frozen=True, slots=True)
class Keys:
    """What one daemon holds and nobody else."""

    name: str
    private_pem: bytes
    password: str
    secret: bytes

    @property
    def has_login(self) -> bool:
        """Whether it has a login of its own, which is exactly where it has a password; else all share one role."""
        return bool(self.password)


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


def public_keys(home: Path, name: str) -> list[str]:
    """The public keys that one daemon has here or had here before, today's first; none where its keys are not here."""
    where = folder(home, name)
    try:
        former = (where / FORMER).read_text(encoding="ascii").split() if (where / FORMER).exists() else []
        return [public_key((where / "key.pem").read_bytes()), *reversed(former)]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as unfit:
        why = getattr(unfit, "strerror", None) or "the public keys are no plain text"
        remedy = "Correct BUTLERS_HOME, or start as the user who made it."
        raise Misconfigured(f"The keys for {name} in {where} cannot be read: {why}.", remedy) from None


def ensure(home: Path, name: str, *, login: bool = True) -> Keys:
    """The keys of one daemon, made where they are missing; nobody else may read them."""
    where = folder(home, name)
    try:
        home_folder.make(home)
        where.parent.mkdir(mode=0o755, exist_ok=True)
        where.mkdir(mode=0o700, exist_ok=True)
        os.chmod(where, 0o700)  # noqa: PTH101  # an existing folder, such as a mounted volume, may be wider
        _write_once(where / "key.pem", generate_key()[0])
        _keep_password(where / "password", login=login)
        _write_once(where / "secret", secrets.token_bytes(32))
    except OSError as refused:
        raise Misconfigured(f"{where} cannot be written: {refused.strerror}.", "Correct BUTLERS_HOME.") from None
    return read(home, name)


def replace_key(home: Path, name: str, private_pem: bytes) -> None:
    """Put this key in the place of the one on file, whose public half is kept beside it."""
    where = folder(home, name)
    former = "".join(f"{key}\n" for key in reversed(dict.fromkeys(public_keys(home, name))))
    _replace(where / FORMER, former.encode())
    _replace(where / "key.pem", private_pem)


def replace_password(home: Path, name: str, password: str) -> None:
    """Put this password in the place of the one on file."""
    _replace(folder(home, name) / "password", password.encode())


def _replace(path: Path, content: bytes) -> None:
    """The whole of the new or the whole of the old is there at any moment, for the same user."""
    draft, owner = _draft(path, content), path.parent.stat()
    if os.geteuid() == 0:
        os.chown(draft, owner.st_uid, owner.st_gid)
    draft.replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _keep_password(path: Path, *, login: bool) -> None:
    """A password exactly where there is a login that it opens."""
    if path.exists() and bool(path.read_bytes().strip()) is not login:
        path.unlink()
    _write_once(path, secrets.token_urlsafe(32).encode() if login else b"")


def _write_once(path: Path, content: bytes) -> None:
    """Whoever comes first writes; a half-written file is never seen."""
    if path.exists():
        return
    draft = _draft(path, content)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _draft(path: Path, content: bytes) -> Path:
    """A file beside this one with that content, for nobody else to read."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return draft


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
    return f"{unquote(urlsplit(dsn).netloc.rpartition('@')[2]) or 'this machine'}/{database_of(dsn)}"


def dsn_as(admin: str, name: str, password: str) -> str:
    """The same database by the login of one daemon; without a password by the login of the URL, under that name."""
    parts = urlsplit(admin)
    if not password:
        query = f"{parts.query}&" if parts.query else ""
        return urlunsplit((parts.scheme, parts.netloc, parts.path, f"{query}butlers.me={quote(name)}", ""))
    login = f"{quote(database_of(admin))}_{name}:{quote(password, safe='')}"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, f"{login}@{host}", parts.path, parts.query, ""))


def database_of(dsn: str) -> str:
    """The database's name in a URL."""
    return urlsplit(dsn).path.lstrip("/") or "postgres"


def role_of(dsn: str, name: str) -> str:
    """The login role of one daemon in that database."""
    return f"{database_of(dsn)}_{name}"
