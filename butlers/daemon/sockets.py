"""Where daemons listen: an address that is safe to open, a port that is free, a certificate that works, the URL."""

import errno
import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from butlers import fleet
from butlers.setup import ports
from shared.config.settings import Settings, demand_safe_listening
from shared.errors import Misconfigured

OFFSETS: Final[Mapping[str, int]] = {"switchboard": 0, "messenger": 1, "console": 2, "sandbox": 3}
SANDBOX_SMTP: Final = 4
SANDBOX_IMAP: Final = 5
FIRST_BUTLER: Final = 10
PROCESSES: Final = Path("/proc")
LISTENING: Final = "0A"
_WHY: Final = {
    errno.EADDRINUSE: "is in use",
    errno.EACCES: "cannot be opened by this user",
}


def default_port(settings: Settings, entries: Sequence[fleet.Entry], name: str) -> int:
    """Return the port that design section 10 gives this name; raise Misconfigured if the fleet has no such name."""
    if name in OFFSETS:
        return settings.port_base + OFFSETS[name]
    names = [entry.name for entry in entries]
    if name not in names:
        known = ", ".join([*fleet.SERVICES, fleet.WHOLE, *names])
        raise Misconfigured(f"Unknown name `{name}`.", f"Choose from: {known}.")
    return settings.port_base + FIRST_BUTLER + ports.places(settings.home, names)[name]


def url_of(settings: Settings, port: int, *, together: bool, whole: bool = False) -> str:
    """Return the URL at which others reach a daemon; at an advertised host each butler of a fleet has its port."""
    if settings.advertise_url and not together:
        return at_port(settings.advertise_url, port) if whole else settings.advertise_url.rstrip("/")
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{settings.reached_at}:{port}"


def bind(host: str, port: int, *, spare: bool) -> socket.socket:
    """Return a listening socket, with `spare` on a free port if that one is taken; raise Misconfigured if refused."""
    try:
        return _bound(host, port)
    except OSError as refused:
        if spare and refused.errno == errno.EADDRINUSE:
            return bind(host, 0, spare=False)
        if refused.errno in _WHY:
            who = holder(port) if refused.errno == errno.EADDRINUSE else ""
            raise Misconfigured(
                f"Port {port} {_WHY[refused.errno]}{who}.",
                "Stop that program, or choose other ports with `butlers up --port-base` or `butlers run --port`.",
            ) from None
        why = os.strerror(refused.errno) if refused.errno and refused.errno > 0 else refused.strerror
        raise Misconfigured(f"Nothing can listen on {host} here: {why}.", "Correct BUTLERS_HOST.") from None


def holder(port: int) -> str:
    """Return " by PROGRAM (process ID)" for the process that listens there; nothing where the system does not tell."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for process in PROCESSES.glob("[0-9]*") if sockets else ():
        with suppress(OSError):  # it is gone, or another user's
            if any(str(one.readlink()) in sockets for one in (process / "fd").iterdir()):
                return f" by {(process / 'comm').read_text(errors='replace').strip()} (process {process.name})"
    return ""


def _listening(port: int) -> Iterator[str]:
    """Yield the inode of each socket that listens on this port (Linux, /proc/net/tcp)."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROCESSES / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    yield rest[5]


def at_port(url: str, port: int) -> str:
    """Return where the same host has something on another port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def demand_free(host: str, wanted: Iterable[int]) -> None:
    """Raise Misconfigured for the first of these ports that cannot be listened on now."""
    for port in wanted:
        bind(host, port, spare=False).close()


def demand_ready(settings: Settings, *, together: bool) -> None:
    """Raise Misconfigured if daemons would listen unsafely, or with a certificate that does not count for others."""
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
    if together or settings.advertise_url is None:
        raise Misconfigured(
            "BUTLERS_TLS_CERT is for `butlers run` at the address that BUTLERS_ADVERTISE_URL and the certificate name.",
            "Set both; or remove the certificate, and put a proxy that has it in front of `butlers up`.",
        )


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
