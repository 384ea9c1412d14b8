"""The verdict on a run with kills: what was promised, what is written, and what really left. Pure.

A text is used for one message only, so that texts join the three: the answers callers got, the rows, and the
provider's journal, which nobody killed.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

OPEN_ANSWERS: Final = frozenset({"queued", "pending_approval", "pending_missing_identifier"})
OPEN_DELIVERIES: Final = frozenset({"queued", "claimed", "sending", "parked"})
NOT_SENT: Final = frozenset({"failed", "refused", "expired", "dead", "cancelled"})
# What is uncertain is told the owner once more, and says so.
MOST_TO_THE_OWNER: Final = 2
# What stands in a receipt's place where the owner said that it arrived.
OWNERS_WORD: Final = "confirmed by the owner"
# Which promise it is that something broke, by the words below.
PROMISES: Final[Mapping[str, re.Pattern[str]]] = {
    "without_authority": re.compile("without authority"),
    "without_receipt": re.compile("without a receipt|receipt .* nobody gave"),
    "twice": re.compile(r"^(admitted|sent) \d+ times|^tried again"),
    "lost": re.compile("^acknowledged as .* and lost|^left open|without a delivery"),
    "untrue": re.compile(""),
}
# What a delivery's end has to be called in the answer.
SAYS: Final[Mapping[str, str]] = {
    "sent": "ok",
    "uncertain": "uncertain",
    "abandoned": "uncertain",
    **dict.fromkeys(NOT_SENT, "error"),
}


@dataclass(frozen=True, slots=True)
class Sent:
    """Something a provider accepted.

    `asking`: the Messenger asks or tells the owner this by itself; `repeat`: it says that it may be one; `part`: of a
    message that is too long for one.
    """

    to: str
    text: str
    provider_id: str
    asking: bool = False
    repeat: bool = False
    part: int = 1


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An answer that a caller got for a text: everything but a lost connection and a refused argument."""

    text: str
    status: str
    notification_id: str | None = None
    provider_id: str | None = None
    error_class: str | None = None
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A notification with its delivery after the drain; `marked_at` is its last marker, in seconds since 1970.

    `retryable`: its caller was not told otherwise, so may say it again.
    `doubted`: an attempt of it has no end that proves anything, and its part no receipt; or there was none.
    `again`, `vouched`, `left`: how often the owner had it sent again, said of a part that it arrived, left it at that.
    `unasked`: a part was marked after an attempt that may have arrived, and no word of the owner's stands between.
    `warned`: its caller is told that it may have arrived all the same.
    `authority`: at each last marker of its parts a standing rule held whose use is noted, or the owner had said yes,
    and at no marker a brake.
    """

    notification_id: str
    text: str
    third_party: bool
    status: str
    delivery: str | None
    address: str | None = None
    receipts: tuple[str | None, ...] = ()
    authority: bool = False
    open_action: bool = False
    reason: str | None = None
    marked_at: float | None = None
    parts: int = 1
    retryable: bool = True
    doubted: bool = False
    again: int = 0
    vouched: int = 0
    left: int = 0
    unasked: bool = False
    warned: bool = False

    @property
    def said_so(self) -> bool:
        """Whether its end comes after a word of the owner's to send it again, and tells that it may have arrived."""
        return self.again > 0 and self.warned and not self.retryable


@dataclass(frozen=True, slots=True)
class Verdict:
    """Every promise that was broken, in words, and the figures."""

    broken: tuple[str, ...]
    figures: Mapping[str, int]


