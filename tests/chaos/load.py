"""The load while daemons die: callers that repeat themselves, and providers that fail."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

import aiohttp

from shared.errors import HopFailed
from shared.rpc import Answer, request_of, tool_object
from tests.chaos.verdict import Acknowledged
from tests.rig.fleet import Fleet

Kind = Literal["own", "rule", "yes"]
# The owner has one chat, in which one message after the other goes out; third parties are many.
KINDS: Final[Sequence[Kind]] = ("own",) * 2 + ("rule",) * 6 + ("yes",) * 2
CONTACTS: Final = 30
CALLED: Final = ("health", "greeter")
ADD_RULE: Final = "INSERT INTO shared.approval_rules (tool_name, arg_constraints) VALUES ('notify', $1)"
# The owner has one chat, in which one thing comes after the other: nothing is added where so much waits for it.
MOST_WAITING: Final[Mapping[Kind, int]] = {"own": 60, "yes": 15}
# How much of what a rule lets out by Telegram is too long for one message, and what makes it so.
LONG: Final = 0.1
FILLING: Final = "and so on " * 407
REST: Final = "the rest of "
# What nobody has met by then is over: faults that pile up while little goes out would meet one message again and
# again, until the bot has to be silent for minutes.
FAULTS_AT_ONCE: Final = 6
# The last calls get their answers within the butler's 14 s, or from the rows of whoever comes back.
PATIENCE: Final = 30.0
GAVE_UP: Final = "gave up"
STALE: Final = "refused this daemon"
TURNED_AWAY: Final = 503  # a token that cannot be looked up: no database, or no connection in time
# (weight, fault): slow ones hold a delivery where a kill can hit it, mostly one that does not hold up the owner's
# chat, and few of the owner's there are; refusals for good must not hit a card.
WEATHER: Final[Sequence[tuple[int, Mapping[str, object]]]] = (
    (6, {"channel": "telegram", "stage": "sendMessage", "fault": "slow", "value": 0.8, "match": "rule <"}),
    (6, {"channel": "email", "stage": "dot", "fault": "slow", "value": 0.8, "match": "rule <"}),
    (3, {"channel": "telegram", "stage": "sendMessage", "fault": "slow", "value": 0.5, "match": "own <"}),
    (3, {"channel": "email", "stage": "dot", "fault": "slow", "value": 0.5, "match": "own <"}),
    (3, {"channel": "telegram", "stage": "sendMessage", "fault": "slow", "value": 0.3}),
    (3, {"channel": "email", "stage": "dot", "fault": "slow", "value": 0.3}),
    (3, {"channel": "email", "stage": "data", "fault": "slow", "value": 0.3}),
    (1, {"channel": "telegram", "stage": "sendMessage", "fault": "429", "value": 1}),
    (1, {"channel": "telegram", "stage": "sendMessage", "fault": "500"}),
    (1, {"channel": "telegram", "stage": "sendMessage", "fault": "accept_reset"}),
    (1, {"channel": "telegram", "stage": "sendMessage", "fault": "drop_before_body"}),
    (1, {"channel": "telegram", "stage": "sendMessage", "fault": "403", "match": "rule <"}),
    (1, {"channel": "telegram", "stage": "sendMessage", "fault": "500_accepted", "match": "rule <"}),
    (1, {"channel": "telegram", "stage": "sendMessage", "fault": "garbage", "match": "rule <"}),
    (1, {"channel": "email", "stage": "rcpt", "fault": "4xx"}),
    (1, {"channel": "email", "stage": "data", "fault": "drop"}),
    (1, {"channel": "email", "stage": "dot", "fault": "accept_reset"}),
    (1, {"channel": "email", "stage": "dot", "fault": "5xx", "match": "rule <"}),
)


@dataclass(frozen=True, slots=True)
class People:
    """Third parties: those whom a standing rule lets hear from the butlers, and those whom it does not."""

    ruled: Sequence[str]
    asked: Sequence[str]


@dataclass(slots=True)
class Heard:
    """What the callers got: answers, how often none came and why.

    `told` and `repeated` are the calls of `notify` that were begun, `calls` those of them that were answered;
    what is `carried` to the Switchboard is none of them, though its answers are among `answers`.
    """

    answers: list[Acknowledged] = field(default_factory=list)
    unanswered: Counter[str] = field(default_factory=Counter)
    strange: list[str] = field(default_factory=list)
    told: int = 0
    repeated: int = 0
    calls: int = 0
    carried: int = 0


async def people(fleet: Fleet) -> People:
    """Contacts with an identifier on either channel, half of them under a standing rule."""
    made = [
        await fleet.contact(f"Person {n}", telegram=7_100_000_000 + n, email=f"person{n}@people.test")
        for n in range(2 * CONTACTS)
    ]
    for contact in made[:CONTACTS]:
        await fleet.sql(ADD_RULE, {"contact_id": contact})
    return People(made[:CONTACTS], made[CONTACTS:])


class Load:
    """Callers on one fleet until `stopping`; what they heard is in `heard`."""

    def __init__(self, fleet: Fleet, who: People, tokens: Mapping[str, str], rng: Random) -> None:
        self.heard = Heard()
        self.stopping = asyncio.Event()
        self._fleet, self._who, self._tokens, self._rng = fleet, who, tokens, rng
        self._numbers = itertools.count(1)
        self.excused: frozenset[int] = frozenset()
        # How much waits to be told to the owner, and for the owner's word.
        self.waiting: Counter[str] = Counter()

    async def call_for_ever(self) -> None:
        """One caller: one message after the other, some of them told again, until stopping."""
        while not self.stopping.is_set():
            name, arguments = self._message()
            rng = Random(self._rng.getrandbits(64))
            again = rng.random()
            first = [self._tell(name, arguments, repeat=False)]
            if again < 0.2:
                first += [self._tell(name, arguments, repeat=True) for _ in range(2)]
            await asyncio.gather(*first)
            if again > 0.6:
                await self._tell(name, arguments, repeat=True)
            await asyncio.sleep(rng.uniform(0.02, 0.3))

    def _message(self) -> tuple[str, dict[str, object]]:
        rng, number = self._rng, next(self._numbers)
        kind = rng.choice(KINDS)
        if kind != "rule" and self.waiting[kind] >= MOST_WAITING[kind]:
            kind = "rule"
        text, channel = f"{kind} <{number}>", rng.choice(("telegram", "email"))
        if kind == "rule" and channel == "telegram" and rng.random() < LONG:
            text = f"{text}\n{FILLING}\n{REST}{text}"
        arguments: dict[str, object] = {
            "channel": channel,
            "message": text,
            "request_context": {"request_id": f"request {number}"},
        }
        if kind != "own":
            arguments["contact_id"] = rng.choice(self._who.ruled if kind == "rule" else self._who.asked)
        return rng.choice(CALLED), arguments

    async def _tell(self, name: str, arguments: Mapping[str, object], *, repeat: bool) -> None:
        """Ask until there is an answer: a caller whose connection broke says the very same again."""
        self.heard.told += not repeat
        self.heard.repeated += repeat
        try:
            async with asyncio.timeout(PATIENCE):
                while (answer := await self.call(name, "notify", arguments)) is None:
                    await asyncio.sleep(0.3)
        except TimeoutError:
            self.heard.unanswered[GAVE_UP] += 1
            return
        self.heard.calls += 1
        self._note(str(arguments["message"]), answer)
        await self._react(name, arguments, answer)

    async def _react(self, name: str, arguments: Mapping[str, object], answer: Answer) -> None:
        """What a caller does about an answer: nothing."""

    async def call(self, name: str, tool: str, arguments: Mapping[str, object]) -> Answer | None:
        """The answer of any tool, None where none came."""
        urls = self._fleet.urls(name)
        if not urls:
            self.heard.unanswered["starting"] += 1
            return None
        return await self._post(f"{self._rng.choice(urls)}/mcp", name, tool, (self._tokens[name], arguments))

    async def _post(self, url: str, name: str, tool: str, asked: tuple[str, Mapping[str, object]]) -> Answer | None:
        """`asked`: token and arguments."""
        token, arguments = asked
        headers, body = request_of(token, tool, arguments, 1)
        try:
            async with self._fleet.http.post(url, json=body, headers=headers) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as lost:
            self.heard.unanswered[type(lost).__name__] += 1
            return None
        if answer.status in self.excused:
            self.heard.unanswered[f"HTTP {answer.status}"] += 1
            return None
        if answer.status != 200:
            self.heard.strange.append(f"{name} answered HTTP {answer.status}")
            return None
        try:
            return tool_object(content, name, tool)
        except HopFailed as failed:
            self.heard.strange.append(failed.message)
            return None

    def _note(self, text: str, answer: Answer) -> None:
        text = name_of(text)
        error, delivery = answer.get("error"), answer.get("delivery")
        if isinstance(error, str):
            self.heard.strange.append(f"refused {text}: {error}")
            return
        failure = error if isinstance(error, dict) else {}
        if STALE in str(failure.get("message")):
            # A port that another daemon has by now; the answer says that the message is kept.
            self.heard.unanswered["a stale address"] += 1
            return
        receipt = delivery.get("delivery_id") if isinstance(delivery, dict) else None
        notification = answer.get("notification_id")
        one = Acknowledged(
            text,
            str(answer["status"]),
            str(notification) if notification else None,
            str(receipt) if receipt else None,
            failure.get("class"),
            bool(failure.get("retryable")),
        )
        self.heard.answers.append(one)

    async def weather_for_ever(self) -> None:
        """Now and then a provider fails once; ended by cancelling."""
        rng = Random(self._rng.getrandbits(64))
        weights, faults = zip(*WEATHER, strict=True)
        for number in itertools.count():
            if number % FAULTS_AT_ONCE == 0:
                await self._fleet.outside.clear_faults()
            [fault] = rng.choices(faults, weights)
            how = {key: value for key, value in fault.items() if key in {"match", "value"}}
            names = [str(fault[key]) for key in ("channel", "stage", "fault")]
            await self._fleet.outside.fault(*names, times=1, **how)
            await asyncio.sleep(rng.uniform(0.03, 0.15))


def name_of(text: str) -> str:
    """What a message is known by, however long it is: its first line."""
    return text.partition("\n")[0]


def as_json(heard: Heard) -> dict[str, object]:
    """The callers' figures."""
    return {
        "told": heard.told,
        "told_again": heard.repeated,
        "calls": heard.calls,
        "carried": heard.carried,
        "gave_up": heard.unanswered[GAVE_UP],
        "turned_away": heard.unanswered[f"HTTP {TURNED_AWAY}"],
        "unanswered": dict(sorted(heard.unanswered.items())),
        "kinds": json.loads(json.dumps(Counter(one.text.partition(" ")[0] for one in heard.answers))),
    }
