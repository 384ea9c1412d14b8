"""What the kernel is asked about a connection, and how its answer is read (sock_diag(7))."""

import struct

import pytest

from shared.auth.peer import question, uid_in

LOOPBACK = b"\x7f\0\0\1" + b"\0" * 12


def told(*, kind: int = 20, state: int = 1, uid: int = 1000, length: int = 88) -> bytes:
    """An answer: a netlink header, and `struct inet_diag_msg`."""
    ends = struct.pack("!HH16s16s", 52524, 41102, LOOPBACK, LOOPBACK) + struct.pack("=III", 0, 7, 0)
    message = struct.pack("=BBBB", 2, state, 0, 0) + ends + struct.pack("=IIIII", 0, 0, 0, uid, 4711)
    return struct.pack("=IHHII", 88, kind, 0, 1, 99) + message[: length - 16]


@pytest.mark.parametrize(
    ("answer", "uid"),
    [
        (told(), 1000),
        (told() + b"\x08\0\x0f\0\0\0\0\0", 1000),  # attributes follow
        (told(uid=0), 0),
        (told(uid=2**32 - 2), 2**32 - 2),
        (told(uid=65534), 65534),  # where every user has a number, it is a user's
        *[(told(state=state), None) for state in (0, *range(2, 14))],
        (told(kind=2), None),
        (told(length=83), None),
        (struct.pack("=IHHIIi", 36, 2, 0, 1, 99, -2) + b"\0" * 16, None),  # there is no such socket
        (b"", None),
    ],
)
def test_a_connected_sockets_owner_is_read_and_no_other(answer: bytes, uid: int | None) -> None:
    assert uid_in(answer) == uid


@pytest.mark.parametrize(
    ("host", "ours", "family", "first"),
    [
        ("127.0.0.1", "127.0.0.1", 2, b"\x7f\0\0\1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", 2, b"\x7f\0\0\1"),
        ("::1", "::1", 10, b"\0" * 15 + b"\1"),
    ],
)
def test_the_socket_that_is_asked_for_is_the_callers_end(host: str, ours: str, family: int, first: bytes) -> None:
    asked = question(host, 52524, ours, 41102)
    assert struct.unpack_from("=I", asked)[0] == len(asked) == 72
    assert asked[16:18] == bytes([family, 6])
    assert struct.unpack_from("!HH16s16s", asked, 24) == (52524, 41102, first.ljust(16, b"\0"), first.ljust(16, b"\0"))


@pytest.mark.parametrize("host", ["", "testclient", "127.0.0.1:80", "unix"])
def test_what_is_no_address_is_not_asked_for(host: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        question(host, 1, "127.0.0.1", 2)
