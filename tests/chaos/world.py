"""The callers of a campaign, and what they do beside the plain load.

A caller here is a model that has not read the manual: whatever looks like an error to it, it says again in other
words. It takes things back, tells people without an identifier, and brings envelopes to the Switchboard itself.
"""

import asyncio
import itertools
import time
from collections.abc import Mapping
from random import Random
from typing import Final

from shared.auth import keystore
from shared.auth.tokens import Signer
from shared.rpc import Answer
from tests.chaos.crew import Crew
from tests.chaos.load import CALLED, Load, People, name_of

# More than callers add to: what only happens here gets its turn also where the owner is slow.
MOST_WAITING: Final = 40
TAKES_BACK: Final = 0.25


class Talker(Load):
    """The plain load, and a model that does not know what `error` means; its other words are its own."""

    def __init__(self, crew: Crew, who: People, tokens: Mapping[str, str], rng: Random) -> None:
        super().__init__(crew.fleet, who, tokens, rng)
        self._schedule = crew.schedule
        self._dice = Random(rng.getrandbits(64))
        self.reworded = 0
        self.taken_back = 0
        self.signers = {
            name: Signer(name, keystore.read(crew.fleet.house.home, name).private_pem, time.time) for name in CALLED
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
