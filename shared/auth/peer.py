"""Which user of this computer holds the other end of a connection: no other can use a copied cookie, or takes a token.

Linux tells anybody the owner of a socket by its two addresses (sock_diag(7), `struct inet_diag_msg`). It finds one
socket without a look at the others: /proc/net/tcp costs ten milliseconds, and more the more connections others open.
"""

import socket
import struct
import sys
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from starlette.types import Scope

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_ESTABLISHED: Final = 1
# The number that stands for every user who has none in this user namespace. Where all have one, it is a user's own.
_NOBODY_KNOWN: Final = 65534
_ALL_USERS: Final = ["0", "0", "4294967295"]
# Length, type, flags, sequence, sender; then family, protocol, extensions, states.
_ASKED: Final = struct.Struct("=IHHIIBBBxI")
# Ports and addresses in network order; then any interface, and no cookie.
_ENDS: Final = struct.Struct("!HH16s16s")
_ANY: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
# Of the answer: its length and type, the socket's state, its owner.
_TOLD: Final = struct.Struct("=IH11xB62xI")

Ip = IPv4Address | IPv6Address


def uid_of(scope: Scope) -> int | None:
    """Return the user who opened this request's connection; None if this system does not say.

    `client` and `server` must be the connection's own addresses, and not what a header says of them.
    """
    if sys.platform != "linux" or not scope.get("client") or not scope.get("server"):
        return None
    try:
        return uid_in(_answered(question(*scope["client"], *scope["server"])))
    except (OSError, ValueError):
        return None


def holders(connection: socket.socket) -> frozenset[int]:
    """Return the users of this computer who can read what we send by this connection; none if the system says none.

    INVARIANT: that is who listens there too, since a connection that nobody has accepted yet is nobody's, or root's;
    and whoever reads on, though they have said that they write no more.
    """
    if sys.platform != "linux":
        return frozenset()
    (host, port), (ours, our_port) = connection.getpeername()[:2], connection.getsockname()[:2]
    found = set[int]()
    for of in (0, our_port):  # nothing is connected to port 0, so it is the listener that answers
        with suppress(OSError, ValueError):
            found |= {uid for _, uid in _told(_answered(question(host, port, ours, of)))}
    return frozenset(found)


def _answered(asked: bytes) -> bytes:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(asked)
        return kernel.recv(4096, socket.MSG_DONTWAIT)  # the kernel has answered before `send` returns


def question(host: str, port: int, our_host: str, our_port: int) -> bytes:
    """Return the request to the kernel for the socket at `host` connected to us; raise ValueError for no addresses."""
    theirs, ours = _ip(host), _ip(our_host)
    family = socket.AF_INET if isinstance(theirs, IPv4Address) else socket.AF_INET6
    ends = _ENDS.pack(port, our_port, theirs.packed, ours.packed) + _ANY
    length = _ASKED.size + len(ends)
    return _ASKED.pack(length, _BY_FAMILY, 1, 1, 0, family, socket.IPPROTO_TCP, 0, 1 << _ESTABLISHED) + ends


def uid_in(answer: bytes) -> int | None:
    """Return the owner of the socket that the kernel names, if it names one that is connected.

    A listener of the same port answers for a connection that is gone, and a socket that its process has let go of is
    root's.
    """
    for state, uid in _told(answer):
        if state == _ESTABLISHED and (uid != _NOBODY_KNOWN or _has_all_users()):
            return uid
    return None


def _has_all_users() -> bool:
    """Return whether this user namespace knows every user by their own number (user_namespaces(7))."""
    try:
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split() == _ALL_USERS
    except OSError:
        return False


def _told(answer: bytes) -> list[tuple[int, int]]:
    """Return the state and the owner of the socket that the kernel names, if it names one."""
    if len(answer) < _TOLD.size:
        return []
    _, kind, state, uid = _TOLD.unpack_from(answer)
    return [(state, uid)] if kind == _BY_FAMILY else []


def _ip(host: str) -> Ip:
    """Parse the address; give an IPv4 address as such also when an IPv6 socket writes it."""
    found = ip_address(host)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
