"""The console's password: kept as a scrypt hash in a file of the console alone, or given as a setting.

The file is `<folder>/password.scrypt`, one line `scrypt$N$r$p$<salt>$<hash>` in base64 (RFC 7914).
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shared.config.settings import Secret
from shared.errors import InvalidInput, Misconfigured

FILE: Final = "password.scrypt"
LONGEST: Final = 1024
SHORTEST: Final = 8
_N, _R, _P = 2**15, 8, 3
_MEMORY: Final = 64 * 1024 * 1024  # OpenSSL's own limit is just too low for N = 2^15


def write_password(folder: Path, password: str, *, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> None:
    """Keep the hash of this password in the folder, which only its owner may enter; replace an older one.

    Raises InvalidInput for fewer than 8 or more than 1024 characters.
    """
    if not SHORTEST <= len(password) <= LONGEST:
        raise InvalidInput(
            f"The console's password has {len(password)} characters.", f"Give between {SHORTEST} and {LONGEST}."
        )
    salt = random_bytes(16)
    fields = ("scrypt", str(_N), str(_R), str(_P), _text(salt), _text(_hash(password, salt, (_N, _R, _P))))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f".{FILE}.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write("$".join(fields) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / FILE)


def has_password(folder: Path) -> bool:
    """Return whether a password was written to this folder before."""
    return (folder / FILE).is_file()


def check_password(given: str, *, configured: Secret | None, folder: Path) -> bool:
    """Return whether this is the password, in a time that does not depend on how much of it is right.

    If there is a setting, it alone counts. Takes about 0.2 s of one core, so call it in a thread. Raises Misconfigured
    if there is neither a setting nor a readable file.
    """
    if len(given) > LONGEST:
        return False
    if configured is not None:
        return hmac.compare_digest(_digest(given), _digest(configured.reveal()))
    cost, salt, expected = _kept(folder)
    return hmac.compare_digest(_hash(given, salt, cost), expected)


def _kept(folder: Path) -> tuple[tuple[int, int, int], bytes, bytes]:
    try:
        name, n, r, p, salt, expected = (folder / FILE).read_text("ascii").strip().split("$")
        cost = int(n), int(r), int(p)
        found = cost, base64.b64decode(salt, validate=True), base64.b64decode(expected, validate=True)
    except (OSError, ValueError, binascii.Error):
        name, found = "", None
    if name != "scrypt" or found is None:
        raise Misconfigured(
            "The console has no password.",
            "Sign in with the link `butlers sign-in` prints, or set BUTLERS_CONSOLE_PASSWORD.",
        )
    return found


def _hash(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    n, r, p = cost
    return hashlib.scrypt(_bytes(password), salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=32)


def _digest(password: str) -> bytes:
    return hashlib.sha256(_bytes(password)).digest()


def _bytes(password: str) -> bytes:
    """Encode each text in one form: keyboards differ in how they compose an accented letter."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
