"""The world of a campaign: what its callers and its owner do beside the plain load.

A caller here is a model that has not read the manual: whatever looks like an error to it, it says again in other
words. It takes things back, tells people without an identifier, and brings envelopes to the Switchboard itself.
The owner changes standing rules, pulls the brake, adds identifiers, and writes to the bot.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

from shared import home, identity
from shared.auth import Signer
from shared.mcp import Answer
from tests.chaos.crew import Crew
from tests.chaos.load import CALLED, Load, People, name_of
from tests.rig.bench import OWNER
from tests.rig.fleet import Rows

SET_RULE: Final = "UPDATE shared.approval_rules SET active = $2 WHERE arg_constraints ->> 'contact_id' = $1"
BRAKE: Final = "INSERT INTO shared.brakes (contact_id, channel) VALUES ($1, $2)"
RELEASE: Final = "UPDATE shared.brakes SET lifted_at = clock_timestamp() WHERE lifted_at IS NULL"
ALL_RULES: Final = "UPDATE shared.approval_rules SET active = true WHERE NOT active"
WAITING: Final = """
SELECT (SELECT count(*) FROM messenger.deliveries WHERE status = 'queued' AND class = 'owner') AS own,
    (SELECT count(*) FROM shared.pending_actions WHERE status = 'pending')
    + (SELECT count(*) FROM messenger.deliveries WHERE status = 'queued' AND class = 'card') AS yes
