"""The connection pool, a unit of work under one role, and the JSON codec."""

import asyncio
import errno
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import asyncpg

from shared.db.decoding import decoded
from shared.db.proof import Unproved
from shared.errors import Away, ButlersError, Locked, Misconfigured, Unavailable
from shared.hashing import canonical_json

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
Record: TypeAlias = asyncpg.Record
Setting: TypeAlias = Literal["role", "butlers.me"]

# What ends a statement that waits too long or takes too much, and nothing else.
CUT_SHORT = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,
    asyncpg.ConfigurationLimitExceededError,
)
# Those of them that the same statement may meet each time.
_TOO_LONG = (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, asyncpg.ConfigurationLimitExceededError)
# The errors of a connection that is lost, and of what took too long; the caller may try again later.
LOST = (
    *CUT_SHORT,
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.InterfaceError,
    # What asyncpg says of a connection that was ended between two statements.
    asyncpg.InternalClientError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InsufficientResourcesError,
)
# What keeps this process from connecting, whatever the server does.
OURS = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# The errors of a server that shuts down or starts up, or that has shut down.
GOING = (
    asyncpg.CannotConnectNowError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)
# Between two attempts to connect while the server is away, since a storm of them would hold up its return.
BREATH_SECONDS = 0.25
# A unit of work that stands still, for whatever reason, must not hold its locks against all others, nor may the
# session of a process that is gone go on waiting for a lock.
SESSION = {
    "application_name": "butlers",
    "statement_timeout": "20000",
    "idle_in_transaction_session_timeout": "5000",
    "client_connection_check_interval": "1000",
    # Each statement is planned once a connection, and not anew the first five times: planning took half of the time.
    "plan_cache_mode": "force_generic_plan",
}
NOW_HELD = ("This takes too long, or something else holds what it needs.", "Try again in a moment.")
NOW_AWAY = ("The database cannot be reached now.", "Try again in a moment.")
# What a burst opened is closed again so long after it was last needed.
IDLE_SECONDS = 60.0
BRIEFLY = "SET LOCAL lock_timeout = '2s'"
PING = "SELECT epoch FROM shared.authority"
_ROLE = re.compile(r"^[a-zA-Z0-9_]{1,63}$")
COMMIT = "COMMIT"
# INVARIANT: in a transaction of its own. Those that notify are committed one after another, in all databases together,
# so that whoever notifies much would hold up what a hint is only about; a hint that has to wait is given up.
HINT = """
SELECT set_config('lock_timeout', '100ms', true), set_config('synchronous_commit', 'off', true),
    count(pg_notify(topic, key))
FROM unnest($1::text[], $2::text[]) AS hints (topic, key)
"""
NOTIFY = "SELECT pg_notify($1, $2)"
UNFLUSHED = "SET LOCAL synchronous_commit TO off; COMMIT"


@dataclass(slots=True)
class _Commit:
    """How a unit of work is to be committed, and what is to happen then."""

    statement: str = COMMIT
    then: list[Callable[[], None]] = field(default_factory=list)
    # Topics and keys of its wake hints, each once.
    hints: dict[tuple[str, str], None] = field(default_factory=dict)


# By the connection that each unit of work holds.
_commits: dict[int, _Commit] = {}


async def prepare_connection(connection: Connection) -> None:
    """Register the JSON codec, so that jsonb columns become Python values.

    What is written is sorted and compact, so that equal values are equal texts.
    """
    await connection.set_type_codec("jsonb", encoder=canonical_json, decoder=decoded, schema="pg_catalog")


def after_commit(connection: Connection, then: Callable[[], None]) -> None:
    """Call `then` once this unit of work is committed, and never if it is undone; at once outside of any."""
    commit = _commits.get(id(connection))
    if commit is None:
        then()
    else:
        commit.then.append(then)


async def tell(connection: Connection, topic: str, key: str = "") -> None:
    """Wake all listeners of this topic once this unit of work is committed, or what stands outside of any.

    The hint of a unit of work may be lost. Its key is an id and no secret.
    """
    commit = _commits.get(id(connection))
    if commit is None:
        await connection.execute(NOTIFY, topic, key)
    else:
        commit.hints[topic, key] = None


