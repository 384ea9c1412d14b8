"""A whole house inside a test's own process and loop: real rows, a real sandbox, daemons behind their doors.

Its fixtures stand in conftest.py. A test module that asks for one runs in one loop per module, and shares the
house with the module's other tests: each uses contacts, words and request ids of its own.
"""

import asyncio
import itertools
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import asyncpg

from butlers import fleet
from butlers.butler import Context, Daemon
from butlers.daemon.assembly import Assembly, Plan, database, listening_dsn
from butlers.daemon.discovery import keep_token
from butlers.setup import migrate
from messenger.channels.base import Channel
from messenger.channels.email import EmailChannel
from messenger.channels.telegram import TelegramChannel
from messenger.delivery.lease import Worker
from shared.auth import keystore
from shared.auth.tokens import Signer, mint_client_token
from shared.channels.realms import SANDBOX_TOKEN
from shared.config.settings import Settings
from shared.config.timings import STANDARD, Timings
from shared.db.pool import Connection, Database, Record, prepare_connection
from shared.db.wake import listen
from shared.gate import owner_decision
from shared.rpc import Answer
from shared.storage import contacts
from tests.integration.sandbox_runner import OWNER, Running, running
from tests.rig.cluster import BUTLERS, Cluster
from tests.rig.waiting import LONGEST, eventually

NAMES: Final = ("switchboard", "messenger", *BUTLERS)
OWNER_EMAIL: Final = "owner@sandbox.test"
# Actions whose last line in the audit is not the state they are in.
MOVED_WITHOUT_A_LINE: Final = """
SELECT a.id::text FROM shared.pending_actions a WHERE a.status IS DISTINCT FROM (
    SELECT CASE WHEN e.event_type IN ('parked', 'revised', 'edited', 'identifier_added') THEN 'pending'
        ELSE e.event_type END
    FROM shared.approval_events e WHERE e.action_id = a.id ORDER BY e.seq DESC LIMIT 1)
"""
Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_numbers = itertools.count(1)