def verdict(
    journal: Sequence[Sent],
    acknowledgements: Sequence[Acknowledged],
    rows: Sequence[Row],
    never: frozenset[str] = frozenset(),
    aimed_since: float = inf,
) -> Verdict:
    """Judge a run after its drain: nothing lost, nothing twice, nothing without authority, nothing unsaid.

    `never`: as what no delivery of this run can have ended. `aimed_since`: from when on whoever died was made to die at
    a chosen moment, so that how often it had sent by then says nothing about any other death.
    """
    by_text: dict[str, list[Row]] = defaultdict(list)
    left: dict[str, list[Sent]] = defaultdict(list)
    for row in rows:
        by_text[row.text].append(row)
    for sent in journal:
        left[sent.text].append(sent)
    broken = [
        *_admitted_twice(by_text),
        *(told for one in acknowledgements for told in _kept(one, by_text.get(one.text, ()))),
        *(told for row in rows for told in _settled(row)),
        *(told for row in rows for told in _in_its_parts(row, left.get(row.text, ()))),
        *(told for row in rows for told in _as_it_left(row, left.get(row.text, ()))),
        *_accounted_for(journal, by_text),
        *(
            f"ended {row.delivery} ({_why(row)}): {row.text}"
            for row in rows
            # Where its rule has gone, a message is asked about, and not after the owner said no three times.
            if row.delivery in never and _why(row) != "cooled_down"
        ),
    ]
    once = tuple(dict.fromkeys(broken))
    return Verdict(once, {**_figures(acknowledgements, rows, left, aimed_since), **by_promise(once)})


def by_promise(broken: Iterable[str]) -> dict[str, int]:
    """How often each promise was broken, by the first whose words it has."""
    counted = Counter(next(name for name, words in PROMISES.items() if words.search(told)) for told in broken)
    return {name: counted[name] for name in PROMISES}


