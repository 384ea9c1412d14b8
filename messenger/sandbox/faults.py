"""The faults that shall happen, by channel, stage and text: armed over the API, spent by the stand-ins. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.errors import InvalidInput

TELEGRAM_FAULTS = frozenset(
    {
        "400",
        "401",
        "403",
        "429",
        "500",
        "502",
        "500_accepted",
        "drop_before_body",
        "accept_reset",
        "accept_hang",
        "slow",
        "garbage",
    }
)
EMAIL_FAULTS = frozenset(
    {
        "4xx",
        "5xx",
        "drop",
        "accept_reset",
        "accept_hang",
        "slow",
    }
)
EMAIL_STAGES = frozenset(
    {
        "connect",
        "ehlo",
        "auth",
        "mail",
        "rcpt",
        "data",
        "text",
        "dot",
    }
)
ONLY_AT_DOT = frozenset({"accept_reset", "accept_hang"})
KEYS = frozenset({"channel", "stage", "fault", "times", "match", "value", "but"})
LARGEST_VALUE = 86_400
LONGEST_MATCH = 10_000
MOST_ARMED = 1000
DEFAULT_VALUES = {"429": 1.0, "slow": 1.0, "4xx": 451.0, "5xx": 550.0}


@dataclass(frozen=True, slots=True)
class Breakage:
    """One thing to break by a press: what a person reads, and the fault that it arms."""

    key: str
    words: str
    channel: str
    stage: str
    fault: str
    value: float | None = None

    def asked(self, times: int, spared: str) -> Mapping[str, object]:
        """Return what arms it so many times; a chat that is spared is known only once the whole call is read."""
        fault: dict[str, object] = {"channel": self.channel, "stage": self.stage, "fault": self.fault, "times": times}
        if self.value is not None:
            fault["value"] = self.value
        spares = spared and self.channel == "telegram" and self.fault != "drop_before_body"
        return {**fault, "but": spared} if spares else fault


BREAKAGES = (
    Breakage("blocked", "refuses: the person has blocked the bot (403)", "telegram", "sendMessage", "403"),
    Breakage("no_chat", "refuses: there is no such chat (400)", "telegram", "sendMessage", "400"),
    Breakage("too_many", "asks to wait ten seconds (429)", "telegram", "sendMessage", "429", 10),
    Breakage("away", "breaks the connection before anything is sent", "telegram", "sendMessage", "drop_before_body"),
    Breakage("silent", "takes the message and never answers (timeout)", "telegram", "sendMessage", "accept_hang"),
    Breakage("hung_up", "takes the message and hangs up", "telegram", "sendMessage", "accept_reset"),
    Breakage("broken", "fails inside (500)", "telegram", "sendMessage", "500"),
    Breakage("bounced", "bounces the mail: no such mailbox (550)", "email", "rcpt", "5xx"),
    Breakage("later", "asks to try again later (451)", "email", "rcpt", "4xx"),
    Breakage("unreachable", "breaks the connection before anything is sent", "email", "connect", "drop"),
    Breakage("mail_silent", "takes the mail and never answers (timeout)", "email", "dot", "accept_hang"),
    Breakage("mail_hung_up", "takes the mail and hangs up", "email", "dot", "accept_reset"),
)


@dataclass(slots=True)
class Fault:
    """One armed fault: `times` counts down where given; `match` is a part of the text, empty for any text."""

    fault_id: int
    channel: str
    stage: str
    fault: str
    value: float
    match: str
    times: int | None
    # A chat that is spared, such as the owner's with its cards; empty where none is.
    but: str = ""
    hits: int = 0

    def shape(self) -> dict[str, object]:
        """Return the fault as GET /api/faults shows it."""
        return {
            "id": self.fault_id,
            "channel": self.channel,
            "stage": self.stage,
            "fault": self.fault,
            "value": self.value,
            "match": self.match,
            "times": self.times,
            "but": self.but,
            "hits": self.hits,
        }


class FaultBoard:
    """The armed faults, oldest first."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._last_id = 0
        # Grows with every change to what is armed.
        self.changes = 0

    def arm(self, asked: Mapping[str, object], methods: frozenset[str]) -> Fault:
        """Arm the fault asked for; raise InvalidInput with one sentence about the first thing that does not fit."""
        if len(self._faults) >= MOST_ARMED:
            raise InvalidInput(f"{MOST_ARMED} faults are armed already.", "Disarm them first.")
        self._last_id += 1
        fault = _read(asked, methods, self._last_id)
        self._faults.append(fault)
        self.changes += 1
        return fault

    def clear(self) -> int:
        """Disarm all faults; return how many there were."""
        count = len(self._faults)
        self._faults.clear()
        self.changes += 1
        return count

    def armed(self) -> list[Fault]:
        """Return the faults that can still hit."""
        return list(self._faults)

    def wants_text(self, channel: str, stage: str, fault: str) -> bool:
        """Return whether the next fault of that name there can only be chosen by the text."""
        return any(f.match and f.fault == fault and _at(f, channel, stage) for f in self._faults)

    def waits(self, channel: str, stage: str) -> bool:
        """Return whether any fault is armed there."""
        return any(_at(f, channel, stage) for f in self._faults)

    def take(
        self, channel: str, stage: str, text: str, only: frozenset[str] | None = None, *, to: str = ""
    ) -> Fault | None:
        """Return the first fault that hits here, spent once; `only` limits the choice, `to` is the chat meant."""
        for fault in self._faults:
            named = (only is None or fault.fault in only) and not (fault.but and fault.but == to)
            if named and _at(fault, channel, stage) and fault.match in text:
                self._spend(fault)
                return fault
        return None

    def _spend(self, fault: Fault) -> None:
        fault.hits += 1
        self.changes += 1
        if fault.times is not None:
            fault.times -= 1
            if fault.times == 0:
                self._faults.remove(fault)


