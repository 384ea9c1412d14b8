"""SIGKILL for the one Messenger in a chosen moment, what that moment was by the rows, and the verdict of it all.

Everything else lives on: PostgreSQL, the sandbox, Switchboard and butlers with a process each.
"""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shared.rpc import Answer, request_of, tool_object
from tests.chaos.ledger import FIGURES, OBSERVER, all_ready, drain, journal_of, rows_of, start_one
from tests.chaos.verdict import Acknowledged, Verdict, verdict
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet

ROUNDS, ALL_ROUNDS = 10, 30
CALLER: Final = "greeter"
# What is committed but not yet told, or told but not yet done, happens well within this.
PATIENCE: Final = 15.0
# What was in hand when its holder died, and who may poll, is free again when the lease has run out; only time is
# made shorter by this, and the rows are what they would be seconds later.
POLL_LEASE_IS_OVER: Final = "UPDATE messenger.pollers SET lease_until = clock_timestamp()"
LEASES_ARE_OVER: Final = """
UPDATE messenger.deliveries SET lease_until = clock_timestamp() WHERE status IN ('claimed', 'sending')
"""
STATE: Final = "SELECT status FROM messenger.deliveries WHERE notification_id = $1"
NONE: Final = "none"


@dataclass(slots=True)
class Gaps:
    """One fleet, whose Messenger dies again and again; `landed` counts the states it left behind."""

    fleet: Fleet
    token: str
    rounds: int
    landed: Counter[str] = field(default_factory=Counter)
    answers: list[Acknowledged] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    async def hear(self, topic: str) -> asyncio.Event:
        """An event that is set by every NOTIFY on this topic, as soon as any daemon can know it."""
        event = asyncio.Event()
        await self.fleet.db.add_listener(topic, lambda *_: event.set())
        return event

    async def tell(self, text: str, **arguments: object) -> Answer:
        """One message by Telegram; its answer is kept for the verdict."""
        call = {"channel": "telegram", "message": text, "request_context": {"request_id": text}, **arguments}
        headers, body = request_of(self.token, "notify", call, 1)
        async with self.fleet.http.post(f"{self.fleet.url(CALLER)}/mcp", json=body, headers=headers) as told:
            assert told.status == 200, told.status
            answer = tool_object(await told.read(), CALLER, "notify")
        notification = str(answer["notification_id"])
        self.answers.append(Acknowledged(text, str(answer["status"]), notification, receipt_of(answer)))
        return answer

    async def kill(self) -> None:
        """SIGKILL; the Messenger is gone on return, and its poll lease with it."""
        victim = self.fleet.running["messenger"].pop()
        assert victim.alive, f"the Messenger ended by itself with {victim.code}\n{self.fleet.logs()}"
        victim.send(signal.SIGKILL)
        await victim.wait()
        await self.fleet.sql(POLL_LEASE_IS_OVER)

    async def again(self) -> None:
        """Start it, and wait until it is ready."""
        start_one(self.fleet, "messenger")
        await all_ready(self.fleet)

    async def landed_on(self, query: str, which: object) -> str:
        """The state the dead Messenger left a delivery in, `none` if it has none; counted."""
        state = str(await self.fleet.value(query, which) or NONE)
        self.landed[state] += 1
        return state

    async def judged(self, name: str, **more: object) -> Verdict:
        """Wait until nothing is open, judge, write the figures down, and assert that no promise is broken."""
        killed = time.monotonic()
        left_open = await drain(self.fleet.db)
        found = verdict(await journal_of(self.fleet), self.answers, await rows_of(self.fleet.db))
        figures = {
            "kills": self.rounds,
            "seconds_of_kills": round(killed - self.started, 1),
            "seconds_of_drain": round(time.monotonic() - killed, 1),
            "left_behind": dict(sorted(self.landed.items())),
            **more,
            **found.figures,
        }
        write_figures(name, figures)
        told = json.dumps(figures, indent=1)
        print(told)
        assert not found.broken, "\n".join([*found.broken, told])
        assert left_open == 0, told
        return found


async def begin(bench: Bench, rounds: int) -> Gaps:
    """A fleet of its own with a process per daemon, in which every question gets a card at once."""
    house = await bench.house(BUTLERS_SWEEP_SECONDS="0.2", BUTLERS_CARD_BURST="1000")
    fleet = await Fleet.start(house, "each")
    await fleet.db.execute(OBSERVER)
    return Gaps(fleet, await fleet.token(CALLER), rounds)


async def soon(event: asyncio.Event) -> None:
    """Wait for it, but not for ever."""
    async with asyncio.timeout(PATIENCE):
        await event.wait()


def receipt_of(answer: Answer) -> str | None:
    """The receipt inside an answer, if there is one."""
    delivery = answer.get("delivery")
    return str(delivery["delivery_id"]) if isinstance(delivery, dict) else None


def write_figures(name: str, figures: Mapping[str, object]) -> None:
    """Put these beside the figures of the other gaps, for build/verdict.json."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    path = FIGURES / "gaps.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**kept, name: figures}, indent=1) + "\n")
