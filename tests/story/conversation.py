"""The conversation: the owner has somebody told something, changes the words, and hears and answers what comes back."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from tests.integration.runtime.small_butler import KEYS
from tests.integration.runtime.story import Player
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench
from tests.rig.fleet import Fleet
from tests.rig.model_server import Asked, Call, ModelServer, Words, model_server
from tests.rig.waiting import eventually

WAITS = 50
OPEN = """
SELECT id::text FROM shared.pending_actions WHERE status = 'pending' AND tool_args ->> 'message' = $1
"""
STORED = "SELECT text FROM switchboard.inbox WHERE sender = $1 OR text = ANY ($2) ORDER BY received_at"
BEGUN = """
SELECT status, said, nonce FROM shared.sessions WHERE prompt = ANY ($1) ORDER BY array_position($1::text[], prompt)
"""
KNOWN = "SELECT EXISTS (SELECT FROM messenger.parts WHERE provider_id = $1 AND status = 'sent')"
ID = re.compile(r'"notification_id": ?"([0-9a-f-]{36})"')
NOTICE = re.compile(r"<notification[ s].*</notifications?>", re.DOTALL)


@dataclass(slots=True)
class Conversation:
    """Who says what in one telling of it; whatever was said can be found by its words, which nobody else uses."""

    chloe: str = field(default_factory=fresh.address)
    asks: str = field(default_factory=lambda: fresh.words("tell Chloe dinner is at eight"))
    takes: str = field(default_factory=lambda: fresh.words("I ask you before I write to her."))
    drafts: str = field(default_factory=lambda: fresh.words("Dinner is at eight."))
    edits: str = field(default_factory=lambda: fresh.words("Dinner is at eight. Bring Tom."))
    her_words: str = field(default_factory=lambda: fresh.words("We come, both of us."))
    answers: str = field(default_factory=lambda: fresh.words("tell her I am glad"))
    glad: str = field(default_factory=lambda: fresh.words("I am glad."))
    number: int = 0
    ours: str = ""
    hers: str = ""
    her_card: int = 0

    def first(self) -> Sequence[Call]:
        """What the butler calls when it is asked, but for how that stands."""
        mail = {"channel": "email", "recipient": self.chloe, "subject": "Dinner", "message": self.drafts}
        return [
            Call("notify", {"channel": "telegram", "intent": "reply", "message": self.takes}),
            Call("notify", mail),
        ]

    def second(self) -> Sequence[Call]:
        """What it calls when the owner answers her."""
        return [Call("notify", {"channel": "email", "intent": "reply", "message": self.glad})]


def thinking(told: Conversation, prefix: str) -> Callable[[Asked], Words | Call]:
    """Answer as a model would: by what it is asked, and by how far it has come with that."""

    def think(asked: Asked) -> Words | Call:
        prompt, done = "\n".join(asked.said), asked.results
        if plain(told.answers) in prompt:
            calls = told.second()
        elif plain(told.asks) in prompt:
            found = ID.search(done[-1]) if len(done) == len(told.first()) else None
            given = {"notification_id": found[1] if found else "", "wait_seconds": WAITS}
            calls = [*told.first(), Call("notification_status", given)]
        else:
            calls = ()
        if len(done) >= len(calls):
            return Words("Nothing else is to be done.")
        return Call(prefix + calls[len(done)].tool, calls[len(done)].arguments)

    return think


def plain(text: str) -> str:
    """The text as it stands in a block of a prompt."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def scripts(told: Conversation, pause: float = 0) -> tuple[str, str]:
    """The same as two scripts, one for each session; `pause` is between the first answer and the mail."""
    waits = Call("notification_status", {"notification_id": "${notify.notification_id}", "wait_seconds": WAITS})
    first, mail = (step(one) for one in told.first())
    nap = f"[[runtime.steps]]\nwait = {pause}"
    says = '[[runtime.steps]]\nsay = "${notification_status.notifications}"'
    return "\n".join([first, nap, mail, step(waits), says]), "\n".join(step(one) for one in told.second())


