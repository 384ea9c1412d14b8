"""The kernel's types: actions, facts, findings and decisions, and the states of a delivery. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

Status = Literal[
    "queued", "claimed", "sending", "sent", "failed", "uncertain", "parked",
    "refused", "cancelled", "expired", "dead", "abandoned", "bounced",
]  # fmt: skip
PartStatus = Literal["queued", "sending", "sent", "failed", "uncertain"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
_WAYS: Final[Mapping[Status, tuple[Status, ...]]] = {
    "queued": ("claimed", "sent", "uncertain", "cancelled", "expired", "dead"),
    "claimed": ("sending", "sent", "uncertain", "queued", "parked", "refused", "cancelled", "expired", "failed"),
    "sending": ("sent", "failed", "uncertain", "queued", "parked", "refused", "cancelled", "expired"),
    "uncertain": ("sent", "queued", "failed", "abandoned"),
    "parked": ("queued", "sent", "cancelled", "expired"),
    "failed": ("parked", "queued"),
    "expired": ("parked",),
    "cancelled": ("parked",),
    "dead": ("parked",),
    "abandoned": ("sent",),
    "sent": ("bounced",),
}
# Every legal change of a delivery's status, as (from, to).
LEGAL: Final[frozenset[tuple[Status, Status]]] = frozenset((old, new) for old, ways in _WAYS.items() for new in ways)
Verdict = Literal["allow", "park", "deny"]
# Whether a call of a tool runs at once, when a standing rule or the owner lets it, or when the owner says yes to it.
Gate = Literal["free", "rules", "ask"]
Risk = Literal["low", "high"]
# Whose words a notice holds, and how urgent it is.
Trust = Literal["owner", "internal", "external"]
Priority = Literal["critical", "high", "normal", "low"]


@dataclass(frozen=True, slots=True)
class Action:
    """What would happen: this content, from this butler, to this address, in this realm."""

    origin: str
    admitted_by: str
    intent: str
    channel: str
    address: str
    contact_id: str | None
    is_owner: bool
    deliverable: bool
    realm: str
    content_sha: str
    length: int  # of the message with its subject
    tool_name: str = "notify"
    # Whether it was asked in a thread that no message that reached its butler proves.
    unproved: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A standing rule as of now: active and unexpired by the database's clock, with its uses counted."""

    id: str
    effect: Literal["allow", "deny"]
    constraints: Mapping[str, object]
    origin_butler: str | None = None
    max_uses: int | None = None
    used: int = 0
    max_per_day: int | None = None
    used_today: int = 0
    bounded: bool = False
    created: float = 0.0
    realm: str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """The owner's yes to one revision: these bytes, to this address."""

    action_id: str
    content_sha: str
    wire_shas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Brake:
    """The owner's "stop, for now", as far as it is on now; a field that is None narrows nothing.

    `until` is seconds since 1970.
    """

    butler: str | None = None
    contact_id: str | None = None
    channel: str | None = None
    owner_too: bool = False
    until: float | None = None
    # `restored`: the house put it on by itself.
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CallAction:
    """What would happen: this tool of this butler called with these arguments, as the tool declares itself now."""

    origin: str
    tool_name: str
    gate: Gate
    risk: Risk
    arguments: Mapping[str, object]
    content_sha: str


@dataclass(frozen=True, slots=True)
class CallFacts:
    """Everything a decision about a tool call may lean on, read in one statement's view of the database."""

    rules: tuple[Rule, ...] = ()
    approval: Approval | None = None
    brakes: tuple[Brake, ...] = ()
    # When a backup was put back (seconds since 1970), as long as its brake stands.
    restored: float | None = None
    # Until when, as seconds since 1970, nothing is asked of the owner about this tool.
    cools_until: float | None = None
    # Whether the same call may have run before, and nobody knows.
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the decision may lean on, read in one statement's view of the database."""

    realm: str
    rules: tuple[Rule, ...] = ()
    approval: Approval | None = None
    in_time: bool = True
    brakes: tuple[Brake, ...] = ()
    # When a backup was put back (seconds since 1970), for what was asked before the owner had looked for a day.
    restored: float | None = None
    # Whether the owner put other words in its place.
    changed: bool = False
    # Whether the channel is the sandbox while another is live, so that nobody is reached; judging does not lean on it.
    is_played: bool = False
    # The reference of another message of this request to this address that is in flight, or may have arrived.
    similar: str | None = None
    # Until when, as seconds since 1970, nothing is asked of the owner there.
    cools_until: float | None = None
    # The From address configured now; rendering needs it, judging does not.
    sender: str = ""
    # Whether its own butler has withdrawn it, which the marker heeds; judging does not lean on it.
    wanted_back: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason of a decision, as a code and as a sentence for the card and for `why`."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict, its reasons, and the authority it rests on."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    rule_id: str | None = None
    approval_id: str | None = None

    @property
    def text(self) -> str:
        """The reasons in one line."""
        return " ".join(finding.text for finding in self.findings)
