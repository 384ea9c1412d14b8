"""A small world around `messenger.states.step`: workers that sleep and die, a provider that lies, an owner who presses.

Every action is total: what cannot happen where things stand does nothing. After each change the world compares what
the step says with what truly happened, which it alone knows: the provider's journal and the owner's words.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.config.timings import STANDARD
from shared.model import LEGAL
from tests.models.states import FREELY, Delivery, Effect, Event, Part, Stepped, What, step

TERMINAL: Final = frozenset({"sent", "failed", "refused", "cancelled", "expired", "dead", "abandoned", "bounced"})
KINDS: Final = ("third_party", "owner", "card", "reaction", "third_party")
# The only ways out of an ending, beside evidence and a mail that comes back.
REVIVED: Final = {
    ("failed", "parked"): {"reopened", "retry"},
    ("expired", "parked"): {"reopened", "retry"},
    ("cancelled", "parked"): {"reopened"},
    ("dead", "parked"): {"reopened", "retry"},
    ("failed", "queued"): {"started"},
}
MARGIN_SECONDS: Final = STANDARD.margin
How = Literal["receipt", "lost", "rejected", "not_sent", "unknown"]
Preparing = Literal["ok", "failed", "rejected"]
Word = Literal["arrived", "again", "leave"]
Happening = Literal["withdrawn", "reopened", "retry", "bounced", "restored", "started"]
Stepping = Callable[[Delivery, Event], Stepped | None]


class Broken(AssertionError):
    """An invariant that does not hold, in one sentence."""


@dataclass(slots=True)
class Hold:
    """What a worker believes it holds, until when by the last word it had from the database."""

    i: int
    fence: int
    attempt: int
    until: float
    n: int = 1
    stage: Literal["claimed", "prepared", "marked", "written"] = "claimed"
    answer: What = "unknown"


@dataclass(slots=True)
class Case:
    """One delivery with the truth about it; `journal`, `extra` and `arrived` are by part."""

    delivery: Delivery
    not_after: float
    allowed: bool = True
    # Attempts the provider accepted.
    journal: list[list[int]] = field(default_factory=list)
    # Attempts after whose uncertainty one more copy was allowed: by the owner, or once by the product to the owner.
    extra: list[set[int]] = field(default_factory=list)
    arrived: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    written: set[tuple[int, int]] = field(default_factory=set)
    question: int = 0
    # An attempt came to its marker, or was noted as ended before.
    tried: bool = False


class World:
    """Deliveries, workers, a clock and the truth."""

    __slots__ = ("cases", "clock", "done", "pairs", "reached", "stepping", "workers")

    def __init__(self, workers: int = 3, stepping: Stepping = step) -> None:
        self.clock = 0.0
        self.cases: list[Case] = []
        self.workers: list[Hold | None] = [None] * workers
        self.stepping = stepping
        # How many events were admitted.
        self.done = 0
        self.pairs: set[tuple[str, str]] = set()
        self.reached: set[str] = set()

    # What happens at the Messengers.

    def admit(self, kind: str, parts: int) -> None:
        delivery = Delivery(kind, (Part(),) * parts)
        journal: list[list[int]] = [[] for _ in range(parts)]
        extra: list[set[int]] = [set() for _ in range(parts)]
        self.cases.append(Case(delivery, self.clock + 60, journal=journal, extra=extra))
        self.reached.add("queued")

    def claim(self, w: int, i: int) -> None:
        if self.workers[w] is None and self._apply(i, Event("claim", self.clock)) is not None:
            delivery = self.cases[i].delivery
            self.workers[w] = Hold(i, delivery.fence, delivery.attempt, self.clock + 7)
            first = next((n for n, part in enumerate(delivery.parts, 1) if part.status != "sent"), 0)
            if first == 0:  # its receipt came while it waited for a yes
                self.workers[w] = None
                self._apply(i, Event("whole", self.clock, delivery.fence))
                return
            self.workers[w].n = first  # type: ignore[union-attr]  # it was made a few lines above

    def renew(self, w: int) -> None:
        held = self.workers[w]
        if held is not None and self._apply(held.i, Event("renew", self.clock, held.fence)) is not None:
            held.until = self.clock + 7

    def prepare(self, w: int, how: Preparing) -> None:
        held = self.workers[w]
        if held is None or held.stage != "claimed":
            return
        if how == "ok":
            held.stage = "prepared"
            return
        self.workers[w] = None
        self.cases[held.i].tried = True
        word = "provider_rejected" if how == "rejected" else "unavailable"
        self._apply(held.i, Event("prepare_failed", self.clock, held.fence, held.n, held.attempt, word))

    def mark(self, w: int, verdict: What) -> None:
        """The gate's word; without authority, or too late, it is not the wished one."""
        held = self.workers[w]
        if held is None or held.stage != "prepared":
            return
        case = self.cases[held.i]
        if verdict == "marked" and self.clock >= case.not_after:
            verdict = "delayed"  # to the queue, where its time ends it
        elif verdict == "marked" and not case.allowed:
            verdict = "parked"
        begun = case.delivery.begun and case.delivery.kind != "card"
        stepped = self._apply(held.i, Event(verdict, self.clock, held.fence, held.n, held.attempt))
        goes_on = verdict == "moved" and stepped is not None and stepped.delivery.status != "failed"
        _hold(not (begun and goes_on), "what may have left in part goes on to somebody else")
        if stepped is None or stepped.effect is not Effect.WRITE:
            self.workers[w] = None
            self.deadline(held.i)
            return
        held.stage, case.tried = "marked", True
        _hold((held.n, held.attempt) not in case.written, "one attempt writes its byte twice")
        case.written.add((held.n, held.attempt))

    def write(self, w: int, how: How) -> None:
        """The committing byte, unless the lease is nearly over; what the provider does with it."""
        held = self.workers[w]
        if held is None or held.stage != "marked":
            return
        held.stage = "written"
        if self.clock >= held.until - MARGIN_SECONDS:
            held.answer = "not_sent"
            return
        if how in {"receipt", "lost"}:
            case = self.cases[held.i]
            case.journal[held.n - 1].append(held.attempt)
            self._count(case)
        held.answer = "unknown" if how == "lost" else how

    def answer(self, w: int) -> None:
        """The worker writes down how it ended, however late that is."""
        held = self.workers[w]
        if held is None or held.stage != "written":
            return
        self.workers[w] = None
        self._ended(held)
        if held.answer == "receipt" and held.n < len(self.cases[held.i].delivery.parts):
            self.workers[w] = Hold(held.i, held.fence, held.attempt, held.until, held.n + 1)

    def kill(self, w: int) -> None:
        self.workers[w] = None

    def tick(self, seconds: float) -> None:
        self.clock += seconds

    def reap(self, i: int) -> None:
        case = self.cases[i]
        at_marker = case.delivery.kind not in FREELY and any(part.status == "sending" for part in case.delivery.parts)
        stepped = self._apply(i, Event("lease_lost", self.clock))
        if stepped is not None and at_marker:
            _hold(stepped.delivery.status == "uncertain", "a lease lost past the marker is not uncertain")

    # What the owner and the butlers say.

    def owner_says(self, i: int, word: Word, *, late: bool) -> None:
        """A press on the newest question, or on the one before it."""
        case = self.cases[i]
        about = case.question if late else case.delivery.attempt
        unknown, again = uncertain(case), repeated(case)
        if self._apply(i, Event(word, self.clock, attempt=about)) is None:
            return
        case.question = about
        if word == "arrived":
            case.arrived |= unknown
        elif word == "again":
            for n in again:
                case.extra[n].add(about)
        self._check(case)

    def repeat_due(self, i: int) -> None:
        case = self.cases[i]
        again = repeated(case)
        if self._apply(i, Event("repeat_due", self.clock)) is not None:
            _hold(case.delivery.kind == "owner", "a machine repeats to somebody else than the owner")
            _hold(not any(-1 in extra for extra in case.extra), "a machine repeats more than once")
            for n in again:
                case.extra[n].add(-1)
            self._check(case)

    def decide(self, i: int, *, yes: bool) -> None:
        """The owner's yes gives authority and time; a no, or nothing, ends the question."""
        case = self.cases[i]
        if self._apply(i, Event("released" if yes else "answered", self.clock)) is not None and yes:
            case.allowed, case.not_after = True, self.clock + 60

    def revoke(self, i: int) -> None:
        self.cases[i].allowed = False

    def deadline(self, i: int) -> None:
        """Its time ends what waits, as a dead letter where it was tried in vain."""
        case = self.cases[i]
        queued = case.delivery.status == "queued"
        if self.clock >= case.not_after and self._apply(i, Event("deadline", self.clock)) is not None and queued:
            dead = case.delivery.status == "dead"
            _hold(dead == case.tried, "what was tried in vain is no dead letter, or what was not is one")

    def happen(self, i: int, what: Happening) -> None:
        self._apply(i, Event(what, self.clock))

    # What must hold.

    def drain(self) -> None:
        """With a provider that answers and workers that live, everything comes to its end or before the owner."""
        self.workers = [None] * len(self.workers)
        self.tick(10)
        for i, case in enumerate(self.cases):
            self.reap(i)
            for _ in range(2 * len(case.delivery.parts)):
                self._carry(i)
            status = case.delivery.status
            shown = status == "parked" or (status == "uncertain" and case.delivery.attempt in case.told)
            _hold(status in TERMINAL or shown, f"nothing more happens to what is {status}")

    def _carry(self, i: int) -> None:
        self.claim(0, i)
        while self.workers[0] is not None:
            self.prepare(0, "ok")
            self.mark(0, "marked")
            self.write(0, "receipt")
            self.answer(0)

    def _ended(self, held: Hold) -> None:
        event = Event(held.answer, self.clock, held.fence, held.n, held.attempt, f"{held.i}.{held.n}.{held.attempt}")
        case = self.cases[held.i]
        part = case.delivery.parts[held.n - 1]
        spared = case.delivery.kind == "third_party" and part.status == "queued"
        spared = spared and case.delivery.status in {"queued", "claimed", "parked"}
        stepped = self._apply(held.i, event)
        # A backup that was put back knows nothing of what was on its way.
        if held.answer == "receipt" and held.attempt in part.out:
            sent = case.delivery.parts[held.n - 1].status == "sent"
            _hold(sent or not spared, "what has its receipt is sent again")
            whole = all(one.status == "sent" for one in case.delivery.parts)
            _hold(not whole or case.delivery.status != "parked", "the owner is asked about what has arrived")
            gone_on = case.delivery.kind in FREELY or bool(case.extra[held.n - 1])
            noted = stepped is not None and stepped.effect is Effect.LATE and gone_on
            _hold(sent or noted, "a receipt is thrown away")

    def _apply(self, i: int, event: Event) -> Stepped | None:
        case = self.cases[i]
        before = case.delivery
        stepped = self.stepping(before, event)
        if stepped is None:
            return None
        self.done += 1
        case.delivery = stepped.delivery
        old, new = before.status, stepped.delivery.status
        if old != new:
            self._changed(case, (old, new), event, stepped.effect)
        if stepped.effect is Effect.WRITE:
            _hold(case.allowed and event.at < case.not_after, "a marker without authority")
        if event.what not in {"again", "repeat_due", "arrived"}:  # there the truth is written down first
            self._check(case)
        return stepped

    def _changed(self, case: Case, pair: tuple[str, str], event: Event, effect: Effect | None) -> None:
        _hold(pair in LEGAL, f"{pair[0]} becomes {pair[1]}")
        self.pairs.add(pair)
        self.reached.add(pair[1])
        if pair[0] in TERMINAL and pair[1] not in TERMINAL:
            _hold(event.what in REVIVED.get(pair, ()), f"{pair[0]} becomes {pair[1]} by {event.what}")
        if pair[1] == "uncertain":
            _hold(effect is Effect.TELL, "the owner is not told of an uncertain delivery")
            case.told.add(case.delivery.attempt)
        if pair[1] == "parked" and event.what in {"reopened", "retry"}:
            _hold(not any(case.journal), "what may have left is begun anew")
        if effect is Effect.GIVE_BACK:
            _hold(not any(case.journal), "a rule's use is given back for what has left")

    def _check(self, case: Case) -> None:
        delivery = case.delivery
        for n, part in enumerate(delivery.parts):
            copies = len(case.journal[n])
            if part.status in {"queued", "failed"} and delivery.kind not in FREELY:
                _hold(copies <= len(case.extra[n]), "what has arrived may be sent again")
            _hold(part.status == "sent" or delivery.status not in {"sent", "bounced"}, "sent without one of its parts")
            if part.status == "sent":
                proof = part.receipt is not None and int(part.receipt.rpartition(".")[2]) in case.journal[n]
                _hold(proof or n in case.arrived, "sent without a receipt")

    def _count(self, case: Case) -> None:
        for copies, extra in zip(case.journal, case.extra, strict=True):
            if case.delivery.kind not in FREELY:
                _hold(len(copies) <= 1 + len(extra), "the provider has it more often than anybody allowed")


def uncertain(case: Case) -> set[int]:
    """The parts of which nobody knows, from 0."""
    return {n for n, part in enumerate(case.delivery.parts) if part.status == "uncertain"}


def repeated(case: Case) -> set[int]:
    """The parts that are sent once more after such a word; to the owner it is repeated whole."""
    if case.delivery.kind != "owner":
        return uncertain(case)
    return {n for n, part in enumerate(case.delivery.parts) if part.status in {"uncertain", "sent"}}


def _hold(true: bool, otherwise: str) -> None:  # noqa: FBT001  # it reads as a sentence: hold this, otherwise say that
    if not true:
        raise Broken(otherwise)
