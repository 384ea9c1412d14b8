"""A house of which a backup is made, that goes on, and that is put back; and what leaves for third parties then.

Somebody is told by a rule and by a yes, messages wait in the queue, and a question waits: then the fleet is stopped and
the backup made. It all goes on: what waited is sent, the question is answered, and something new is told.
"""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import asyncpg

from messenger.maintenance import sealer
from shared.auth import keystore
from shared.config.timings import STANDARD
from shared.db.dsn import dsn_as
from shared.db.pool import Database
from tests.rig import fresh
from tests.rig.bench import Bench
from tests.rig.fleet import UP, Fleet
from tests.rig.outside import Entry
from tests.rig.waiting import eventually

if TYPE_CHECKING:
    from butlers.butler import Context

TELLS: Final = "health"
ADD_RULE: Final = """
INSERT INTO shared.approval_rules (tool_name, arg_constraints) VALUES ('notify', $1)
"""
PUT_ON: Final = "INSERT INTO shared.brakes DEFAULT VALUES"
LIFT: Final = "UPDATE shared.brakes SET lifted_at = clock_timestamp()"
# Where no brake can say so, nobody ever will.
KNOWN: Final = """
SELECT count(*) FROM shared.brakes b WHERE to_jsonb(b) ->> 'reason' = 'restored' AND lifted_at IS NULL
"""
RESTORED: Final = """
SELECT count(*) FROM shared.brakes WHERE reason = 'restored' AND handled_at IS NOT NULL AND lifted_at IS NULL
"""
STATUS: Final = """
SELECT n.status || coalesce(' ' || d.status, '') FROM shared.notifications n
LEFT JOIN messenger.deliveries d ON d.notification_id = n.id WHERE n.envelope #>> '{delivery,message}' = $1
"""
ACTION: Final = """
SELECT a.id::text FROM shared.pending_actions a JOIN shared.notifications n ON n.id = a.notification_id
WHERE n.envelope #>> '{delivery,message}' = $1 AND a.status = 'pending'
"""
DELIVERY: Final = """
SELECT d.id::text FROM messenger.deliveries d JOIN shared.notifications n ON n.id = d.notification_id
WHERE n.envelope #>> '{delivery,message}' = $1
"""
# As whoever changes what is authority holds it; a marker then waits, for two seconds at most.
HOLD_MARKERS: Final = "LOCK TABLE shared.authority IN ROW EXCLUSIVE MODE"
MARKER_WAITS: Final = "SELECT count(*) FROM pg_locks WHERE relation = 'shared.authority'::regclass AND NOT granted"
ENDED: Final = "SELECT count(*) = 0 FROM shared.notifications WHERE third_party AND status = 'queued'"