def _admitted_twice(by_text: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    for text, rows in by_text.items():
        if len(rows) > 1:
            yield f"admitted {len(rows)} times: {text}"


def _kept(told: Acknowledged, rows: Sequence[Row]) -> Iterator[str]:
    """What was answered is written, and what was final has stayed so."""
    if told.status == "error" and told.notification_id is None and told.retryable:
        return  # it was said that nothing was taken
    if not rows or (told.notification_id is not None and told.notification_id != rows[0].notification_id):
        yield f"acknowledged as {told.status} and lost: {told.text}"
        return
    row = rows[0]
    by_word = row.vouched > 0 and told.provider_id == OWNERS_WORD
    if told.status == "ok" and (row.status != "ok" or not (by_word or told.provider_id in row.receipts)):
        yield f"was ok with receipt {told.provider_id}, now {row.status} with {row.receipts}: {told.text}"
    # A refusal that comes late ends the doubt as well as a receipt does.
    if told.status == "uncertain" and row.status not in {"uncertain", "ok"} and row.doubted and not row.said_so:
        yield f"was uncertain, now {row.status}: {told.text}"
    # What is proved not sent, or ran out of time, opens again when its caller asks again.
    reopens = told.error_class in {"provider_rejected", "timeout"}
    if told.status == "error" and not reopens and row.status != "error":
        yield f"was an error ({told.error_class}), now {row.status}: {told.text}"


def _settled(row: Row) -> Iterator[str]:
    """Nothing is left under way, and answer and delivery say the same."""
    if row.status in OPEN_ANSWERS or row.delivery in OPEN_DELIVERIES or row.open_action:
        yield f"left open as {row.status} with a delivery {row.delivery}: {row.text}"
    elif row.delivery is None and row.status != "error":
        yield f"{row.status} without a delivery: {row.text}"
    elif row.delivery is not None and row.status != SAYS.get(row.delivery):
        yield f"the answer says {row.status}, the delivery is {row.delivery}: {row.text}"
    if row.delivery == "abandoned" and not row.left:
        yield f"left at that, and the owner did not say so: {row.text}"
    if row.delivery == "sent" and not (row.receipts and all(row.receipts)):
        yield f"sent without a receipt: {row.text}"


def _in_its_parts(row: Row, sent: Sequence[Sent]) -> Iterator[str]:
    """Each part left once, one after the other, and all of them where the answer is ok."""
    most = (1 if row.third_party else MOST_TO_THE_OWNER) + row.again
    for part in range(1, row.parts + 1):
        again = [one for one in sent if one.part == part]
        unlabelled = [one for one in again if not one.repeat]
        if len(again) > most or (len(unlabelled) > 1 and not row.third_party):
            yield f"sent {len(again)} times to {'a third party' if row.third_party else 'the owner'}: {row.text}"
    if row.third_party and row.unasked:
        yield f"tried again with a third party after what may have arrived: {row.text}"
    order = [one.part for one in sent]
    if order != sorted(order) or max(order, default=0) > row.parts:
        yield f"sent as part {order} of {row.parts}: {row.text}"
    owed = {n for n in range(1, row.parts + 1) if row.receipts[n - 1 : n] != (OWNERS_WORD,)}
    if row.status == "ok" and sent and not owed <= {*order}:
        yield f"ok with {len({*order})} of {row.parts} parts: {row.text}"
    if row.delivery in NOT_SENT and sent and row.retryable and len({*order}) < row.parts:
        yield f"{row.delivery} and worth saying again, yet a part arrived: {row.text}"


def _as_it_left(row: Row, sent: Sequence[Sent]) -> Iterator[str]:
    """What the journal holds of a message is what its row says."""
    by_word = row.receipts.count(OWNERS_WORD)
    given = {one.provider_id for one in sent} | ({OWNERS_WORD} if by_word <= row.vouched else set())
    if row.status == "ok" and not set(row.receipts) <= given:
        yield f"ok with a receipt {row.receipts} nobody gave: {row.text}"
    if row.delivery in NOT_SENT and len({one.part for one in sent}) == row.parts and not row.said_so:
        yield f"{row.delivery}, yet it arrived: {row.text}"
    if sent and row.third_party and not row.authority:
        yield f"sent to a third party without authority: {row.text}"
    if any(one.to != row.address for one in sent):
        yield f"sent to {sorted({one.to for one in sent})} instead of {row.address}: {row.text}"


def _accounted_for(journal: Iterable[Sent], by_text: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    for sent in journal:
        if not sent.asking and sent.text not in by_text:
            yield f"sent to {sent.to} without a notification: {sent.text}"


def _why(row: Row) -> str:
    return row.reason or "unknown"


def _figures(
    acknowledgements: Sequence[Acknowledged],
    rows: Sequence[Row],
    left: Mapping[str, Sequence[Sent]],
    aimed_since: float,
) -> dict[str, int]:
    answers = Counter(one.status for one in acknowledgements)
    ends = Counter(row.status for row in rows)
    deliveries = Counter(row.delivery or "none" for row in rows)
    uncertain = [row for row in rows if row.status == "uncertain"]
    # Of what was sent again the journal does not tell which time arrived.
    silent = [row for row in uncertain if row.reason == "lease_lost" and not row.again]
    unaimed = [row for row in silent if row.marked_at is not None and row.marked_at < aimed_since]
    return {
        "messages": len(rows),
        "third_party": sum(row.third_party for row in rows),
        "acknowledged": len(acknowledgements),
        **{f"answered_{status}": count for status, count in sorted(answers.items())},
        **{f"ended_{status}": count for status, count in sorted(ends.items())},
        **{f"deliveries_{status}": count for status, count in sorted(deliveries.items())},
        "uncertain": len(uncertain),
        "uncertain_third_party": sum(row.third_party for row in uncertain),
        "uncertain_that_arrived": sum(bool(left.get(row.text)) for row in uncertain),
        **{
            f"uncertain_by_{reason}": count for reason, count in sorted(Counter(_why(row) for row in uncertain).items())
        },
        "sent_again": sum(row.again for row in rows),
        "vouched": sum(row.vouched for row in rows),
        "lost_leases": len(silent),
        "lost_leases_unsent": sum(not left.get(row.text) for row in silent),
        "lost_leases_unaimed": len(unaimed),
        "lost_leases_unaimed_unsent": sum(not left.get(row.text) for row in unaimed),
    }
