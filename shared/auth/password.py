"""The console's password: the setting, and nothing that was set before."""

import hashlib
import hmac
import unicodedata
from typing import Final

from shared.config.settings import Secret
from shared.errors import InvalidInput, Misconfigured

LONGEST: Final = 1024
SHORTEST: Final = 8


def demand_fit(password: Secret) -> None:
    """Raise InvalidInput for fewer than 8 or more than 1024 characters."""
    long = len(password.reveal())
    if not SHORTEST <= long <= LONGEST:
        raise InvalidInput(f"The console's password has {long} characters.", f"Give between {SHORTEST} and {LONGEST}.")


def check_password(given: str, configured: Secret | None) -> bool:
    """Return whether this is the password, in a time that does not depend on how much of it is right.

    Raises Misconfigured if there is none.
    """
    if configured is None:
        raise Misconfigured(
            "The console has no password.",
            "Sign in with the link `butlers sign-in` prints, or set BUTLERS_CONSOLE_PASSWORD.",
        )
    return len(given) <= LONGEST and hmac.compare_digest(_digest(given), _digest(configured.reveal()))


def _digest(password: str) -> bytes:
    """Hash each text in one form: keyboards differ in how they compose an accented letter."""
    return hashlib.sha256(unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")).digest()
