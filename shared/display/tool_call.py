"""The question put to the owner before a gated tool runs: one text for card, mail, page and command line.

The tool's own sentence and the arguments are words of others, shown as quotations. Pure.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.display.approval import local, titled
from shared.display.quotes import Quote, quotation
from shared.display.visible import in_line
from shared.hashing import canonical_json, short

HIGH_RISK: Final = "High risk: no rule can allow it."
NO_ARGUMENTS: Final = "(no arguments)"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AskedCall:
    """One call as it waits: what would run, with what, and what the tool says that it does.

    `arguments` is the JSON text that runs.
    """

    origin: str
    tool_name: str
    says: str
    arguments: str
    high_risk: bool
    findings: tuple[str, ...]
    until: datetime
    content_sha: str


def call_lines(asked: AskedCall) -> list[str]:
    """Return the whole question, for mails and terminals: each row of somebody's words begins with a mark."""
    told = ["\n".join(call_head(asked)), *map(quotation, call_quotes(asked)), "\n".join(call_foot(asked))]
    return "\n\n".join(told).split("\n")


def call_head(asked: AskedCall) -> list[str]:
    """Return what stands above the words of others: who wants to run what, and its risk if that is high."""
    return [wants_to_run(asked.origin, asked.tool_name), *([HIGH_RISK] if asked.high_risk else [])]


def wants_to_run(origin: str, tool_name: str) -> str:
    """Return who wants to run what: `Garden wants to run water`."""
    return f"{titled(origin)} wants to run {in_line(tool_name)}"


def call_quotes(asked: AskedCall) -> tuple[Quote, ...]:
    """Return the words of others: what the tool says that it would do, and each argument by name."""
    return (Quote(asked.says, "What it would do"), Quote(named_values(asked.arguments), "With"))


def call_foot(asked: AskedCall) -> list[str]:
    """Return what stands right above the buttons: why it is asked, until when, and what a yes is bound to."""
    why = [f"Why: {in_line(' '.join(asked.findings))}"] if asked.findings else []
    return [*why, f"Expires {local(asked.until)}", f"Run {in_line(asked.tool_name)}, hash {short(asked.content_sha)}"]


def named_values(arguments: str) -> str:
    """Return one line for each argument, `name = value` with the value as JSON.

    What is no JSON object, or is nested deeper than can be read, is shown as the text it is.

    INVARIANT: nothing in a name or a value ends a line, so that no argument can pass for two.
    """
    try:
        found = json.loads(arguments)
        if isinstance(found, Mapping):
            lines = (f"{_name(name)} = {canonical_json(value)}" for name, value in found.items())
            return "\n".join(lines) or NO_ARGUMENTS
    except (ValueError, RecursionError):
        pass
    return json.dumps(arguments, ensure_ascii=False)


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)
