"""The long campaign's figures as docs/delivery.md shows them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.long.state import FIGURES, ROOT, Figures, counts, hits
from tests.rig.failpoints import FAILPOINTS

DOCUMENT: Final = ROOT / "docs" / "delivery.md"
BEGIN: Final = "<!-- long campaign: begin -->\n"
END: Final = "<!-- long campaign: end -->\n"
NOT_YET: Final = "A long campaign of this tree has not been recorded yet.\n"
ROW: Final = re.compile(r"^\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
CAMPAIGNS: Final = "campaigns, of these broken"
PLAIN: Final = {
    "SIGKILLs": "kills",
    "of these at a named moment": "kills_at_failpoints",
    "restarts of PostgreSQL": "restarts",
    "answered calls of `notify`": "calls",
    "calls given up after 30 s of no answer": "gave_up",
    "turned away with 503 where PostgreSQL was away, and asked again": "turned_away",
    "answers judged, withdrawals and routed envelopes among them": "acknowledged",
    "messages": "messages",
    "acknowledged and lost": "lost",
    "sent twice to a third party, or unsaid to the owner": "twice",
    "sent without authority at the marker": "without_authority",
    "`sent` without a receipt": "without_receipt",
    "any other untrue answer": "untrue",
    "ended `uncertain`": "uncertain",
    "of these because their holder fell silent": "lost_leases",
    "of these it had not arrived (false alarms)": "lost_leases_unsent",
}
BLOWS: Final = {
    "after_kill": "a SIGKILL",
    "after_restart": "a restart of PostgreSQL",
    "undisturbed": "a blow that none followed before it",
}


def section(text: str) -> str:
    """What stands between the two marks of a document; ValueError where they are not there."""
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def rows(text: str) -> dict[str, str]:
    """A table's rows by their first column."""
    return dict(ROW.findall(text))


def table(whole: Figures) -> str:
    """Every figure of the sum that says something about a promise, a line each."""
    lines = {CAMPAIGNS: f"{whole['parts']}, {whole['broken_parts']}"}
    lines |= {words: f"{int(str(whole[name])):,}" for words, name in PLAIN.items()}
    lines["false alarms among these"] = _share(whole, "lost_leases")
    lines["false alarms among those before all deaths were aimed"] = _share(whole, "lost_leases_unaimed")
    lines |= {
        f"killed with `{state}` in hand": f"{count:,}"
        for state, count in counts(whole, "in_hand_of_the_dead").items()
        if not state.startswith("nothing")
    }
    lines |= {f"the owner {said}": f"{count:,}" for said, count in counts(whole, "owner_said").items()}
    for blow, words in BLOWS.items():
        lines[f"from {words} to the next receipt: median, 99 %, most"] = _spread(whole[f"recovery_{blow}"])
    reached = hits(whole, [one.name for one in FAILPOINTS])
    least = min(reached, key=lambda name: reached[name])
    lines["named moments, and the least often reached"] = f"{len(reached)}, `{least}` {reached[least]} times"
    minutes = sum(float(str(whole[f"seconds_of_{what}"])) for what in ("blows", "mopping", "drain")) / 60
    lines["minutes, drains included"] = f"{minutes:.0f}"
    told = "\n".join(f"| {words} | {figure} |" for words, figure in lines.items())
    return f"Measured on the content `{whole['product']}`.\n\n| what | how often |\n| --- | --- |\n{told}\n"


def _share(whole: Figures, silent: str) -> str:
    false, all_ = int(str(whole[f"{silent}_unsent"])), int(str(whole[silent]))
    return f"{100 * false / all_:.1f} % of {all_:,}" if all_ else "none"


def _spread(times: object) -> str:
    if not isinstance(times, Mapping) or not times:
        return "none"
    return ", ".join(f"{times[name]:.1f} s" for name in ("median", "p99", "most"))


def record(figures: Path = FIGURES, document: Path = DOCUMENT) -> str:
    """Write the table of these figures into the document; the table."""
    told = table(json.loads(figures.read_text()))
    text = document.read_text(encoding="utf-8")
    document.write_text(text.replace(section(text), told), encoding="utf-8")
    return told