"""
# More than callers add to: what only happens here gets its turn also where the owner is slow.
MOST_WAITING: Final = 40
TAKES_BACK: Final = 0.25
FIRST_STRANGER: Final = 7_300_000_000


class Talker(Load):
    """The plain load, and a model that does not know what `error` means; its other words are its own."""

    def __init__(self, crew: Crew, who: People, tokens: Mapping[str, str], rng: Random) -> None:
        super().__init__(crew.fleet, who, tokens, rng)
        self._schedule = crew.schedule
        self._dice = Random(rng.getrandbits(64))
        self.reworded = 0
        self.taken_back = 0
        self.signers = {
            name: Signer(name, home.read(crew.fleet.house.home, name).private_pem, time.time) for name in CALLED
        }

    async def _react(self, name: str, arguments: Mapping[str, object], answer: Answer) -> None:
        text = name_of(str(arguments["message"]))
        if answer["status"] == "error" and "again" not in text:
            self.reworded += 1
            await self._tell(name, {**arguments, "message": f"{text} again, in other words"}, repeat=False)
        elif answer["status"] in {"pending_approval", "queued"} and self._dice.random() < TAKES_BACK:
            self.taken_back += 1
            said = await self.call(name, "withdraw", {"notification_id": answer["notification_id"]})
            if said is not None and "notification_id" in said:
                self._note(text, said)

    async def tell_stranger(self, contact: str, number: int) -> None:
        """Tell somebody by e-mail of whom only the Telegram chat is known."""
        context = {"request_id": f"stranger {number}"}
        asked = {"channel": "email", "message": f"missing <{number}>", "contact_id": contact}
        await self._tell("health", {**asked, "request_context": context}, repeat=False)

    async def carries(self) -> None:
        """Until stopping: envelopes that no butler has admitted, straight to the Switchboard, each at least twice."""
        for number in itertools.count(1):
            if self.stopping.is_set():
                return
            if self.waiting["yes"] >= MOST_WAITING and not self._schedule.mopping:
                await asyncio.sleep(0.5)
                continue
            said = {"channel": "telegram", "message": f"carried <{number}>", "recipient": "7400000001"}
            self.heard.carried += 1
            for _ in range(2):
                answer = await self._carry("greeter", said, f"carried {number}")
                if answer is not None:
                    self._note(said["message"], answer)
            await asyncio.sleep(self._dice.uniform(0.5, 2.5))

    async def _carry(self, name: str, said: Mapping[str, object], request_id: str) -> Answer | None:
        urls = self._fleet.urls("switchboard")
        if not urls:
            return None
        envelope = {
            "schema_version": "notify.v1",
            "origin_butler": name,
            "delivery": {"intent": "send", **said},
            "request_context": {"request_id": request_id},
        }
        asked = (self.signers[name].token_for("switchboard"), _route(name, envelope))
        answer = await self._post(f"{urls[0]}/mcp", "switchboard", "route", asked)
        if answer is None:
            return None
        # What a lost hop explains is worth asking again, and said to be.
        error, result = answer.get("error"), answer.get("result")
        if isinstance(error, dict) and not error.get("retryable"):
            self.heard.strange.append(f"switchboard answered route with {error.get('class')}: {error.get('message')}")
        inside = result.get("notify_response") if isinstance(result, dict) else None
        return inside if isinstance(inside, dict) else None


def _route(name: str, envelope: Mapping[str, object]) -> dict[str, object]:
    context = {
        "request_id": "carried",
        "source_channel": "mcp",
        "source_endpoint_identity": "switchboard",
        "source_sender_identity": name,
    }
    return {
        "schema_version": "route.v1",
        "request_context": context,
        "target": {"butler": "messenger", "tool": "route.execute"},
        "input": {"context": {"notify_request": envelope}},
    }


class Person:
    """The owner of a campaign; what has no end is cancelled."""

    def __init__(self, crew: Crew, talker: Talker, who: People, rng: Random) -> None:
        self._crew, self._talker, self._who, self._rng = crew, talker, who, rng
        self._numbers = itertools.count(1)

    async def changes_rules(self) -> None:
        """A standing rule goes, and comes again."""
        while True:
            contact = self._rng.choice(self._who.ruled)
            for active in (False, True):
                await self._sql(SET_RULE, contact, active)
                await asyncio.sleep(self._rng.uniform(0.1, 0.5))

    async def brakes(self) -> None:
        """The brake is on for one contact, or for all mail to others, and lifted."""
        while True:
            one = (UUID(self._rng.choice(self._who.ruled)), None)
            await self._sql(BRAKE, *self._rng.choice((one, (None, "email"))))
            await asyncio.sleep(self._rng.uniform(0.1, 0.5))
            await self._sql(RELEASE)
            await asyncio.sleep(self._rng.uniform(1, 3))

    async def adds_identifiers(self, stopping: asyncio.Event) -> None:
        """Until stopping: somebody is to be told by a channel nobody knows an identifier of; then it is added."""
        while not stopping.is_set():
            if self._talker.waiting["yes"] >= MOST_WAITING and not self._crew.schedule.mopping:
                await asyncio.sleep(0.5)
                continue
            number = next(self._numbers)
            contact = await self._crew.ask(partial(_stranger, number=number))
            telling = asyncio.create_task(self._talker.tell_stranger(contact, number))
            await asyncio.sleep(self._rng.uniform(0.3, 1))
            address = f"stranger{number}@people.test"
            await self._crew.ask(partial(_known_as, contact=contact, address=address))
            await telling
            await asyncio.sleep(self._rng.uniform(1, 4))

    async def counts_what_waits(self) -> None:
        """See how much waits for the owner."""
        while True:
            found = await self._crew.ask(lambda rows: rows.fetchrow(WAITING))
            self._talker.waiting = Counter(dict(found or {}))
            await asyncio.sleep(0.5)

    async def writes(self) -> None:
        """The owner says something to the bot."""
        while True:
            await self._crew.fleet.outside.say(OWNER, f"said {next(self._numbers)}")
            await asyncio.sleep(self._rng.uniform(0.2, 0.8))

    async def comes_to_rest(self) -> None:
        """Every rule holds again, and no brake is on."""
        await self._sql(ALL_RULES)
        await self._sql(RELEASE)

    async def _sql(self, query: str, *arguments: object) -> None:
        await self._crew.ask(lambda rows: rows.execute(query, *arguments))


async def _stranger(rows: Rows, *, number: int) -> str:
    async with rows.transaction():
        made = await identity.add_contact(rows, f"Stranger {number}", [])
        await identity.set_identifier(rows, made, "telegram", str(FIRST_STRANGER + number), primary=True)
    return made


async def _known_as(rows: Rows, *, contact: str, address: str) -> None:
    await identity.set_identifier(rows, contact, "email", address, primary=True)