def _at(fault: Fault, channel: str, stage: str) -> bool:
    return fault.channel == channel and fault.stage in (stage, "any")


def _read(asked: Mapping[str, object], methods: frozenset[str], fault_id: int) -> Fault:
    unknown = sorted(set(asked) - KEYS)
    if unknown:
        raise InvalidInput(f"Unknown key '{unknown[0]}'.", f"Choose from: {', '.join(sorted(KEYS))}.")
    channel = _word(asked, "channel", frozenset({"telegram", "email"}))
    telegram = channel == "telegram"
    stage = _word(asked, "stage", methods | {"any"} if telegram else EMAIL_STAGES)
    fault = _word(asked, "fault", TELEGRAM_FAULTS if telegram else EMAIL_FAULTS)
    if not telegram and fault in ONLY_AT_DOT and stage != "dot":
        raise InvalidInput(f"'{fault}' happens after the final dot only.", "Use the stage 'dot'.")
    match = asked.get("match", "")
    if not isinstance(match, str) or len(match) > LONGEST_MATCH:
        raise InvalidInput("'match' is not a text, or too long.", "Give a part of the text, or leave it out.")
    times = asked.get("times", None if match else 1)
    if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 1):
        raise InvalidInput("'times' is not a whole number from 1.", "Leave it out for once.")
    but = asked.get("but", "")
    if not isinstance(but, str) or len(but) > LONGEST_MATCH:
        raise InvalidInput("'but' is not a text.", "Give the number of the chat that is spared, or leave it out.")
    return Fault(fault_id, channel, stage, fault, _value(asked, fault), match, times, but)


def _word(asked: Mapping[str, object], key: str, allowed: frozenset[str]) -> str:
    value = asked.get(key)
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInput(f"'{key}' is {value!r}.", f"Use one of {', '.join(sorted(allowed))}.")
    return value


def _value(asked: Mapping[str, object], fault: str) -> float:
    value = asked.get("value", DEFAULT_VALUES.get(fault, 0.0))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST_VALUE:
        raise InvalidInput(f"'value' is not a number from 0 to {LARGEST_VALUE}.", "It is seconds, or an SMTP code.")
    low = {"4xx": 400, "5xx": 500}.get(fault)
    if low is not None and not low <= value <= low + 99:
        raise InvalidInput(f"'value' {value} is no SMTP code of {fault}.", f"Use {low} to {low + 99}.")
    return float(value)