async def _after(connection: Connection, commit: _Commit) -> None:
    """Do what was to be done once this is committed; a hint that cannot be sent is lost without a word."""
    for then in commit.then:
        then()
    if commit.hints:
        with suppress(*LOST, asyncpg.PostgresError):
            await connection.execute(HINT, *map(list, zip(*commit.hints, strict=True)))


@asynccontextmanager
async def transaction(connection: Connection) -> AsyncIterator[None]:
    """Run one unit of work on a connection of no pool, as a command does; anything raised inside undoes it."""
    commit = _commits[id(connection)] = _Commit()
    try:
        async with connection.transaction():
            yield
        await _after(connection, commit)
    finally:
        del _commits[id(connection)]


def commit_unflushed(connection: Connection) -> None:
    """Let the commit of this unit of work not wait until it is on the disk.

    INVARIANT: only where nothing outside the database follows from it but after another commit, which does wait, or
    what may happen once more. The log is written in order, so that the other commit takes this along; a server that
    crashes before it forgets both.
    """
    _commits[id(connection)].statement = UNFLUSHED


def is_away(lost: BaseException) -> bool:
    """Return whether an error comes from a server that starts or recovers, so that waiting helps.

    Nobody listens then, or the server hangs up or asks to wait. Waiting helps against none of the other errors: a host
    that nobody knows, a certificate or a login that is wrong, a socket that this process may not open.
    """
    if isinstance(lost, OSError):
        return not isinstance(lost, socket.gaierror | ssl.SSLError | TimeoutError) and lost.errno not in OURS
    return isinstance(lost, GOING)


async def _roll_back_if_open(connection: Connection) -> None:
    """Undo a unit of work that was cut off; one that ended itself needs no second round trip."""
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")


