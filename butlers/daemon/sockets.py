"""Where daemons listen: an address that is safe to open, a port that is free, a certificate that works."""

import errno
import os
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Final

from shared.config.settings import Settings, demand_safe_listening
from shared.errors import Misconfigured

OFFSETS: Final[Mapping[str, int]] = {"switchboard": 0, "messenger": 1, "console": 2, "sandbox": 3}
SANDBOX_SMTP: Final = 4
FIRST_BUTLER: Final = 10
_WHY: Final = {
    errno.EADDRINUSE: "is in use",
    errno.EACCES: "cannot be opened by this user",
}


def bind(host: str, port: int, *, spare: bool) -> socket.socket:
    """Return a listening socket, with `spare` on a free port if that one is taken; raise Misconfigured if refused."""
    try:
        return _bound(host, port)
    except OSError as refused:
        if spare and refused.errno == errno.EADDRINUSE:
            return bind(host, 0, spare=False)
        if refused.errno in _WHY:
            raise Misconfigured(
                f"Port {port} {_WHY[refused.errno]}.",
                "Stop the program that uses it, or set BUTLERS_PORT_BASE or --port.",
            ) from None
        why = os.strerror(refused.errno) if refused.errno and refused.errno > 0 else refused.strerror
        raise Misconfigured(f"Nothing can listen on {host} here: {why}.", "Correct BUTLERS_HOST.") from None


def demand_free(host: str, ports: Iterable[int]) -> None:
    """Raise Misconfigured for the first of these ports that cannot be listened on now."""
    for port in ports:
        bind(host, port, spare=False).close()


def demand_ready(settings: Settings) -> None:
    """Raise Misconfigured if daemons would listen unsafely, or with a certificate that cannot be used."""
    demand_safe_listening(settings)
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as unfit:
        why = "not a PEM pair" if isinstance(unfit, ssl.SSLError) else unfit.strerror
        raise Misconfigured(
            f"The files {settings.tls_cert} and {settings.tls_key} are not a certificate and its key: {why}.",
            "Correct BUTLERS_TLS_CERT and BUTLERS_TLS_KEY.",
        ) from None


def _bound(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(256)
        listening.settimeout(0)
    except OSError:
        listening.close()
        raise
    return listening
