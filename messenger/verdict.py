"""The verdict of the last look before the byte: it may leave, with these wires, or goes elsewhere instead. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

from shared.channels.base import Wire
from shared.db.pool import Record
from shared.model import Action, Decision, Finding

NO_IDENTIFIER: Final = Finding("no_identifier", "There is no address on file now.")


@dataclass(frozen=True, slots=True)
class Authorized:
    """The delivery may leave: these wires, on this authority."""

    wires: tuple[Wire, ...]
    decision: Decision
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """The delivery may not leave now; where it goes instead, and why."""

    to: Literal["parked", "refused", "expired", "cancelled", "moved", "delayed", "late"]
    findings: tuple[Finding, ...]
    row: Record | None = None
    content_sha: str | None = None
    # Its address by now, and its kind, `owner` or `third_party`; empty where that has not changed or cannot.
    address: str = ""
    kind: str = ""
    # Of a card: the realm of the owner's channel by now.
    realm: str = ""
    missing: bool = False
    # Until when it is delayed, in seconds since 1970; None where nobody knows.
    until: float | None = None

    @property
    def text(self) -> str:
        """The reasons in one line."""
        return " ".join(finding.text for finding in self.findings)