@dataclass(slots=True)
class Drill:
    """One fleet in one process, and what it was told."""

    bench: Bench
    fleet: Fleet
    ruled: str = ""
    asked: str = ""
    # Words that wait for a yes, or to be sent by a rule or a yes, at the time of the backup; and those told after it.
    question: str = ""
    queued: str = ""
    approved: str = ""
    lost: str = ""
    # By its words: whom it was told, so that it can be told once more.
    calls: dict[str, str] = field(default_factory=dict)
    # What the providers had taken when the backup was put back.
    before: int = 0

    async def tell(self, contact: str, about: str) -> str:
        """Tell this contact something new under a key of its own; the words."""
        said = fresh.words(about)
        self.calls[said] = contact
        await self.again(said)
        return said

    async def again(self, said: str) -> str:
        """The same call; the status of its answer."""
        about = {
            "request_context": {
                "request_id": f"call {said}",
                "source_channel": "mcp",
                "source_endpoint_identity": "drill",
                "source_sender_identity": "drill",
            }
        }
        told = {"channel": "email", "contact_id": self.calls[said], "message": said, **about}
        return str((await self.fleet.notify(TELLS, **told))["status"])

    async def approve(self, said: str) -> None:
        """The owner's yes, by the command line."""
        action = await eventually(lambda: self.fleet.value(ACTION, said))
        code, out, err = await self.fleet.house.butlers("approvals", "approve", str(action))
        assert code == 0, (out, err)

    async def status(self, said: str) -> str:
        return str(await self.fleet.value(STATUS, said))

    async def until(self, said: str, status: str) -> None:
        async def look() -> bool:
            return await self.status(said) == status

        await eventually(look)

    async def for_others(self) -> Sequence[Entry]:
        """What left for third parties since the backup was put back."""
        return [one for one in await self.fleet.outside.journal(self.before) if one.to in self.people]

    @property
    def people(self) -> Sequence[str]:
        return [f"{name}@people.test" for name in (self.ruled, self.asked)]

    # Before and after

    async def somebody_ruled(self) -> tuple[str, str]:
        """Somebody whom a rule allows, and was told something by it, and somebody whom it does not."""
        self.ruled, self.asked = (f"{name}.{self.fleet.house.name}" for name in ("ruled", "asked"))
        ruled, asked = [await self.fleet.contact("Friend", email=to) for to in self.people]
        await self.fleet.sql(ADD_RULE, {"contact_id": ruled})
        await self.until(await self.tell(ruled, "sent by the rule"), "ok sent")
        return ruled, asked

    async def people_and_calls(self) -> None:
        """The calls before the backup."""
        ruled, asked = await self.somebody_ruled()
        said = await self.tell(asked, "sent by a yes")
        await self.approve(said)
        await self.until(said, "ok sent")
        self.question = await self.tell(asked, "asked")
        await self.fleet.sql(PUT_ON)
        self.queued = await self.tell(ruled, "queued by the rule")
        self.approved = await self.tell(asked, "approved")
        await self.approve(self.approved)
        await self.until(self.approved, "queued queued")
        await self.until(self.queued, "queued queued")

    async def lost_span(self) -> None:
        """What happened after the backup was made."""
        ruled = self.calls[self.queued]
        await self.fleet.sql(LIFT)
        await self.until(self.queued, "ok sent")
        await self.until(self.approved, "ok sent")
        await self.approve(self.question)
        await self.until(self.question, "ok sent")
        self.lost = await self.tell(ruled, "told since")
        await self.until(self.lost, "ok sent")

    async def stop(self) -> None:
        """Stop all of it; nobody is connected to its database afterwards."""
        assert await self.fleet.kill(UP, signal.SIGTERM) == [0], self.fleet.logs()
        await self.fleet.db.close()

    async def copied(self, source: str, target: str) -> None:
        """Make a database a copy of another's rows."""
        connection = await asyncpg.connect(self.bench.server.dsn)
        try:
            await connection.execute(f"DROP DATABASE IF EXISTS {target} WITH (FORCE)")
            await connection.execute(f"CREATE DATABASE {target} TEMPLATE {source}")
        finally:
            await connection.close()

    async def back_up(self) -> None:
        """Database and home, the fleet stopped."""
        await self.stop()
        await self.copied(self.fleet.house.name, f"{self.fleet.house.name}_kept")
        shutil.copytree(self.fleet.house.home, self.kept_home)
        await self.start()

    async def crash_after(self, contact: str) -> str:
        """Tell this contact something, and lose the database; what takes over had not yet heard of its marker."""
        house = self.fleet.house
        replica, kept = await asyncpg.connect(house.dsn), house.folder / "replica"
        try:
            async with replica.transaction(isolation="repeatable_read", readonly=True):
                async with self._markers_held():
                    telling = asyncio.create_task(self.tell(contact, "sent right before the crash"))
                    await eventually(lambda: self.fleet.value(MARKER_WAITS))
                    snapshot = str(await replica.fetchval("SELECT pg_export_snapshot()"))
                await self.until(await telling, "ok sent")
                await self.fleet.kill(UP, signal.SIGKILL)
                await self.bench.ran("pg_dump", "-Fc", f"--snapshot={snapshot}", "-f", str(kept), house.dsn)
        finally:
            await replica.close()
        await self.fleet.db.close()
        await self.put_back_dump(kept)
        return telling.result()

    async def dumped(self) -> Path:
        """A backup of the database, while everything runs."""
        kept = self.fleet.house.folder / "dumped"
        await self.bench.ran("pg_dump", "-Fc", "-f", str(kept), self.fleet.house.dsn)
        return kept

    async def put_back_dump(self, kept: Path) -> None:
        house = self.fleet.house
        await self.copied("template0", house.name)
        await self.bench.ran("pg_restore", "-d", house.dsn, str(kept))

    async def sealed(self) -> None:
        """One more Messenger of the house seals what the audit holds, before the minute of the first is over."""
        house = self.fleet.house
        db = await Database.open(
            dsn_as(house.dsn, "messenger", keystore.read(house.home, "messenger").password), most=1
        )
        try:
            settings = SimpleNamespace(timings=replace(STANDARD, seal=0.0))
            context = cast("Context", SimpleNamespace(name="messenger", home=house.home, db=db, settings=settings))
            assert await sealer.seal(context) is not None
        finally:
            await db.close()

    @asynccontextmanager
    async def _markers_held(self) -> AsyncIterator[None]:
        holder = await asyncpg.connect(self.fleet.house.dsn)
        try:
            async with holder.transaction():
                await holder.execute(HOLD_MARKERS)
                yield
        finally:
            await holder.close()

    async def put_back_database(self) -> None:
        await self.copied(f"{self.fleet.house.name}_kept", self.fleet.house.name)

    def put_back_home(self) -> None:
        """All of it but the sandbox, which stands for the world outside."""
        for path in (self.kept_home / "keys").iterdir():
            shutil.copytree(path, self.fleet.house.home / "keys" / path.name, dirs_exist_ok=True)

    @property
    def kept_home(self) -> Path:
        return self.fleet.house.folder / "kept"

    async def start(self) -> None:
        await self.fleet.reconnect()
        await self.fleet.begin()
        self.before = max((one.n for one in await self.fleet.outside.journal()), default=0)

    async def nothing_goes_by_itself(self) -> None:
        """The house is restored; what waited is before the owner, and so is every call that is made once more."""
        await eventually(lambda: self.fleet.value(RESTORED))
        assert await self.status(self.queued) == "uncertain uncertain"
        assert await self.status(self.approved) == "uncertain uncertain"
        assert (await self.status(self.question)).startswith("pending_approval")
        told = await self.fleet.outside.until(lambda one: one.n > self.before and "backup" in one.text)
        assert {one.to for one in told} & {*map(str, self.people)} == set()
        answers = {said: await self.again(said) for said in self.calls}
        assert await self.fleet.value(ENDED)
        assert answers[self.lost] == "pending_approval"
        code, _, err = await self.fleet.house.butlers("brake", "off", "--all")
        assert code == 0, err
        answers |= {said: await self.again(said) for said in self.calls}
        assert {answers[said] for said in (self.queued, self.approved)} == {"uncertain"}
        assert {answers[said] for said in (self.lost, self.question)} == {"pending_approval"}
        assert await self.for_others() == []

    async def lift_all(self) -> None:
        """The owner has looked: once the house says that it is restored, or at once where it never does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await eventually(lambda: self.fleet.value(KNOWN))
        await self.fleet.sql(LIFT)

    async def goes_by_the_owners_word(self) -> None:
        """It is no dead end: a yes, "again", and a rule that was made since let it out."""
        await self.approve(self.lost)
        await self.until(self.lost, "ok sent")
        reference = await self.fleet.value(DELIVERY, self.queued)
        code, _, err = await self.fleet.house.butlers("deliveries", "resolve", str(reference), "again")
        assert code == 0, err
        await self.until(self.queued, "ok sent")
        await self.fleet.sql(ADD_RULE, {"contact_id": self.calls[self.queued]})
        await self.until(await self.tell(self.calls[self.queued], "by a new rule"), "ok sent")
        assert len(await self.for_others()) == 3


@asynccontextmanager
async def gone_on(bench: Bench) -> AsyncIterator[Drill]:
    """A fleet of which a backup was made, and that went on and was stopped."""
    made = Drill(bench, await Fleet.start(await bench.house(), "one"))
    try:
        await made.people_and_calls()
        await made.back_up()
        await made.lost_span()
        await made.stop()
        yield made
    finally:
        await made.fleet.abandon()
