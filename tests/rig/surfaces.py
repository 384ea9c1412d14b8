"""The owner's word by button, page and command line at once, on a running fleet: one effect, and nobody told a lie.

The command line is a process of its own now and then, as that costs half a second; else it is what the command does,
with a connection of its own, in this process.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import uuid4

import aiohttp

from butlers.cli.terminal import as_owner, owner_id
from butlers.console.storage.sessions import make_sign_in_link
from shared.gate.owner_decision import OwnerDecision, apply
from tests.rig.bench import OWNER
from tests.rig.fleet import Fleet
from tests.rig.outside import SENDS, Entry, _keyboard, short_id
from tests.rig.waiting import LONGEST

FIRST_CHAT: Final = 7_300_000_001
LANES: Final = 4
# One in so many says its word by a process.
PROCESSES: Final = 10
# Within so many seconds all three speak; a process takes a while to get there.
SPREAD: Final = 0.25
SLOW_SPREAD: Final = 1.5
SAID: Final = {True: "approved", False: "denied"}
# How a question may stand that was answered so, by the time somebody else asks.
STANDS: Final = {
    "approved": {"late: approved", "late: executing", "late: executed"},
    "denied": {"late: denied"},
}
DECIDED: Final = """
SELECT event_type, detail ->> 'surface' AS surface FROM shared.approval_events
WHERE action_id = $1::text::uuid AND event_type IN ('approved', 'denied', 'edited', 'expired')
"""
ENDED: Final = "SELECT status FROM shared.notifications WHERE id = $1::text::uuid AND status IN ('ok', 'error')"


@dataclass(slots=True)
class Journal:
    """What the sandbox accepted, read once."""

    fleet: Fleet
    entries: list[Entry] = field(default_factory=list)

    async def read(self) -> None:
        """What came since."""
        last = self.entries[-1].n if self.entries else 0
        came = await self.fleet.outside.journal(last)
        # Another reader may have been faster.
        self.entries += [entry for entry in came if not self.entries or entry.n > self.entries[-1].n]

    async def card(self, action_id: str) -> tuple[int, Mapping[str, str]]:
        """The card's message and its buttons, once it is there."""
        short = short_id(action_id)
        async with asyncio.timeout(LONGEST):
            while True:
                for entry in reversed(self.entries):
                    buttons = {str(b["text"]): str(b["callback_data"]) for row in _keyboard(entry) for b in row}
                    if any(short in data for data in buttons.values()):
                        return int(entry.provider_id), buttons
                await asyncio.sleep(0.02)
                await self.read()

    async def note(self, query: str) -> str:
        """What the presser reads, once there is an answer to the press."""
        async with asyncio.timeout(LONGEST):
            while True:
                for entry in reversed(self.entries):
                    if entry.method == "answerCallbackQuery" and entry.payload.get("callback_query_id") == query:
                        return str(entry.payload.get("text"))
                await asyncio.sleep(0.02)
                await self.read()

    def sent(self, words: str, chat: int) -> int:
        """How often the message itself left."""
        return sum(words in e.text and e.to == str(chat) and e.method in SENDS for e in self.entries)


@dataclass(frozen=True, slots=True)
class Question:
    """One that waits, and where its card is."""

    action_id: str
    notification_id: str
    words: str
    chat: int
    message_id: int
    buttons: Mapping[str, str]


@dataclass(slots=True)
class Told:
    """Which surface won how often, and how many words came by a process."""

    races: int = 0
    processes: int = 0
    won: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)


class Owner:
    """The owner at three surfaces."""

    def __init__(self, fleet: Fleet, journal: Journal, pages: aiohttp.ClientSession, csrf: str) -> None:
        self._fleet = fleet
        self._journal = journal
        self._pages = pages
        self._csrf = csrf

    async def telegram(self, asked: Question, *, yes: bool) -> str:
        """Press; what the note says that takes the spinner's place."""
        data = asked.buttons["Approve" if yes else "Deny"]
        pressed = {"as": OWNER, "chat": OWNER, "message_id": asked.message_id, "data": data}
        async with self._fleet.http.post(f"{self._fleet.outside.url}/api/press", json=pressed) as answer:
            query = (await answer.json())["callback_query_id"]
        note = await self._journal.note(query)
        return SAID[yes] if note.startswith(SAID[yes].capitalize()) else _late(note)

    async def console(self, asked: Question, *, yes: bool) -> str:
        """Send the page's form; the code of what the page then says."""
        form = {"csrf": self._csrf, "word": "approve" if yes else "deny", "revision": "1"}
        url = f"{self._fleet.url('console')}/approvals/{asked.action_id}"
        async with self._pages.post(url, data=form, allow_redirects=False) as answer:
            page = await answer.text()
        if answer.status == 303:
            return SAID[yes]
        assert answer.status == 409, page
        return _late(page)

    async def cli(self, asked: Question, *, yes: bool, process: bool) -> str:
        """Say it on the command line."""
        if process:
            code, out, err = await self._fleet.house.butlers("approvals", "approve" if yes else "deny", asked.action_id)
            return SAID[yes] if code == 0 else _late(out + err)
        settings = self._fleet.house.settings
        async with as_owner(settings) as connection:
            by = await owner_id(connection)
            said = await apply(connection, OwnerDecision(asked.action_id, yes, by, "cli", settings.approval_ttl))
        return _late(said.text) if said.code == "late" else said.code