class Database:
    """One pool and, in one-process mode, the role that each unit of work acts as.

    Where the database has one role for all, `setting` is not `role` but `butlers.me`: a name that nobody checks.
    """

    def __init__(
        self,
        pool: "asyncpg.Pool[asyncpg.Record]",
        role: str | None = None,
        setting: Setting = "role",
        most: int | None = None,
    ) -> None:
        if role is not None and not _ROLE.match(role):
            raise Misconfigured(f"`{role}` cannot be a database role.", "Use letters, digits and underscores.")
        self._pool = pool
        self._away_until = 0.0
        # So many of the pool's connections it holds at once, so that no butler takes those of all others.
        self._room = nullcontext() if most is None else asyncio.Semaphore(most)
        self.role = role
        # The role's name is checked above; a parameter would cost a second round trip per unit of work.
        self._begin = "BEGIN" if role is None else f"BEGIN; SET LOCAL {setting} TO '{role}'"

    @classmethod
    async def open(
        cls, dsn: str, *, role: str | None = None, most: int = 24, password: Callable[[], str] | None = None
    ) -> "Database":
        """Connect, or raise an error that says in one sentence why not.

        `password` is called anew for each connection and takes precedence over the URL's. Raises Away where the server
        may only need time.
        """
        try:
            pool = await asyncpg.create_pool(
                dsn,
                min_size=1,
                max_size=most,
                init=prepare_connection,
                reset=_roll_back_if_open,
                timeout=10,
                password=password,
                command_timeout=30,
                max_inactive_connection_lifetime=IDLE_SECONDS,
                server_settings=SESSION,
            )
        except asyncpg.InvalidAuthorizationSpecificationError as refused:
            raise Misconfigured(
                f"The database refused the login: {refused}.", "Run `butlers migrate`, which creates the logins."
            ) from None
        except (*LOST, asyncpg.PostgresError) as lost:
            raise (Away if is_away(lost) else Unavailable)(
                f"The database cannot be reached: {str(lost) or type(lost).__name__}.",
                "Start it, or correct DATABASE_URL.",
            ) from None
        return cls(pool, role)

    @classmethod
    def unreachable(cls) -> "Database":
        """Return one for what is built and never used: whoever works with it fails."""
        return cls(asyncpg.create_pool("postgresql://", min_size=0))

    def acting_as(self, role: str, most: int | None = None) -> "Database":
        """Return the same pool, with each unit of work acting as `role`, at most so many at once (one-process mode)."""
        return Database(self._pool, role, most=most)

    def named(self, name: str, most: int | None = None) -> "Database":
        """Return the same pool, with each unit of work under that name (one-process mode, one role for all)."""
        return Database(self._pool, name, "butlers.me", most)

    @asynccontextmanager
    async def work(self, first: str | None = None) -> AsyncIterator[Connection]:
        """Run one transaction as this daemon's role; anything raised inside undoes it.

        It begins with the statement `first`, one without parameters, in the same round trip. Raises Away where the
        connection is lost, because the database was there when the pool was opened.
        """
        async with self._room:
            connection = await self._connection()
            commit = _commits[id(connection)] = _Commit()
            try:
                try:
                    await connection.execute(f"{self._begin}; {first}" if first else self._begin)
                    yield connection
                except Exception:
                    # One that was cut off is undone by the pool, which reports it as a mistake; this is none.
                    await connection.execute("ROLLBACK")
                    raise
                await connection.execute(commit.statement)
                await _after(connection, commit)
            except (*LOST, asyncpg.PostgresError) as failed:
                if isinstance(failed, asyncpg.InternalClientError):
                    connection.terminate()
                raise _told(failed) from failed
            finally:
                del _commits[id(connection)]
                # Whether the work counted is known by now; the pool drops a connection that is lost on its way back.
                with suppress(*LOST):
                    await self._pool.release(connection, timeout=5)

    async def _connection(self) -> "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]":
        if time.monotonic() < self._away_until:
            raise Away(*NOW_AWAY)
        try:
            return await self._pool.acquire(timeout=10)
        except LOST as lost:
            if is_away(lost):
                self._away_until = time.monotonic() + BREATH_SECONDS
            raise Away(*NOW_AWAY) from lost
        except (asyncpg.InvalidAuthorizationSpecificationError, Unproved) as refused:
            raise Unavailable(*NOW_AWAY) from refused

    async def close(self) -> None:
        """Give running units of work two seconds, then cut them off."""
        try:
            await asyncio.wait_for(self._pool.close(), 2)
        except TimeoutError:
            self._pool.terminate()


def _told(failed: Exception) -> ButlersError:
    """Return what became of a unit of work, as an error of ours."""
    if isinstance(failed, _TOO_LONG):
        return Locked(*NOW_HELD)
    return Away(*NOW_AWAY) if isinstance(failed, LOST) else _refused(failed)


def _refused(failed: Exception) -> ButlersError:
    # PostgreSQL's own words may quote what somebody wrote; the kind of error is enough.
    return ButlersError(f"The database refused a statement ({type(failed).__name__}).")


@asynccontextmanager
async def savepoint(connection: Connection) -> AsyncIterator[None]:
    """Undo only what was done inside where an error is raised inside; the unit of work can go on.

    That holds for a statement that waited too long for a lock too. Raises Away where the connection is lost, and then
    nothing can go on.
    """
    try:
        await connection.execute("SAVEPOINT one")
        try:
            yield
        except Exception:
            # Where the connection is lost, this says so.
            await connection.execute("ROLLBACK TO one")
            raise
        await connection.execute("RELEASE one")
    except CUT_SHORT as failed:
        raise _refused(failed) from failed
    except (*LOST, asyncpg.PostgresError) as failed:
        raise _told(failed) from failed


async def wait_briefly(connection: Connection) -> None:
    """Let this unit of work, from here on, wait for no lock longer than two seconds."""
    await connection.execute(BRIEFLY)


async def ping(connection: Connection) -> None:
    """Raise if the database does not answer, or this role may not read what every daemon reads."""
    await connection.fetchval(PING)
