"""The card that tells the owner of a gated tool that failed, or did not run in time."""

import json
from typing import Final

from butlers.butler import Context
from messenger.cards import base
from messenger.cards.base import CardKind
from messenger.storage.deliveries import Claimed
from messenger.storage.kinds import tool_call_cards
from messenger.verdict import Authorized, Blocked
from shared.db.pool import Connection, Record
from shared.display.approval import titled
from shared.display.owner import Sheet
from shared.display.quotes import Quote
from shared.display.tool_call import named_values
from shared.display.visible import in_line, shortened
from shared.model import Decision, Finding
from shared.storage import tool_calls

SAID: Final = {
    "failed": "failed",
    "uncertain": "may or may not have run: the process that ran it stopped responding",
    "expired": "was approved, and did not run in time",
}
AGAIN_LATE: Final = "may have run before, and did not run again in time"
# No process here began it.
RESTORED: Final = "may or may not have run: it waited in the backup that was restored"
LONGEST_ERROR: Final = 1_000
NOTHING_BY_ITSELF: Final = "It will not be run again unless it is asked for again."


def words(call: Record) -> tuple[str, Sheet]:
    """Return title and text of what the owner is told: every word of others is shown as data."""
    by_attempt = {("uncertain", False): RESTORED, ("expired", True): AGAIN_LATE}
    how = by_attempt.get((call["status"], call["attempt"] > 0), SAID[call["status"]])
    title = f"{titled(call['origin_butler'])}'s {in_line(call['tool_name'])} {how}."
    error = json.loads(call["result"] or "{}").get("error")
    why = (Quote(shortened(str(error), LONGEST_ERROR), "It said"),) if error and call["status"] == "failed" else ()
    quotes = (Quote(call["says"], "What it would do"), Quote(named_values(call["arguments"]), "With"), *why)
    return title, Sheet(f"{title}\n{NOTHING_BY_ITSELF}", quotes)


async def authorize(connection: Connection, claimed: Claimed, context: Context) -> Authorized | Blocked:
    """Return the wires of the notice about a call that did not end well."""
    call = await tool_calls.one(connection, str(claimed.action_id))
    if call is None or call["status"] not in SAID or call["status"] == "uncertain":
        return Blocked("cancelled", (Finding("over", "It has ended otherwise."),))
    stopped = await base.elsewhere(connection, claimed, call["realm"], context)
    if stopped is not None:
        return stopped
    title, shown = words(call)
    where = base.link(context, "approvals", call["id"])
    seen = Sheet(shown.head, shown.quotes, "\n".join([f"See {where}", *base.near(where)]), (where,))
    wires = await base.told(connection, claimed, title, seen)
    return Authorized(wires, Decision("allow", (Finding("call_ended", title),)))


KIND: Final = CardKind("call_ended", authorize, tool_call_cards.ask_ended)
