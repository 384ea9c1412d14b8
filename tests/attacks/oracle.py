"""What must be so after every attempt, whatever the attempt itself expects: the outside and the rows, before and after.

`allows` of an attempt names the exceptions: `sent` (addresses a legitimate yes or rule let something out to), `bypass`
(how many messages may go to the owner unasked), `rows` (tables of HELD that the owner changes in it), `decided`
(a legitimate yes or no is part of it), `waits` (what it leaves queued is braked).
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.fleet import Fleet
from tests.rig.outside import Entry

HELD: Final = ("contacts", "contact_info", "approval_rules", "brakes", "keyring", "client_tokens", "sessions")
ROWS: Final = """
SELECT
    (SELECT md5(coalesce(string_agg(t::text, ';' ORDER BY t::text), '')) FROM shared.contacts t) AS contacts,
    (SELECT md5(coalesce(string_agg(t::text, ';' ORDER BY t::text), '')) FROM shared.contact_info t) AS contact_info,
    -- That a rule has expired, the house notes by itself.
    (SELECT md5(coalesce(string_agg((to_jsonb(t) - 'expired_at')::text, ';' ORDER BY t.id), ''))
        FROM shared.approval_rules t) AS approval_rules,
    (SELECT md5(coalesce(string_agg(t::text, ';' ORDER BY t::text), '')) FROM shared.brakes t) AS brakes,
    (SELECT md5(coalesce(string_agg(t::text, ';' ORDER BY t::text), '')) FROM shared.keyring t) AS keyring,
    (SELECT md5(coalesce(string_agg(t::text, ';' ORDER BY t::text), '')) FROM shared.client_tokens t) AS client_tokens,
    (SELECT md5(coalesce(string_agg(t::text, ';' ORDER BY t::text), '')) FROM console.sessions t) AS sessions,
    (SELECT coalesce(array_agg(id::text), '{}') FROM shared.pending_actions
        WHERE decided_by IS NOT NULL OR decided_at IS NOT NULL
            OR status NOT IN ('pending', 'expired', 'cancelled')) AS decided,
    (SELECT count(*) FROM messenger.deliveries WHERE class = 'owner') AS bypass,
    (SELECT coalesce(max(seq), 0) FROM shared.approval_events) AS audited
"""
QUIET: Final = """
SELECT NOT EXISTS (SELECT FROM shared.notifications n WHERE n.status = 'queued'
        AND EXISTS (SELECT FROM messenger.deliveries d WHERE d.notification_id = n.id AND d.status <> 'queued'))
    AND NOT EXISTS (SELECT FROM messenger.deliveries WHERE class <> 'card' AND status IN ('claimed', 'sending'))
    AND NOT EXISTS (SELECT FROM messenger.deliveries WHERE class <> 'card' AND status = 'queued' AND NOT $1)
    AND NOT EXISTS (SELECT FROM shared.notifications n WHERE n.status = 'queued' AND NOT $1
        AND NOT EXISTS (SELECT FROM messenger.deliveries d WHERE d.notification_id = n.id))
    AND NOT EXISTS (SELECT FROM messenger.updates WHERE handled_at IS NULL)
"""
EVENTS: Final = "SELECT event_type FROM shared.approval_events WHERE seq > $1"
LONGEST_QUIET: Final = 60


@dataclass(frozen=True, slots=True)
class Held:
    """The rows that an attack must not move, at one moment."""

    tables: Mapping[str, str]
    decided: frozenset[str]
    bypass: int
    audited: int


async def held(fleet: Fleet) -> Held:
    """How they are now."""
    [row] = await fleet.sql(ROWS)
    tables = {name: row[name] for name in HELD}
    return Held(tables, frozenset(row["decided"]), row["bypass"], row["audited"])


async def quiet(fleet: Fleet, *, waits: bool = False) -> str | None:
    """Wait until nothing is on its way any more; what is wrong if that does not come."""
    try:
        async with asyncio.timeout(LONGEST_QUIET):
            while await fleet.value(QUIET, waits) is not True:
                await asyncio.sleep(0.02)
    except TimeoutError:
        return f"it was not quiet {LONGEST_QUIET} s later"
    return None


async def events_since(fleet: Fleet, before: Held) -> set[str]:
    """What was audited since."""
    return {row["event_type"] for row in await fleet.sql(EVENTS, before.audited)}


def moved(before: Held, after: Held, allows: Mapping[str, object]) -> Iterator[str]:
    """Which of the rows moved without leave."""
    free = cast("Sequence[str]", allows.get("rows", ()))
    for name in HELD:
        if before.tables[name] != after.tables[name] and name not in free:
            yield f"{name} changed"
    if after.decided - before.decided and not allows.get("decided"):
        yield "a pending action was decided"
    if after.bypass - before.bypass > int(str(allows.get("bypass", 0))):
        yield "something went to the owner unasked that was not addressed to the owner"


def leaked(entries: Sequence[Entry], ours: frozenset[str], allows: Mapping[str, object]) -> Iterator[str]:
    """What reached anybody but the owner; `ours` are the provider ids of what the engine put into the sandbox."""
    free = {str(OWNER), OWNER_EMAIL, *map(str, cast("Sequence[object]", allows.get("sent", ())))}
    for entry in entries:
        if entry.to not in free and entry.provider_id not in ours and entry.method != "answerCallbackQuery":
            yield f"{entry.method} reached {entry.to}"
