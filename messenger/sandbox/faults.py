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
KEYS = frozenset({"channel", "stage", "fault", "times", "match", "value"})
LARGEST_VALUE = 86_400
DEFAULT_VALUES = {"429": 1.0, "slow": 1.0, "4xx": 451.0, "5xx": 550.0}


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
            "hits": self.hits,
        }


class FaultBoard:
    """The armed faults, oldest first."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._last_id = 0

    def arm(self, asked: Mapping[str, object], methods: frozenset[str]) -> Fault:
        """Arm the fault asked for; raise InvalidInput with one sentence about the first thing that does not fit."""
        self._last_id += 1
        fault = _read(asked, methods, self._last_id)
        self._faults.append(fault)
        return fault

    def clear(self) -> int:
        """Disarm all faults; return how many there were."""
        count = len(self._faults)
        self._faults.clear()
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

    def take(self, channel: str, stage: str, text: str, only: frozenset[str] | None = None) -> Fault | None:
        """Return the first fault that hits here, spent once; `only` limits the choice to those names."""
        for fault in self._faults:
            named = only is None or fault.fault in only
            if named and _at(fault, channel, stage) and fault.match in text:
                self._spend(fault)
                return fault
        return None

    def _spend(self, fault: Fault) -> None:
        fault.hits += 1
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
    if not isinstance(match, str):
        raise InvalidInput("'match' is not a text.", "Give a part of the text, or leave it out.")
    times = asked.get("times", None if match else 1)
    if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 1):
        raise InvalidInput("'times' is not a whole number from 1.", "Leave it out for once.")
    return Fault(fault_id, channel, stage, fault, _value(asked, fault), match, times)


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
