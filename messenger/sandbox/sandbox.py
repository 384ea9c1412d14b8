"""The sandbox itself: the world, its two files, the faults, and a bell that wakes all who wait for a change."""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from messenger.sandbox.botapi import shapes
from messenger.sandbox.faults import FaultBoard
from messenger.sandbox.journal import Lines
from messenger.sandbox.room import Room
from messenger.sandbox.world import Message, Polling, World, Written, as_int

Clock = Callable[[], datetime]
FILES: Final = ("journal.jsonl", "events.jsonl")
# What a file is called once it was set aside; the one that was set aside before it goes.
ASIDE: Final = ".old"
# What each file may weigh, where nobody says how much.
MOST: Final = 64 * 2**20
# A file that weighs more than this part of it is set aside at the start.
NEARLY_FULL: Final = 0.75
MOST_UNDER_WAY: Final = 32 * 2**20
# Whatever is wrong with a file, such as a line that lacks something, or names what is not there.
UNREADABLE: Final = (
    *(LookupError, TypeError, ValueError, ArithmeticError, AttributeError),
    *(RuntimeError, MemoryError, OSError, StopIteration),
)


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


class Bell:
    """A bell that wakes all who wait; take `next_ring()` before looking at the world, so that nothing is missed."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def next_ring(self) -> asyncio.Future[None]:
        """Return a future that is done at the next ring; shield it, since others wait on the same one."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def ring(self) -> None:
        """Wake all who wait now."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)


@dataclass(frozen=True, slots=True)
class Accepted:
    """One thing the sandbox is about to accept from a bot or a mail client."""

    channel: str
    token_id: str
    to: str
    payload: Mapping[str, object]
    provider_id: str


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that a person sends along."""

    name: str
    type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Saying:
    """What a person writes; without `token_id` every bot gets it, without `name` the person keeps the known one."""

    who: int
    chat: int
    text: str
    reply_to: int | None = None
    token_id: str = ""
    name: str = ""
    file: Upload | None = None


@dataclass(slots=True)
class Sandbox:
    """The open sandbox. Every change is on the disk before the method that made it returns."""

    home: Path
    owner_chat: int | None
    clock: Clock
    journal: Lines
    events: Lines
    world: World = field(default_factory=World)
    faults: FaultBoard = field(default_factory=FaultBoard)
    room: Room = field(default_factory=lambda: Room(MOST_UNDER_WAY))
    # Why it began anew, if it did: a sentence or two for whoever starts it.
    told: str = ""
    bell: Bell = field(default_factory=Bell)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    endings: set[Callable[[], None]] = field(default_factory=set)
    lines: list[Mapping[str, object]] = field(default_factory=list)
    # The menus of commands by bot and chat, as long as this process lives: a bot sets them when it starts.
    menus: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """A number that grows with every change that a page shows, also over restarts."""
        seen = self.world
        return len(self.lines) + len(seen.updates) + len(seen.written) + seen.namings + self.faults.changes

    def accept(self, *things: Accepted) -> None:
        """Journal what was accepted, in one write, then apply it to the world."""
        first = len(self.lines) + 1
        at = self.clock().isoformat(timespec="milliseconds")
        entries = [
            {
                "n": n,
                "at": at,
                "channel": thing.channel,
                "token_id": thing.token_id,
                "to": thing.to,
                "payload": dict(thing.payload),
                "provider_id": thing.provider_id,
            }
            for n, thing in enumerate(things, start=first)
        ]
        self.journal.append(entries)
        for entry in entries:
            self.lines.append(entry)
            self.world.apply_journal(entry)
        self.bell.ring()

    def say(self, saying: Saying) -> Message:
        """Write a message as a person; every bot, or the one named, gets the update."""
        at, message_id = int(self.clock().timestamp()), self.world.next_message_id
        if saying.name:
            self.name({saying.who: saying.name})
        document = self._keep(saying.file) if saying.file is not None else None
        given = Message(
            saying.chat,
            message_id,
            at,
            saying.who,
            by_bot=False,
            text=saying.text,
            reply_to=saying.reply_to,
            document=document,
        )
        self._tell(shapes.message_update(self.world, given), saying.token_id)
        return self.world.messages[message_id]

    def _keep(self, file: Upload) -> Mapping[str, object]:
        """Keep a file's bytes; return the file as the Bot API describes it."""
        file_id = f"file-{len(self.world.files) + 1}"
        self._event({"kind": "file", "file_id": file_id, "base64": b64encode(file.body).decode()})
        about = {"file_id": file_id, "file_unique_id": file_id, "file_size": len(file.body)}
        return {**about, "file_name": file.name, "mime_type": file.type}

    def write(self, mail: Mapping[str, str]) -> Written:
        """Put a mail that a person wrote into the butlers' mailbox."""
        self._event({"kind": "written", "mail": dict(mail)})
        self.bell.ring()
        return self.world.written[-1]

    def press(self, on: Message, who: int, data: str) -> str:
        """Press a button of a message as a person; the bot that sent it gets the update. Return the callback's id."""
        update = shapes.pressed(self.world, on, who, data)
        self._tell(update, str(on.sender) if on.by_bot else "")
        return next(reversed(self.world.presses))

    def react(self, on: Message, who: int, emoji: str) -> None:
        """Set a person's reaction, or take it away with an empty emoji."""
        at = int(self.clock().timestamp())
        self._tell(shapes.reacted(self.world, on, who, emoji, at), "")

    def name(self, people: Mapping[int, str]) -> None:
        """Call people by these names, as everybody who has them among their contacts does."""
        news = {str(who): name for who, name in people.items() if self.world.people.get(who) != name}
        if news:
            self._event({"kind": "named", "people": news})
            self.bell.ring()

    def confirm(self, token_id: str, polling: Polling) -> None:
        """Record how far a bot has read, if that has changed."""
        if self.world.pollings.get(token_id, Polling()) != polling:
            self._event(
                {"kind": "confirmed", "token_id": token_id, "offset": polling.offset, "allowed": polling.allowed}
            )

    def begin_anew(self, told: str) -> None:
        """Begin, in empty files, with numbers that nothing had before; keep why."""
        self._event({"kind": "begun", "number": int(self.clock().timestamp() * 1000)})
        self.told = told

    def stop(self) -> None:
        """End every long poll, stream, mail connection and hanging answer, so that a server can close at once."""
        self.stopping.set()
        self.bell.ring()
        for end in tuple(self.endings):
            end()

    def close(self) -> None:
        """Stop, and close the files."""
        self.stop()
        self.journal.close()
        self.events.close()

    def _tell(self, update: Mapping[str, object], token_id: str) -> None:
        self._event({"kind": "update", "token_id": token_id, "update": update})
        self.bell.ring()

    def _event(self, line: dict[str, object]) -> None:
        at = self.clock().isoformat(timespec="milliseconds")
        entry = {"at": at, "after": len(self.lines), **line}
        self.events.append([entry])
        self.world.apply_event(_as_read(entry))