def _late(text: str) -> str:
    found = re.search(r"Already (\w+)", text)
    assert found is not None, text
    return f"late: {found[1]}"


@asynccontextmanager
async def signed_in(fleet: Fleet) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A browser's session at the console, and the secret of its forms."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as pages:
        code, url = uuid4().hex, fleet.url("console")
        await make_sign_in_link(fleet.db, url, code)
        origin = {"origin": url}
        async with pages.post(f"{url}/sign-in", data={"code": code}, headers=origin, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()
        pages.headers.update(origin)
        async with pages.get(f"{url}/") as answer:
            yield pages, (await answer.text()).split('name="csrf" value="')[1].split('"')[0]


async def race_surfaces(fleet: Fleet, many: int, random: Random) -> Told:
    """So many races by all three surfaces; AssertionError for the first that had not one effect, or told a lie."""
    told, journal, numbers = Told(), Journal(fleet), iter(range(many))
    approved: dict[tuple[str, int], bool] = {}
    async with signed_in(fleet) as (pages, csrf):
        owner = Owner(fleet, journal, pages, csrf)
        lane = Lane(fleet, owner, journal, random, told, asyncio.Lock())
        await asyncio.gather(*(lane.run(numbers, approved) for _ in range(LANES)))
    await journal.read()
    for (words, chat), yes in approved.items():
        assert journal.sent(words, chat) == yes, f"{words}: approved {yes}, sent {journal.sent(words, chat)} times"
    return told


@dataclass(frozen=True, slots=True)
class Lane:
    """One race after the other."""

    fleet: Fleet
    owner: Owner
    journal: Journal
    random: Random
    told: Told
    # The fleet has one connection for all.
    rows: asyncio.Lock

    async def run(self, numbers: Iterator[int], approved: dict[tuple[str, int], bool]) -> None:
        """Take the next number, until there is none."""
        for number in numbers:
            asked = await self._ask(number)
            words = [self.random.random() < 0.6 for _ in range(3)]
            process = number % PROCESSES == 0
            spread = SLOW_SPREAD if process else SPREAD
            answers = await asyncio.gather(
                self._after(spread, self.owner.telegram(asked, yes=words[0])),
                self._after(spread, self.owner.console(asked, yes=words[1])),
                self._after(SPREAD / 10, self.owner.cli(asked, yes=words[2], process=process)),
            )
            said = dict(zip(("telegram", "console", "cli"), answers, strict=True))
            effect = await self._judge(asked, said, words)
            approved[asked.words, asked.chat] = effect == "approved"
            self.told.races += 1
            self.told.processes += process

    async def _after(self, spread: float, said: Awaitable[str]) -> str:
        await asyncio.sleep(self.random.random() * spread)
        return await said

    async def _ask(self, number: int) -> Question:
        words, chat = f"race {number} {uuid4()}", FIRST_CHAT + number
        async with self.rows:
            contact = await self.fleet.contact(f"Friend {number}", telegram=chat)
        answer = await self.fleet.notify(channel="telegram", contact_id=contact, message=words)
        action_id, notification_id = str(answer["action_id"]), str(answer["notification_id"])
        return Question(action_id, notification_id, words, chat, *await self.journal.card(action_id))

    async def _judge(self, asked: Question, said: Mapping[str, str], words: list[bool]) -> str:
        async with self.rows:
            rows = await self.fleet.sql(DECIDED, asked.action_id)
        case = f"{said} {words} {[tuple(row) for row in rows]}"
        assert len(rows) == 1, f"not one effect: {case}"
        effect, winner = rows[0]["event_type"], rows[0]["surface"]
        assert said[winner] == effect, case
        for surface, code in said.items():
            if surface != winner:
                assert code in STANDS[effect], case
        self.told.won[winner] += 1
        self.told.effects[effect] += 1
        async with asyncio.timeout(LONGEST):
            while (ended := await self._ended(asked)) is None:
                await asyncio.sleep(0.02)
        assert ended == ("ok" if effect == "approved" else "error"), case
        return str(effect)

    async def _ended(self, asked: Question) -> object:
        async with self.rows:
            return await self.fleet.value(ENDED, asked.notification_id)
