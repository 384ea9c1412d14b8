"""BUTLERS_HOME: where each daemon's key, password and secret lie, and how it reaches the database."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from shared import home_folder
from shared.auth.keypairs import generate_key, public_key
from shared.errors import Misconfigured

OWNER = "owner"
UP = "up"
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
