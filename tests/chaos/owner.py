"""The owner of a campaign: decides, answers what may have arrived, and changes what decisions rest on.

Yes, no and the three answers are given by button and by command line; rules go and come, the brake is pulled and
lifted, identifiers are added, and the bot is written to.
"""

import asyncio
import itertools
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

from shared.storage import contacts
from tests.chaos.crew import Crew
from tests.chaos.load import People
from tests.chaos.world import MOST_WAITING, Talker
from tests.rig.bench import OWNER
from tests.rig.fleet import Rows
from tests.rig.outside import Entry, Outside

APPROVE: Final = "Approve"
DENY: Final = "Deny"
ARRIVED: Final = "It arrived"
# Seldom, as three noes in a row about one recipient end a butler's questions about it for a day.
NOES: Final = 0.2
ANSWERS: Final = 0.4
# Whatever is true, and about so many that enough is left unanswered to count the alarms by.
WORDS: Final = ("arrived", "again", "leave")
ANSWER: Final = """
INSERT INTO shared.resolutions (delivery_id, attempt, word, by, surface)
SELECT d.id, d.attempt, $1, c.id, 'cli' FROM messenger.deliveries d JOIN shared.contacts c ON 'owner' = ANY (c.roles)
WHERE d.status = 'uncertain' AND d.class <> 'card' AND right(d.id::text, 1) < '6'
    AND NOT EXISTS (SELECT FROM shared.resolutions r WHERE r.delivery_id = d.id AND r.attempt = d.attempt)
ORDER BY random() LIMIT 1 RETURNING word
"""
# How often the owner decides on the command line, so that the Messenger has to change the card by itself.
ELSEWHERE: Final = 0.2
SET_RULE: Final = "UPDATE shared.approval_rules SET active = $2 WHERE arg_constraints ->> 'contact_id' = $1"
BRAKE: Final = "INSERT INTO shared.brakes (contact_id, channel) VALUES ($1, $2)"
RELEASE: Final = "UPDATE shared.brakes SET lifted_at = clock_timestamp() WHERE lifted_at IS NULL"
ALL_RULES: Final = "UPDATE shared.approval_rules SET active = true WHERE NOT active"
WAITING: Final = """
SELECT (SELECT count(*) FROM messenger.deliveries WHERE status = 'queued' AND class = 'owner') AS own,
    (SELECT count(*) FROM shared.pending_actions WHERE status = 'pending')
    + (SELECT count(*) FROM messenger.deliveries WHERE status = 'queued' AND class = 'card') AS yes
"""
FIRST_STRANGER: Final = 7_300_000_000


class Person:
    """The owner of a campaign; what has no end is cancelled."""

    def __init__(self, crew: Crew, talker: Talker, who: People, rng: Random) -> None:
        self._crew, self._talker, self._who, self._rng = crew, talker, who, rng
        self._numbers = itertools.count(1)
        # What was pressed, and what was typed.
        self.said: Counter[str] = Counter()

    async def decides(self) -> None:
        """Yes to nearly every card, some moments after seeing it, and no to a few."""
        rng = Random(self._rng.getrandbits(64))
        async with asyncio.TaskGroup() as words:
            async for entry, buttons in self._cards(APPROVE):
                # What is carried always goes to one address, and three noes in a row would end all questions about it.
                no = rng.random() < NOES and "carried <" not in entry.text
                word = DENY if no else APPROVE
                words.create_task(self._decide(entry, word, buttons[word], elsewhere=rng.random() < ELSEWHERE))

    async def answers_doubts(self) -> None:
        """One of the three answers, by button, to some of the cards that ask whether something arrived."""
        rng = Random(self._rng.getrandbits(64))
        async for entry, buttons in self._cards(ARRIVED):
            if rng.random() < ANSWERS:
                word = rng.choice(sorted(buttons))
                await self._outside.press_data(int(entry.provider_id), buttons[word])
                self.said[f"pressed {word}"] += 1

    async def resolves(self) -> None:
        """The same as the command line writes it: the owner's chat is one, and full of other things."""
        while True:
            word = self._rng.choice(WORDS)
            if await self._crew.ask(partial(_answered, word=word)):
                self.said[f"resolved as {word}"] += 1
            await asyncio.sleep(self._rng.uniform(0.2, 0.8))

    async def _cards(self, having: str) -> AsyncIterator[tuple[Entry, Mapping[str, str]]]:
        """Each card with such a button as it comes, with the data of its buttons by their words."""
        seen = 0
        while True:
            for entry in await self._outside.journal(seen):
                seen = entry.n
                if having in (buttons := buttons_of(entry)):
                    yield entry, buttons
            await asyncio.sleep(0.15)

    async def _decide(self, entry: Entry, word: str, data: str, *, elsewhere: bool) -> None:
        """Press it; or say it on the command line, and press all the same if that does not get through."""
        if elsewhere:
            with suppress(TimeoutError):  # a database that stands still
                code, _, _ = await self._crew.fleet.house.butlers("approvals", word.lower(), action_of(data))
                if code == 0:
                    self.said[f"typed {word}"] += 1
                    return
        await self._outside.press_data(int(entry.provider_id), data)
        self.said[f"pressed {word}"] += 1

    @property
    def _outside(self) -> Outside:
        return self._crew.fleet.outside

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
            await self._outside.say(OWNER, f"said {next(self._numbers)}")
            await asyncio.sleep(self._rng.uniform(0.2, 0.8))

    async def comes_to_rest(self) -> None:
        """Every rule holds again, and no brake is on."""
        await self._sql(ALL_RULES)
        await self._sql(RELEASE)

    async def _sql(self, query: str, *arguments: object) -> None:
        await self._crew.ask(lambda rows: rows.execute(query, *arguments))


async def _stranger(rows: Rows, *, number: int) -> str:
    async with rows.transaction():
        made = await contacts.add_contact(rows, f"Stranger {number}", [])
        await contacts.add_address(rows, made, "telegram", str(FIRST_STRANGER + number), primary=True)
    return made


async def _answered(rows: Rows, *, word: str) -> bool:
    return await rows.fetchval(ANSWER, word) is not None


async def _known_as(rows: Rows, *, contact: str, address: str) -> None:
    await contacts.add_address(rows, contact, "email", address, primary=True)


def buttons_of(entry: Entry) -> Mapping[str, str]:
    """The data of a card's buttons by their words; none for anything but a card to the owner."""
    markup = entry.payload.get("reply_markup")
    if entry.to != str(OWNER) or entry.method != "sendMessage" or not isinstance(markup, dict):
        return {}
    buttons = [button for row in markup.get("inline_keyboard", []) for button in row]
    return {str(button["text"]): str(button["callback_data"]) for button in buttons if "callback_data" in button}


def action_of(data: str) -> str:
    """The id of the pending action that a button speaks of."""
    short = data.split(":")[1]
    return str(UUID(bytes=urlsafe_b64decode(f"{short}==")))