@dataclass(slots=True)
class House:
    """Its daemons, the superuser's way to its rows, and its sandbox."""

    settings: Settings
    dsn: str
    assembly: Assembly
    daemons: Mapping[str, Daemon]
    box: Running
    sql: Rows
    # Client tokens by butler.
    tokens: Mapping[str, str]
    workers: list[Worker] = field(default_factory=list)

    def context(self, name: str, **timings: float | timedelta) -> Context:
        """What the daemon of that name stands on, or would stand on with these timings."""
        found = self.assembly.contexts[name]
        if not timings:
            return found
        changed = Timings(**{**asdict(found.settings.timings), **timings})
        return replace(found, settings=replace(found.settings, timings=changed))

    async def notify(self, butler: str = "greeter", /, **arguments: object) -> Answer:
        """Call the butler's tool as its client does."""
        call = {"channel": "telegram", **arguments}
        return await self.assembly.local[butler].call(self.tokens[butler], "notify", call)

    async def hop(self, caller: str, target: str, tool: str, arguments: Answer) -> Answer:
        """Call a daemon's tool as another daemon does."""
        return await self.context(caller).daemons.call(target, tool, arguments, 14)

    async def contact(self, name: str, *, telegram: str | None = None, email: str | None = None) -> str:
        """A contact's id, of any name a row can hold; with no identifier named it has a Telegram chat of its own."""
        contact_id = await contacts.add_contact(self.sql, "Somebody", [])
        await self.sql.execute("UPDATE shared.contacts SET name = $2 WHERE id = $1::text::uuid", contact_id, name)
        if telegram is None and email is None:
            telegram = str(6000000000000000 + next(_numbers))
        for kind, value in (("telegram", telegram), ("email", email)):
            if value:
                await contacts.add_address(self.sql, contact_id, kind, value)
        return contact_id

    async def rule(self, constraints: Mapping[str, object], **columns: object) -> str:
        """A standing rule's id."""
        given = {"arg_constraints": constraints, **columns}
        places = ", ".join(f"${n}" for n in range(1, len(given) + 1))
        text = f"INSERT INTO shared.approval_rules ({', '.join(given)}) VALUES ({places}) RETURNING id::text"
        return str(await self.sql.fetchval(text, *given.values()))

    async def row(self, text: str, *values: object) -> Record:
        """The one row of a statement; there must be one."""
        found = await self.sql.fetchrow(text, *values)
        assert found is not None, text
        return found

    async def delivery(self, notification_id: object) -> Record:
        """The delivery of a notification."""
        return await self.row("SELECT * FROM messenger.deliveries WHERE notification_id = $1", str(notification_id))

    async def status(self, notification_id: object) -> str:
        """How a notification stands, in the words of its answer."""
        row = await self.row("SELECT status FROM shared.notifications WHERE id = $1", str(notification_id))
        return str(row["status"])

    def sent(self, words: str, method: str = "sendMessage") -> list[Mapping[str, object]]:
        """What the sandbox accepted with these words, cards left out."""
        return [line for line in self.box.sandbox.lines if _carries(line, words, method)]

    def sent_to_others(self, words: str) -> list[Mapping[str, object]]:
        """The same to anybody but the owner, who may also be told that it was not delivered."""
        return [line for line in self.sent(words) if line["to"] != str(OWNER)]

    def cards(self, words: str) -> list[Mapping[str, object]]:
        """The messages with buttons whose text holds these words."""
        return [
            line
            for line in self.box.sandbox.lines
            if words in str(_payload(line).get("text")) and "reply_markup" in _payload(line)
        ]

    async def fault(self, words: str, fault: str, stage: str = "sendMessage", **more: object) -> None:
        """Arm a fault for what carries these words."""
        channel = "telegram" if stage in {"sendMessage", "setMessageReaction"} else "email"
        await self.box.api("faults", channel=channel, stage=stage, fault=fault, match=words, **more)

    async def decide(
        self, action_id: object, *, approve: bool = True, reason: str | None = None
    ) -> owner_decision.Outcome:
        """The owner's word, as the Messenger takes it from a press."""
        async with self.context("messenger").db.work() as connection:
            owner = await contacts.owner(connection)
            assert owner is not None
            word = owner_decision.OwnerDecision(
                str(action_id), approve, owner["id"], "test", timedelta(hours=72), reason
            )
            return await owner_decision.apply(connection, word)

    async def press(self, card: Mapping[str, object], verb: str = "ok", *, who: int = OWNER) -> Record:
        """Press a button of a card; the update's row once it is handled."""
        return await self.handled(await self.tap(card, verb, who=who))

    async def tap(self, card: Mapping[str, object], verb: str, *, who: int = OWNER) -> object:
        """The same; the update's number at once."""
        data = next(data for data in button_data(card) if data.split(":")[2] == verb)
        told = await self.box.api(
            "press", as_=who, chat=int(str(card["to"])), message_id=int(str(card["provider_id"])), data=data
        )
        return told["update_id"]

    async def handled(self, update_id: object) -> Record:
        """The row of an update, once somebody handled it."""
        text = "SELECT * FROM messenger.updates WHERE update_id = $1 AND handled_at IS NOT NULL"
        return await eventually(partial(self.sql.fetchrow, text, update_id))

    async def settled(self, notification_id: object, *statuses: str) -> str:
        """The notification's status, once it is one of these."""

        async def look() -> str | None:
            found = await self.status(notification_id)
            return found if found in statuses else None

        return await eventually(look)

    def worker(self, **channels: Channel) -> Worker:
        """A Messenger's worker that does nothing by itself; channels not given go to the sandbox."""
        smtp = f"smtp://127.0.0.1:{self.box.smtp_port}"
        ways: dict[str, Channel] = dict(channels)
        ways.setdefault("telegram", TelegramChannel(self.box.url, SANDBOX_TOKEN))
        ways.setdefault("email", EmailChannel.from_url(smtp))
        made = Worker(replace(self.context("messenger"), instance=f"worker-{next(_numbers)}"), ways, jitter=0.0)
        self.workers.append(made)
        return made

    async def plan_of(self, text: str) -> str:
        """The plan for all parameters, with which any table would be read that has no index for it."""
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
            await connection.execute(f"PREPARE planned AS {text}")
            count = await connection.fetchval(
                "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'planned'"
            )
            nulls = f"({', '.join(['NULL'] * count)})" if count else ""
            return "\n".join(line[0] for line in await connection.fetch(f"EXPLAIN EXECUTE planned{nulls}"))
        finally:
            await connection.close()

    async def close(self) -> None:
        """Close what its workers hold."""
        for worker in self.workers:
            for channel in worker.channels.values():
                await channel.close()


@asynccontextmanager
async def standing_work(database: Database) -> AsyncIterator[Connection]:
    """A unit of work that may stand still while others work, however long they take."""
    async with database.work() as connection:
        await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield connection


