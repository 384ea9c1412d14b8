"""The keys in BUTLERS_HOME: each daemon's private key, its secret, and its password for the database."""

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
# What `butlers go-live` keeps for the Messenger: its channels' settings, by their names.
CREDENTIALS = "credentials.json"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that one daemon holds and nobody else."""

    name: str
    private_pem: bytes
    password: str
    secret: bytes

    @property
    def has_login(self) -> bool:
        """Whether it has a login of its own, which is exactly where it has a password; else all share one role."""
        return bool(self.password)


def folder(home: Path, name: str) -> Path:
    """Return where the keys of one daemon lie."""
    return home / "keys" / name


def read(home: Path, name: str) -> Keys:
    """Read the keys of one daemon; raise Misconfigured, which names the missing step, where they cannot be read."""
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
        why = getattr(unfit, "strerror", None) or "the password is not plain text"
        remedy = "Correct BUTLERS_HOME, or start as the user who made it."
        raise Misconfigured(f"The keys for {name} in {where} cannot be read: {why}.", remedy) from None


def public_keys(home: Path, name: str) -> list[str]:
    """Return the public keys that one daemon has or had here, today's first; none where its keys are not here."""
    where = folder(home, name)
    try:
        former = (where / FORMER).read_text(encoding="ascii").split() if (where / FORMER).exists() else []
        return [public_key((where / "key.pem").read_bytes()), *reversed(former)]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as unfit:
        why = getattr(unfit, "strerror", None) or "the public keys are not plain text"
        remedy = "Correct BUTLERS_HOME, or start as the user who made it."
        raise Misconfigured(f"The keys for {name} in {where} cannot be read: {why}.", remedy) from None


def ensure(home: Path, name: str, *, login: bool = True) -> Keys:
    """Make those keys of one daemon that are missing, for nobody else to read, and return all of them."""
    where = folder(home, name)
    try:
        home_folder.make(home)
        where.parent.mkdir(mode=0o711, exist_ok=True)
        where.mkdir(mode=0o700, exist_ok=True)
        os.chmod(where, 0o700)  # noqa: PTH101  # an existing folder, such as a mounted volume, may be wider
        _write_once(where / "key.pem", generate_key()[0])
        _keep_password(where / "password", login=login)
        _write_once(where / "secret", secrets.token_bytes(32))
    except OSError as refused:
        raise Misconfigured(f"{where} cannot be written: {refused.strerror}.", "Correct BUTLERS_HOME.") from None
    return read(home, name)


def replace_key(home: Path, name: str, private_pem: bytes) -> None:
    """Replace the private key on file; keep the public half of the old one beside it."""
    where = folder(home, name)
    former = "".join(f"{key}\n" for key in reversed(dict.fromkeys(public_keys(home, name))))
    _replace(where / FORMER, former.encode())
    _replace(where / "key.pem", private_pem)


def replace_password(home: Path, name: str, password: str) -> None:
    """Replace the password on file."""
    _replace(folder(home, name) / "password", password.encode())


def replace_credentials(home: Path, name: str, content: bytes) -> None:
    """Replace what that daemon opens its channels by."""
    path = folder(home, name) / CREDENTIALS
    try:
        _replace(path, content)
    except OSError as refused:
        raise Misconfigured(
            f"{path} cannot be written: {refused.strerror}.", "Set the variables of the channels instead."
        ) from None


def read_credentials(home: Path, name: str) -> bytes | None:
    """Return what that daemon opens its channels by; None where there is nothing, or it is for another user."""
    try:
        return (folder(home, name) / CREDENTIALS).read_bytes()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def _replace(path: Path, content: bytes) -> None:
    """Replace a file so that at any moment all of the old or all of the new is there, for the same user."""
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
    """Keep a password exactly where there is a login that it opens."""
    if path.exists() and bool(path.read_bytes().strip()) is not login:
        path.unlink()
    _write_once(path, secrets.token_urlsafe(32).encode() if login else b"")


def _write_once(path: Path, content: bytes) -> None:
    """Write a file unless it exists: the first writer wins, and a half-written file is never seen."""
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
    """Write that content to a file beside this one, for nobody else to read, and return its path."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return draft
