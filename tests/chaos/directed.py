"""Small worlds for one evil each: a fleet of few daemons, one moment chosen by a failpoint or a fault, one verdict.

A scenario brings the product to the moment in which one kind of bug must show. On a sound product its verdict is
empty; what it says otherwise is what the rig has caught.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import asyncpg

from shared.db.pool import prepare_connection
from shared.rpc import Answer, request_of, tool_object
from tests.chaos.crew import begin, stands
from tests.chaos.gaps import receipt_of
from tests.chaos.ledger import OBSERVER, drain, journal_of, rows_of, start_one
from tests.chaos.load import ADD_RULE
from tests.chaos.verdict import Acknowledged, verdict
from tests.rig.bench import Bench
from tests.rig.failpoints import Armed
from tests.rig.fleet import Fleet, Rows
from tests.rig.forks import Forks, Process
from tests.rig.outside import SENDS, Entry
from tests.verify.test_clocks import LIBRARY, at, shifted

FIRST_CHAT: Final = 7_200_000_000
PATIENCE: Final = 25.0
DRAIN_SECONDS: Final = 25.0
# Longer than a lease of seven seconds.
PAST_THE_LEASE: Final = 7.6
LEASES_ARE_OVER: Final = """
UPDATE messenger.deliveries SET lease_until = clock_timestamp() WHERE status IN ('claimed', 'sending')
    AND claimed_by = (SELECT claimed_by FROM messenger.deliveries WHERE status IN ('claimed', 'sending') LIMIT 1)
"""


@dataclass(slots=True)
class Stage:
    """One fleet, what its callers heard, and what a scenario found wrong by itself."""

    fleet: Fleet
    answers: list[Acknowledged] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    # Some scenarios say the same words twice, or leave a question open, and judge that by themselves.
    same_words: bool = False
    shifted: Forks | None = None
    left_open: bool = False

    async def person(self, number: int = 1, *, ruled: bool = True) -> str:
        """A contact on either channel, by default under a standing rule."""
        address = f"person{number}@people.test"
        made = await self.fleet.contact(f"Person {number}", telegram=FIRST_CHAT + number, email=address)
        if ruled:
            await self.fleet.sql(ADD_RULE, {"contact_id": made})
        return made

    async def call(self, name: str, tool: str, arguments: Mapping[str, object]) -> Answer:
        """The answer of a tool; the caller is patient and never asks twice."""
        if name not in self.tokens:
            self.tokens[name] = await self.fleet.token(name)
        headers, body = request_of(self.tokens[name], tool, arguments, 1)
        async with self.fleet.http.post(f"{self.fleet.url(name)}/mcp", json=body, headers=headers) as answer:
            return tool_object(await answer.read(), name, tool)

    async def tell(self, text: str, *, by: str = "health", **arguments: object) -> Answer:
        """One message; what was answered is kept for the verdict. By Telegram if nothing else is said."""
        call = {"channel": "telegram", "message": text, "request_context": {"request_id": text}, **arguments}
        answer = await self.call(by, "notify", call)
        error = answer.get("error")
        failure = error if isinstance(error, dict) else {}
        self.answers.append(
            Acknowledged(
                text,
                str(answer["status"]),
                str(answer["notification_id"]) if "notification_id" in answer else None,
                receipt_of(answer),
                failure.get("class"),
                bool(failure.get("retryable")),
            )
        )
        return answer

    def telling(self, text: str, **arguments: object) -> "asyncio.Task[Answer]":
        """The same, beside what else happens."""
        return asyncio.create_task(self.tell(text, **arguments))  # type: ignore[arg-type]  # `by` is a word

    async def messenger(self, armed: Armed | None = None, *, clock: str | None = None) -> Process:
        """One more Messenger, ready; `clock` shifts what it reads as the time of day (libfaketime's words)."""
        if clock is None:
            process = begin(self.fleet, "messenger", [] if armed is None else [armed])
        else:
            assert LIBRARY is not None, "libfaketime is not here; install Debian's package libfaketime"
            self.shifted = Forks(LD_PRELOAD=str(LIBRARY), **shifted(clock))
            house = at(self.fleet.house, {clock: self.shifted}, clock)
            process = house.spawn(["run", "messenger"], "shifted")
            self.fleet.running["messenger"].append(process)
            self.fleet.started.append(process)
        await self.fleet.until_ready(process)
        return process

    async def butler(self, name: str) -> None:
        """One more butler, ready."""
        await self.fleet.until_ready(begin(self.fleet, name))

    async def settled(self) -> None:
        """Wait until nothing is open."""
        await drain(self.fleet.db, DRAIN_SECONDS)

    async def gone(self, process: Process) -> None:
        """Wait until it has ended itself at its failpoint; its leases run out at once."""
        async with asyncio.timeout(PATIENCE):
            while process.alive:
                await asyncio.sleep(0.01)
        self.fleet.running["messenger"].remove(process)
        await self.fleet.sql(LEASES_ARE_OVER)

    async def stopped(self, process: Process) -> None:
        """Wait until it stands still at its failpoint."""
        async with asyncio.timeout(PATIENCE):
            while not stands(process.pid):
                await asyncio.sleep(0.01)

    def goes_on(self, process: Process) -> None:
        """Let it go on."""
        process.send(signal.SIGCONT)

    async def until(self, query: str, *arguments: object) -> None:
        """Wait until a query answers something true."""
        async with asyncio.timeout(PATIENCE):
            while not await self.fleet.value(query, *arguments):
                await asyncio.sleep(0.02)

    async def sent(self, text: str) -> list[Entry]:
        """What arrived with exactly these words."""
        return [entry for entry in await self.fleet.outside.journal() if entry.method in SENDS and entry.text == text]

    async def reactions(self) -> list[Entry]:
        """The reactions that were set."""
        return [entry for entry in await self.fleet.outside.journal() if entry.method == "setMessageReaction"]

    def demand(self, holds: object, otherwise: str) -> None:
        """Something that only this scenario can judge."""
        if not holds:
            self.wrong.append(otherwise)


Scenario = Callable[[Stage], Awaitable[None]]


async def play(
    bench: Bench, scenario: Scenario, env: Mapping[str, str], code: Path | None = None, sql: str = ""
) -> list[str]:
    """What is found wrong with the product, or with its copy in `code`, by this scenario; nothing if it is sound.

    `sql` plants in the database what a migration would.
    """
    house = await bench.house(code=code, BUTLERS_SWEEP_SECONDS="0.2", BUTLERS_CARD_BURST="1000", **env)
    fleet = Fleet(house, "each", aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)), await _rows(house.dsn))
    stage = Stage(fleet)
    fleet.running = {"console": [], "messenger": [], "greeter": []}
    try:
        await fleet.begin()
        await fleet.db.execute(OBSERVER + sql)
        await scenario(stage)
        return await judged(stage)
    finally:
        await fleet.abandon()
        if stage.shifted is not None:
            stage.shifted.close()


async def _rows(dsn: str) -> Rows:
    rows: Rows = await asyncpg.connect(dsn)
    await prepare_connection(rows)
    return rows


async def judged(stage: Stage) -> list[str]:
    """Drain, then the verdict and what the scenario found."""
    fleet = stage.fleet
    if not fleet.running["messenger"]:
        start_one(fleet, "messenger")
    if stage.left_open:
        return stage.wrong
    left = await drain(fleet.db, DRAIN_SECONDS)
    open_ = [f"{left} left open"] if left else []
    if stage.same_words:
        return [*stage.wrong, *open_]
    found = verdict(await journal_of(fleet), stage.answers, await rows_of(fleet.db))
    return [*stage.wrong, *found.broken, *open_]
