"""The directory: the registry of daemons and the keyring that proves them, as this process knows them."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from butlers.daemon import discovery
from shared.auth.tokens import Caller, Signer, Verifier
from shared.config.timings import STANDARD, Timings
from shared.db.clock import DatabaseClock, boot
from shared.db.pool import Database
from shared.errors import ButlersError
from shared.loops import pause
from shared.storage import keyring, session_list
from shared.telemetry.logs import logger

log = logger("butlers.daemon.directory")


@dataclass(frozen=True, slots=True)
class Desks:
    """How the console signs in the owner's desks, and how it knows them again."""

    signer: Signer
    verifier: Verifier


class Directory:
    """What the tables say: instances at most two seconds old; keys and time, read again every few seconds.

    Of whom nobody was heard it looks again sooner, since a daemon that has just begun is called at once.
    """

    def __init__(self, db: Database, timings: Timings = STANDARD) -> None:
        self.clock = DatabaseClock(boot)
        self._db = db
        self._timings = timings
        self._keys: Mapping[str, Collection[str]] = {}
        self._instances: Mapping[str, Sequence[str]] = {}
        self._read_at = float("-inf")

    def keys_of(self, name: str) -> Collection[str]:
        """Return the public keys that count for this name."""
        return self._keys.get(name, ())

    async def find(self, name: str) -> Sequence[str]:
        """Return the base URLs of the ready instances, the freshest first."""
        trusted = self._timings.directory if name in self._instances else self._timings.directory_unknown
        if time.monotonic() - self._read_at > trusted:
            try:
                await self._read_instances()
            except ButlersError as lost:
                log.warning("registry not read", why=lost.message)
        return self._instances.get(name, ())

    async def _read_instances(self) -> None:
        async with self._db.work() as connection:
            rows = await discovery.instances(connection, self._timings.instance_counts)
        found: dict[str, list[str]] = {}
        for row in rows:
            found.setdefault(row["name"], []).append(row["url"])
        self._instances, self._read_at = found, time.monotonic()

    async def read_keys(self) -> None:
        """Read the keyring as it is now, and the time by which tokens are judged."""
        async with self._db.work() as connection:
            await self.clock.read(connection)
            self._keys = await keyring.counting(connection)

    async def is_live(self, caller: Caller) -> bool:
        """Return whether a caller's token counts still, unless it is a daemon's; raise Unavailable if none can know."""
        async with self._db.work() as connection:
            if caller.kind in {"session", "classifier"}:
                return await session_list.is_running(connection, caller.name, caller.jti)
            return await discovery.is_live(connection, caller.jti)

    async def keep_keys(self, stopping: asyncio.Event) -> None:
        """Read the keyring again and again, so that a new or retired key counts within seconds."""
        while not await pause(stopping, self._timings.keyring):
            try:
                await self.read_keys()
            except ButlersError as lost:
                log.warning("keyring not read", why=lost.message)
