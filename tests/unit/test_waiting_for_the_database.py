"""What a start waits for and what it does not: a server that starts or recovers only needs time."""

import asyncio
import socket
import ssl

import asyncpg
import pytest

from butlers.daemon.assembly import once_there
from shared.db.pool import Database, is_away
from shared.errors import Away, Misconfigured

AWAY = Away("The database cannot be reached: it starts.", "Start it.")


class Refuses:
    """A server that has nothing but this to say; how often it was asked."""

    def __init__(self, said: Exception) -> None:
        self.said, self.asked = said, 0

    async def __call__(self) -> Database:
        """Say it."""
        self.asked += 1
        raise self.said


@pytest.mark.parametrize(
    ("lost", "away"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (ConnectionResetError(104, "Connection reset by peer"), True),
        (OSError("Multiple exceptions: [Errno 111], [Errno 111]"), True),
        (FileNotFoundError(2, "No such file or directory"), True),
        (asyncpg.CannotConnectNowError("the database system is starting up"), True),
        (asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"), True),
        (asyncpg.AdminShutdownError("terminating connection due to administrator command"), True),
        (asyncpg.CrashShutdownError("terminating connection because of crash of another server process"), True),
        (PermissionError(13, "Permission denied"), False),
        (OSError(24, "Too many open files"), False),
        (socket.gaierror(-2, "Name or service not known"), False),
        (ssl.SSLCertVerificationError("certificate verify failed"), False),
        (TimeoutError(), False),
        (asyncpg.InvalidPasswordError("password authentication failed"), False),
        (asyncpg.InvalidCatalogNameError("database does not exist"), False),
        (asyncpg.TooManyConnectionsError("too many connections"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_what_time_can_mend_is_waited_for(lost: Exception, away: bool) -> None:  # noqa: FBT001  # a table's column
    assert is_away(lost) is away


async def test_the_wait_has_an_end() -> None:
    server = Refuses(AWAY)
    with pytest.raises(Away):
        await once_there(server, asyncio.Event(), 0.3)
    assert server.asked >= 2


async def test_a_stop_ends_it_at_once() -> None:
    server, stopping = Refuses(AWAY), asyncio.Event()
    stopping.set()
    with pytest.raises(KeyboardInterrupt):
        await once_there(server, stopping, 3600)
    assert server.asked == 1


async def test_a_wrong_login_is_not_waited_for() -> None:
    server = Refuses(Misconfigured("The database refused the login.", "Run `butlers migrate`."))
    with pytest.raises(Misconfigured):
        await once_there(server, asyncio.Event(), 3600)
    assert server.asked == 1