def open_sandbox(home: Path, owner_chat: int | None = None, clock: Clock = utc_now, most: int = MOST) -> Sandbox:
    """Open the sandbox whose files lie in `home`/sandbox, as it was when it was last closed or killed.

    Each file holds at most `most`. Files that cannot be read, or are nearly full, are set aside, and it begins anew.
    Raises SandboxBusy if another one has it open.
    """
    folder = home / "sandbox"
    with ExitStack() as opened:
        journal, events = (opened.enter_context(closing(Lines(folder / name, most))) for name in FILES)
        sandbox = Sandbox(home, owner_chat, clock, journal, events)
        if owner_chat is not None:
            sandbox.world.people[owner_chat] = "Owner"
        told = _why_not(sandbox)
        if not told:
            opened.pop_all()
            return sandbox
        for name in FILES:  # while their locks are held
            (folder / name).replace(folder / f"{name}{ASIDE}")
    sandbox = open_sandbox(home, owner_chat, clock, most)
    sandbox.begin_anew(f"{told} It began anew; what it kept lies in {folder}, in the files that end with {ASIDE}.")
    return sandbox


def _why_not(sandbox: Sandbox) -> str:
    """Restore what the files hold; return why they have to be set aside, or nothing."""
    try:
        _replay(sandbox)
    except UNREADABLE as broken:
        return f"The sandbox cannot read what it kept ({type(broken).__name__}: {broken})."
    full = max(sandbox.journal.weight, sandbox.events.weight) > NEARLY_FULL * sandbox.journal.most
    return "The sandbox was nearly full." if full else ""


def _replay(sandbox: Sandbox) -> None:
    # INVARIANT: an event's `after` is the number of journal lines before it, which puts the two files in one order.
    entries = list(sandbox.journal.read())
    for event in sandbox.events.read():
        while len(sandbox.lines) < min(as_int(event["after"]), len(entries)):
            _restore(sandbox, entries[len(sandbox.lines)])
        sandbox.world.apply_event(event)
    for entry in entries[len(sandbox.lines) :]:
        _restore(sandbox, entry)


def _restore(sandbox: Sandbox, entry: Mapping[str, object]) -> None:
    sandbox.lines.append(entry)
    sandbox.world.apply_journal(entry)


def _as_read(line: Mapping[str, object]) -> Mapping[str, object]:
    """Return the line as it will be read from the file: tuples have become lists."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in line.items()}