def step(call: Call) -> str:
    """A call as a step of a script."""
    pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in call.arguments.items())
    return f"[[runtime.steps]]\ncall = {json.dumps(call.tool)}\narguments = {{ {pairs} }}"


@dataclass(slots=True)
class Telling:
    """A conversation in a fleet; `turn` gives a butler that plays scripts its second one."""

    fleet: Fleet
    told: Conversation
    turn: Callable[[], Awaitable[None]] | None = None

    async def owner_asks(self) -> None:
        """The owner writes to the bot; she is one of the contacts."""
        await self.fleet.contact("Chloe", email=self.told.chloe)
        self.told.number = await self.fleet.outside.say(OWNER, self.told.asks)

    async def butler_takes_it(self) -> None:
        """The butler answers in the thread of what was written."""
        entry = await self.fleet.outside.arrived(self.told.takes, OWNER)
        assert entry.payload["reply_parameters"]["message_id"] == self.told.number  # type: ignore[index]  # an object

    async def owner_is_asked(self) -> None:
        """The owner sees what would go to Chloe."""
        card = await self.fleet.outside.asking(self.told.drafts)
        assert self.told.chloe in card.text

    async def owner_edits(self) -> None:
        """The owner puts other words in their place."""
        action = str(await self.fleet.value(OPEN, self.told.drafts))
        code, _, err = await self.fleet.house.butlers("approvals", "edit", action, "--message", self.told.edits)
        assert code == 0, err

    async def owner_approves(self) -> None:
        """The owner says yes to these."""
        await self.fleet.outside.press(await self.fleet.outside.asking(self.told.edits), "Approve")

    async def chloe_reads(self) -> None:
        """They arrive, once, and what the butler wrote does not."""
        entry = await self.fleet.outside.arrived(self.told.edits, self.told.chloe)
        assert not [e for e in await self.fleet.outside.having(self.told.drafts) if e.to == self.told.chloe]
        self.told.ours = str(entry.mail["Message-ID"])

    async def chloe_answers(self) -> None:
        """She answers that mail."""
        if self.turn is not None:
            await self.turn()
        write = partial(self.fleet.outside.write, self.told.chloe, self.told.her_words)
        self.told.hers = await write(subject="Re: Dinner", answers=self.told.ours)

    async def owner_reads(self) -> None:
        """The owner sees what she wrote, and no session begins by it."""
        entry = await self.fleet.outside.arrived(self.told.her_words, OWNER)
        assert "From: Chloe" in entry.text
        self.told.her_card = int(entry.provider_id)
        # What was sent and not yet written down is sent to the owner again after a kill: nobody knows its number.
        await eventually(partial(self.fleet.value, KNOWN, entry.provider_id))

    async def owner_answers(self) -> None:
        """The owner says in an answer to that what to tell her."""
        await self.fleet.outside.say(OWNER, self.told.answers, reply_to=self.told.her_card)

    async def owner_is_asked_again(self) -> None:
        """The owner sees the answer."""
        await self.fleet.outside.asking(self.told.glad)

    async def owner_approves_again(self) -> None:
        """The owner says yes to it."""
        await self.fleet.outside.press(await self.fleet.outside.asking(self.told.glad), "Approve")

    async def chloe_reads_again(self) -> None:
        """It arrives in the thread of her mail."""
        mail = (await self.fleet.outside.arrived(self.told.glad, self.told.chloe)).mail
        assert (mail["In-Reply-To"], mail["References"], mail["Subject"]) == (self.told.hers,) * 2 + ("Re: Dinner",)

    async def all_is_over(self) -> Mapping[str, str]:
        """What came in is stored once, with one session for each word of the owner's; the first one's last words."""
        asked = [self.told.asks, self.told.answers]
        stored = [row["text"] for row in await self.fleet.sql(STORED, self.told.chloe, asked)]
        assert stored == [self.told.asks, self.told.her_words, self.told.answers]

        async def ended() -> Sequence[Mapping[str, str]]:
            rows = [dict(row) for row in await self.fleet.sql(BEGUN, asked)]
            assert len(rows) <= len(asked)
            return rows if len(rows) == len(asked) and not {r["status"] for r in rows} & {"waiting", "running"} else []

        return (await eventually(ended))[0]

    async def owner_is_told_that_it_broke_off(self) -> None:
        """The owner reads that nobody goes on with what was asked."""
        await self.fleet.outside.arrived(f"It is not begun again. It was asked: “{self.told.asks}”", OWNER)

    STEPS: ClassVar[Sequence[Callable[["Telling"], Awaitable[None]]]] = (
        *(owner_asks, butler_takes_it, owner_is_asked, owner_edits, owner_approves, chloe_reads),
        *(chloe_answers, owner_reads, owner_answers, owner_is_asked_again, owner_approves_again, chloe_reads_again),
    )