def _payload(line: Mapping[str, object]) -> Mapping[str, object]:
    payload = line["payload"]
    assert isinstance(payload, Mapping)
    return payload


def _carries(line: Mapping[str, object], words: str, method: str) -> bool:
    payload = _payload(line)
    if line["channel"] == "email":
        return method in {"sendMessage", "mail"} and words in str(payload)
    return payload["method"] == method and words in str(payload) and "reply_markup" not in payload


def button_data(card: Mapping[str, object]) -> list[str]:
    """What each button of a card sends back."""
    markup = _payload(card)["reply_markup"]
    assert isinstance(markup, Mapping)
    return [button["callback_data"] for row in markup["inline_keyboard"] for button in row]


@asynccontextmanager
async def opened(
    cluster: Cluster, *, loops: bool = True, timings: Timings = STANDARD, **variables: str
) -> AsyncIterator[House]:
    """A fresh house; with `loops` its Messenger and Switchboard work by themselves.

    In a variable {sandbox} stands for the URL of its sandbox. Other `timings` are for tests of what happens at the end
    of an interval, and not of how long it is.
    """
    name = f"house{next(_numbers)}"
    folder = cluster.folder / name
    shutil.copytree(cluster.home, folder)
    async with AsyncExitStack() as held:
        dsn = await cluster.clone(name)
        box = await held.enter_async_context(running(folder))
        settings = replace(_settings(folder, box, variables), timings=timings)
        entries = fleet.load(cluster.fleet)
        await migrate.migrate(settings, dsn, entries)
        plan = Plan(settings, dsn, entries, NAMES, together=True)
        db = await held.enter_async_context(database(plan, asyncio.Event()))
        assembly = Assembly(plan, db)
        await assembly.directory.read_keys()
        await assembly.write_channels()
        daemons = {one: assembly.daemon(one, f"http://127.0.0.1:{n}") for n, one in enumerate(NAMES, 1)}
        sql = await asyncpg.connect(dsn)
        held.push_async_callback(sql.close)
        await prepare_connection(sql)
        await _accept_text_ids(sql)
        tokens = {butler: await _token(settings, sql, butler) for butler in NAMES}
        house = House(settings, dsn, assembly, daemons, box, sql, tokens)
        held.push_async_callback(_close, house)
        if loops:
            await held.enter_async_context(_working(house))
        yield house


async def _token(settings: Settings, sql: Connection, butler: str) -> str:
    signer = Signer(keystore.OWNER, keystore.read(settings.home, keystore.OWNER).private_pem, time.time)
    minted = mint_client_token(signer, butler, timedelta(days=1))
    await keep_token(sql, minted.jti, butler, timedelta(days=1))
    return minted.token


async def _accept_text_ids(sql: Connection) -> None:
    await sql.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")


def _settings(folder: Path, box: Running, variables: Mapping[str, str]) -> Settings:
    environ = {
        "BUTLERS_HOME": str(folder),
        "BUTLERS_SANDBOX_URL": box.url,
        "BUTLERS_SANDBOX_SMTP_URL": f"smtp://127.0.0.1:{box.smtp_port}",
        "BUTLERS_SANDBOX_IMAP_URL": f"imap://127.0.0.1:{box.imap_port}",
        "BUTLERS_SWEEP_SECONDS": "0.1",
        # A house is shared by many tests, each of which may ask.
        "BUTLERS_CARD_BURST": "1000",
    }
    return Settings.from_env(
        {**environ, **{name: text.replace("{sandbox}", box.url) for name, text in variables.items()}}
    )


@asynccontextmanager
async def _working(house: House) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    loops = [loop for daemon in house.daemons.values() for loop in daemon.loops]
    tasks = [asyncio.ensure_future(loop(stopping)) for loop in loops]
    hearing = listen(partial(listening_dsn, house.assembly.plan), house.assembly.heard(), stopping)
    tasks.append(asyncio.ensure_future(hearing))
    try:
        yield
    finally:
        stopping.set()
        house.box.sandbox.stop()  # what hangs there shall not be waited for
        async with asyncio.timeout(LONGEST):
            await asyncio.gather(*tasks)


async def _close(house: House) -> None:
    await house.close()
    for daemon in house.daemons.values():
        if daemon.parts.close is not None:
            await daemon.parts.close()
        assert daemon.context is not None
        await daemon.context.daemons.close()
