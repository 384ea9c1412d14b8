"""What the pages of standing rules show; hidden characters in the text of others are written out. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from butlers.console.labels import count, excerpt, moment
from shared.db.pool import Record
from shared.display.fates import STATUS
from shared.display.visible import visible
from shared.gate.backtest import Past, tallied
from shared.model import Decision
from shared.storage.rules import VERDICTS, scope, tool_scope

MOST: Final = 50


@dataclass(frozen=True, slots=True)
class Standing:
    """One standing rule; `state` is active, revoked, over (its time) or used up."""

    id: str
    words: str
    allows: bool
    state: str
    used: str
    limits: str
    until: str
    made: str
    maker: str
    question: str
    # Whose it is, where that is not the bot and the mail account of now: the sandbox's, or another account's.
    account: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One message of the past, and what the rule alone would have made of it."""

    notification_id: str
    at: str
    excerpt: str
    then: str
    verdict: str
    words: str


@dataclass(frozen=True, slots=True)
class Tried:
    """When a rule ends, and what it would have done: in one sentence and by its latest messages, the newest first."""

    ends: str
    summary: str
    lines: tuple[Trial, ...]
    more: int


def standing(row: Record) -> Standing:
    """Return the row of shared/storage/rules.py as a page shows it."""
    if row["tool_name"] != "notify":
        words = tool_scope(row["effect"], row["origin_butler"], row["tool_name"], row["arg_constraints"])
    else:
        words = scope(row["effect"], row["origin_butler"], row["arg_constraints"], row["contact"])
    return Standing(
        id=row["id"],
        words=visible(words[:1].upper() + words[1:]),
        allows=row["effect"] == "allow",
        state=_state(row),
        used=f"used {count(row['used'], 'time', 'times')}" if row["used"] else "never used",
        limits=_limits(row),
        until=moment(row["expires_at"]),
        made=moment(row["created_at"]),
        maker=visible(row["maker"] or ""),
        question=row["created_from"] or "",
        account=_account(row),
    )


def _account(row: Record) -> str:
    if row["effect"] == "allow" and row["realm"] == "sandbox":
        return "sandbox"
    return "another account" if row["elsewhere"] else ""


def _state(row: Record) -> str:
    if row["revoked"]:
        return "revoked"
    if not row["active"]:
        return "expired"
    return "used up" if row["max_uses"] is not None and row["used"] >= row["max_uses"] else "active"


def _limits(row: Record) -> str:
    said = [f"{row['max_uses']} in total"] if row["max_uses"] else []
    said += [f"{row['max_per_day']} a day"] if row["max_per_day"] else []
    return f"at most {' and '.join(said)}" if said else ""


def tried(found: Sequence[tuple[Past, Decision]], ends: datetime | None) -> Tried:
    """Return what shared/storage/rules.py found as a page shows it; `found` is oldest first."""
    lines = tuple(_trial(one, decision) for one, decision in reversed(found[-MOST:]))
    until = f"Valid until {moment(ends)}." if ends else "Valid until you revoke it."
    summary = f"Matches {len(found)} of the last 1,000 messages: {tallied(found)}."
    return Tried(until, summary, lines, len(found) - len(lines))


def _trial(one: Past, decision: Decision) -> Trial:
    return Trial(
        one.notification_id,
        moment(one.at),
        excerpt(one.message),
        STATUS[one.status],
        decision.verdict,
        VERDICTS[decision.verdict],
    )