@asynccontextmanager
async def by_a_script(bench: Bench, pause: float = 0) -> AsyncIterator[Telling]:
    """A fleet in one process whose default butler plays scripts."""
    told = Conversation()
    first, second = scripts(told, pause)
    async with _fleet(bench, 'kind = "script"', first) as (fleet, file, before):

        async def turn() -> None:
            file.write_text(f'{before}\n[runtime]\nkind = "script"\n{second}\n')
            code, _, err = await fleet.house.butlers("reload")
            assert code == 0, err

        yield Telling(fleet, told, turn)


@asynccontextmanager
async def by_a_model(bench: Bench, player: Player, prefix: str = "") -> AsyncIterator[tuple[Telling, ModelServer]]:
    """A fleet in one process for whose default butler a model thinks."""
    told = Conversation()
    async with AsyncExitStack() as held:
        models = await held.enter_async_context(model_server())
        models.play(thinking(told, prefix))
        table = "\n".join(f"{name} = {json.dumps(value)}" for name, value in player.table.items())
        env = {**KEYS, **player.environment(models)}
        made = _fleet(bench, f'kind = "{player.runtime}"\n{table}', "", **env)
        fleet, _, _ = await held.enter_async_context(made)
        yield Telling(fleet, told), models


@asynccontextmanager
async def _fleet(bench: Bench, runtime: str, steps: str, **env: str) -> AsyncIterator[tuple[Fleet, Path, str]]:
    """A fleet whose greeter has this runtime; its butler.toml, and what that said before."""
    made = await bench.house()
    house = replace(made, env={**made.env, **env})
    file = house.folder / "fleet" / "health" / "butler.toml"
    before = file.read_text()
    file.write_text(f"{before}\n[runtime]\n{runtime}\n{steps}\n")
    fleet = await Fleet.start(house)
    try:
        yield fleet, file, before
        await fleet.stop()
    except BaseException:
        await fleet.abandon()
        raise


async def tell(telling: Telling) -> None:
    """Tell all of it."""
    for one in Telling.STEPS:
        await one(telling)


def demand_notice(read: str, told: Conversation) -> None:
    """Demand that this holds the owner's decision, as a notice, in the words that count."""
    found = NOTICE.search(read)
    assert found is not None, read
    decided = r"The owner approved your email message [0-9a-f-]+\.\s+Text: “" + re.escape(plain(told.edits))
    # Where a model reads a text, the lines of the block may stand as they are in JSON.
    assert re.search(decided, found[0].replace("\\n", "\n")), read


def demand_read(models: ModelServer, told: Conversation) -> None:
    """Demand that the model was asked in the owner's name, and was told the decision with its next result."""
    asked = [one for one in models.asked if len(one.results) == len(told.first()) + 1]
    assert asked, [one.results for one in models.asked]
    assert any('from="owner"' in text and plain(told.asks) in text for text in asked[0].said)
    assert told.edits not in "".join(asked[0].results[:-1])
    demand_notice(asked[0].results[-1], told)
