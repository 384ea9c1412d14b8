"""The world around a fleet as the sandbox plays it: what arrived, what shall go wrong, and what people do."""

import asyncio
import email
import email.message
import email.policy
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import aiohttp

from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.waiting import LONGEST

OWNERS: Final = (str(OWNER), OWNER_EMAIL)
# What the house puts before a butler's words to the owner: lines of its own, then the name.
NAMED: Final = re.compile(r"\A((?:\u25a3 [^\n]*\n)*)[a-z][a-z0-9_]{0,30}(?: \([0-9]+/[0-9]+\))?:\n{1,2}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal: something a provider accepted."""

    n: int
    channel: str
    token_id: str
    to: str
    payload: Mapping[str, object]
    provider_id: str

    @property
    def method(self) -> str:
        """The Bot API's method, or `mail`."""
        return str(self.payload.get("method", "mail"))

    @property
    def text(self) -> str:
        """The words as they were accepted, a mail's subject aside; to the owner without the name of their butler."""
        return NAMED.sub(r"\1", self.whole) if self.to in OWNERS else self.whole

    @property
    def whole(self) -> str:
        """The same with the name."""
        if self.channel == "telegram":
            return str(self.payload.get("text", ""))
        found = self.mail.get_body(("plain",))
        assert found is not None, "the mail has no plain text"
        return str(found.get_content()).replace("\r\n", "\n").removesuffix("\n")

    @property
    def mail(self) -> email.message.EmailMessage:
        """The mail, parsed by the standard library."""
        raw = str(self.payload["raw"]).encode(errors="surrogateescape")
        return email.message_from_bytes(raw, policy=email.policy.default)


@dataclass(frozen=True, slots=True)
class Card:
    """A card as it stands in the owner's chat: its parts in order, the last one with the buttons."""

    parts: Sequence[Entry]
    buttons: Mapping[str, str]

    @property
    def text(self) -> str:
        """Everything the owner reads of it."""
        return "\n".join(part.text for part in self.parts)

    @property
    def message_id(self) -> int:
        """The message the buttons are on."""
        return int(self.parts[-1].provider_id)


class Outside:
    """The sandbox of one fleet over HTTP."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self._http = http

    async def journal(self, after: int = 0) -> list[Entry]:
        """What was accepted since line `after`."""
        async with self._http.get(f"{self.url}/api/journal", params={"after": str(after)}) as answer:
            lines = [json.loads(line) for line in (await answer.text()).splitlines()]
        names = ("n", "channel", "token_id", "to", "payload", "provider_id")
        return [Entry(*(line[name] for name in names)) for line in lines]

    async def having(self, text: str, after: int = 0) -> list[Entry]:
        """The accepted messages whose text or subject holds this, cards and other edits included."""
        return [e for e in await self.journal(after) if text in e.text or text in str(e.payload.get("subject", ""))]

    async def until(self, wanted: Callable[[Entry], bool], count: int = 1, within: float = LONGEST) -> list[Entry]:
        """The matching entries, as soon as there are so many."""
        found: list[Entry] = []
        try:
            async with asyncio.timeout(within):
                while len(found := [entry for entry in await self.journal() if wanted(entry)]) < count:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            told = [(e.n, e.method, e.to, e.text[:60]) for e in (await self.journal())[-8:]]
            raise AssertionError(f"{len(found)} of {count} arrived within {within} s; the last were {told}") from None
        return found

    async def arrived(self, text: str, to: str | int, within: float = LONGEST) -> Entry:
        """The one accepted message with this text to this address, once it is there; more than one is a failure."""
        found = await self.until(lambda e: e.to == str(to) and text in e.text and e.method in SENDS, 1, within)
        assert len(found) == 1, found
        return found[0]

    async def fault(self, channel: str, stage: str, fault: str, **how: object) -> None:
        """Script a fault: times, or match (a part of the text), and value."""
        await self._post("faults", channel=channel, stage=stage, fault=fault, **how)

    async def clear_faults(self) -> None:
        """Nothing goes wrong any more."""
        async with self._http.delete(f"{self.url}/api/faults") as answer:
            assert answer.ok

    async def say(self, who: int, text: str, *, chat: int | None = None, reply_to: int | None = None) -> int:
        """A person writes; the message's number."""
        given = {"chat": chat or who, **({"reply_to": reply_to} if reply_to else {})}
        said = await self._post("say", **{"as": who, "text": text, **given})
        return int(str(said["message_id"]))

    async def write(self, sender: str, text: str, *, subject: str = "", answers: str = "") -> str:
        """A person writes a mail to the butlers; its Message-ID."""
        mail = {"channel": "email", "from": sender, "subject": subject, "text": text, "answers": answers}
        return str((await self._post("say", **mail))["message_id"])

    async def asking(self, words: str) -> Card:
        """The card of one part in the owner's chat that asks about these words."""
        [entry, *_] = await self.until(lambda e: e.to == str(OWNER) and words in e.text and bool(_keyboard(e)))
        return Card([entry], {str(b["text"]): str(b["callback_data"]) for row in _keyboard(entry) for b in row})

    async def press(self, card: Card, verb: str, who: int = OWNER) -> None:
        """Somebody presses a button of a card: `Approve` or `Deny`."""
        await self.press_data(card.message_id, card.buttons[verb], who)

    async def press_data(self, message_id: int, data: str, who: int = OWNER) -> None:
        """The same with any data, as somebody could forge it."""
        await self._post("press", **{"as": who, "chat": who, "message_id": message_id, "data": data})

    async def card(self, action_id: str, within: float = LONGEST) -> Card:
        """The whole card of a pending action in the owner's chat, once its buttons are there."""
        short = short_id(action_id)
        [last, *_] = await self.until(lambda e: e.to == str(OWNER) and short in json.dumps(_keyboard(e)), 1, within)
        parts = [e for e in await self.journal() if e.to == str(OWNER) and e.method == "sendMessage" and e.n < last.n]
        numbered: list[Entry] = []
        while parts and parts[-1].text.startswith("\u25a3 ("):
            numbered.insert(0, parts.pop())
            if numbered[0].text.startswith("\u25a3 (1/"):
                break
        buttons = {str(b["text"]): str(b["callback_data"]) for row in _keyboard(last) for b in row}
        long = "text is above" in last.text
        return Card([*(numbered if long else []), last], buttons)

    async def _post(self, name: str, **asked: object) -> Mapping[str, object]:
        async with self._http.post(f"{self.url}/api/{name}", json=asked) as answer:
            shape = await answer.json()
            assert answer.ok, shape
            assert isinstance(shape, dict)
            return shape


SENDS = ("sendMessage", "mail")


def short_id(action_id: str) -> str:
    """A pending action's id as its buttons carry it."""
    return urlsafe_b64encode(UUID(action_id).bytes).decode().rstrip("=")


def _keyboard(entry: Entry) -> list[list[dict[str, object]]]:
    markup = entry.payload.get("reply_markup")
    found = markup.get("inline_keyboard") if isinstance(markup, dict) else None
    return found if isinstance(found, list) and entry.method == "sendMessage" else []
