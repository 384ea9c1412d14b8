"""What is kept and how long: every column that can hold text, once, with what becomes of it and why.

Words go first; the fences, which keep a message from going out twice, go much later.
`messenger/maintenance/purger.py` carries this out, by the database's clock; docs/operations.md shows this list, and a
test compares it with the catalogue. Pure.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

WORDS: Final = timedelta(days=30)
"""What somebody wrote, counted from the end of it; of what is open or uncertain it is never taken."""

FENCES: Final = timedelta(days=400)
"""Keys, hashes, receipts and times: as long as they lie here, asking again sends nothing again."""

ROUTES: Final = timedelta(days=30)
# Telegram repeats for 24 hours, and the poller looks back six days for where it was.
UPDATES: Final = timedelta(days=7)
# A call without a lineage is the same call for five minutes.
REQUEST_WINDOWS: Final = timedelta(days=1)
STRANGERS: Final = timedelta(days=1)
TOKENS: Final = timedelta(days=30)
PAIRINGS: Final = timedelta(days=1)
FETCHED: Final = timedelta(days=1)

WIPED: Final = "[wiped]"
"""What stands in the place of words that are no longer kept."""

How = Literal["wiped", "removed", "kept"]


@dataclass(frozen=True, slots=True)
class Kept:
    """Columns of one table with one fate: `wiped` alone or `removed` with their row after a time, or `kept`."""

    table: str
    columns: str
    how: How
    # None: as the sentence says.
    after: timedelta | None
    why: str


_END: Final = "after the end"
_FENCE: Final = "it is the fence: asked again, the first answer counts"
_RECORD: Final = "it says how the message went, without its words"
_OWNERS: Final = "it is the owner's, until the owner changes it"
_AUDIT: Final = "the audit stays: house words, ids, the owner's own reasons and hashes, nothing of a message"

LIST: Final = (
    Kept("shared.contacts", "name roles preferred_channel", "kept", None, _OWNERS),
    Kept("shared.contact_info", "type value lookup", "kept", None, _OWNERS),
    Kept(
        "shared.approval_rules",
        "tool_name origin_butler effect arg_constraints description realm",
        "kept",
        None,
        _OWNERS,
    ),
    Kept("shared.brakes", "butler channel reason", "kept", None, _OWNERS),
    Kept(
        "shared.channels", "channel realm sender endpoint", "kept", None, "a row per channel, without its credentials"
    ),
    Kept("shared.keyring", "name public_key", "kept", None, "public keys, by which old seals are checked"),
    Kept("shared.client_tokens", "jti butler kind", "removed", TOKENS, "after its expiry; the token itself is nowhere"),
    Kept(
        "shared.sessions",
        "butler request_context cause prompt runtime status limits used outcome said holder untold nonce asked_by "
        "owners_words",
        "removed",
        WORDS,
        "after the session's end",
    ),
    Kept("shared.session_steps", "butler tool arguments_hash status", "removed", WORDS, "with its session"),
    Kept(
        "shared.notices",
        "butler source kind key text trust priority state shown_in",
        "removed",
        WORDS,
        "after it was added, read or not",
    ),
    Kept(
        "shared.attachments",
        "butler body",
        "removed",
        FETCHED,
        "after it was fetched, or with the tenth file after it; its channel keeps it",
    ),
    Kept(
        "shared.schedules",
        "butler name source cron zone prompt tool arguments catch_up",
        "removed",
        WORDS,
        "after its last time, if the butler made it; the file's follow the file",
    ),
    Kept("shared.occurrences", "butler status claimed_by outcome", "removed", WORDS, "after its end"),
    Kept("shared.state", "butler key value", "kept", None, "it is what the butler remembers, until it deletes it"),
    Kept("switchboard.default_butler", "butler", "kept", None, "the name of a butler, as the owner's files say"),
    Kept(
        "switchboard.classifier", "butler descriptions", "kept", None, "what butlers are for, as the owner's files say"
    ),
    Kept("shared.popups", "butler", "kept", None, "names of butlers, as the owner's files say"),
    Kept("switchboard.calls", "butler target", "kept", None, "names of butlers, as the owner's files say"),
    Kept(
        "shared.notifications",
        "envelope answer owner_text",
        "wiped",
        WORDS,
        f"{_END}; the shape, the status, the receipt and a reaction's emoji stay",
    ),
    Kept(
        "shared.notifications",
        "origin_butler admitted_by realm key lineage request_sha content_sha whom status",
        "removed",
        FENCES,
        f"{_END}; {_FENCE}",
    ),
    Kept(
        "shared.request_windows",
        "origin_butler request_sha lineage",
        "removed",
        REQUEST_WINDOWS,
        "after the first call",
    ),
    Kept(
        "shared.request_aliases",
        "origin_butler key",
        "removed",
        FENCES,
        f"with the message it became part of; {_FENCE}",
    ),
    Kept("shared.tool_calls", "arguments says result", "wiped", WORDS, _END),
    Kept("shared.tool_calls", "origin_butler tool_name risk holder", "removed", FENCES, _END),
    Kept("shared.pending_actions", "tool_args agent_summary", "wiped", WORDS, f"{_END}; channel and intent stay"),
    Kept(
        "shared.pending_actions",
        "origin_butler tool_name content_sha wire_shas status session_id decision_reason execution_result",
        "removed",
        FENCES,
        f"{_END}; what belongs to no message, after it was asked and answered; {_RECORD}",
    ),
    Kept("shared.withdrawals", "origin_butler outcome", "removed", FENCES, "with its message"),
    Kept("shared.resolutions", "word surface outcome", "removed", FENCES, "with its message"),
    Kept(
        "shared.questions",
        "origin_butler title question options action_label urgency about status choice surface",
        "removed",
        WORDS,
        f"{_END}, with its cards",
    ),
    Kept("shared.approval_events", "event_type actor reason detail", "kept", None, _AUDIT),
    Kept("shared.audit_seals", "digests prev hash signature", "kept", None, "hashes and signatures of the audit"),
    Kept(
        "messenger.deliveries",
        "class channel address realm status reason card_kind claimed_by origin_butler lineage content_sha",
        "removed",
        FENCES,
        f"{_END}, with its message; a card about no message after {WORDS.days} days; {_FENCE}",
    ),
    Kept("messenger.parts", "wire_sha status provider_id", "removed", FENCES, "with its message; hashes and receipts"),
    Kept("messenger.parts", "shown", "wiped", WORDS, f"{_END}; what a card in Telegram shows"),
    Kept("messenger.attempts", "detail", "wiped", WORDS, f"{_END}; a provider's words may quote the message"),
    Kept("messenger.attempts", "outcome", "removed", FENCES, "with its message"),
    Kept("messenger.digests", "origin_butler shown", "removed", FENCES, "with its questions; ids and a name"),
    Kept("messenger.updates", "bot body outcome", "removed", UPDATES, "after it was handled"),
    Kept(
        "messenger.strangers",
        "channel sender",
        "removed",
        STRANGERS,
        "after the first message; numbers, and who wrote them",
    ),
    Kept("messenger.pairings", "code_sha", "removed", PAIRINGS, "after its expiry; the code itself is nowhere"),
    Kept("messenger.pollers", "bot holder", "kept", None, "one row per bot: its number and who polls it"),
    Kept("messenger.mailboxes", "account holder", "kept", None, "one row per mailbox, without its password"),
    Kept("messenger.rate_limits", "key", "removed", None, "as soon as its bucket is full again"),
    Kept("messenger.circuit_breakers", "channel reason detail", "removed", None, "when the channel works again"),
    Kept(
        "switchboard.routes",
        "request_id origin_butler target_butler tool status error_class",
        "removed",
        ROUTES,
        "after the call; it never holds words",
    ),
    Kept("switchboard.inbox", "text request_context display_name attachments quoted", "wiped", WORDS, "after it came"),
    Kept(
        "switchboard.inbox",
        "channel endpoint_identity external_event_id thread sender kind reply_to conversation route_holder routed_to "
        "routed_because stranger",
        "removed",
        FENCES,
        "after it came; it proves the thread and keeps it from being taken twice",
    ),
    Kept("switchboard.routing_rules", "butler channel sender words", "kept", None, _OWNERS),
    Kept(
        "switchboard.butlers",
        "name url kind tools status",
        "removed",
        None,
        "a day after it left, or once it is removed",
    ),
    Kept("console.sign_in_links", "code_sha purpose", "removed", None, "within seconds of its expiry"),
    Kept("console.sessions", "id_sha", "removed", None, "at the first sign-in after its expiry"),
    Kept("public.schema_version", "version_num", "kept", None, "the number of the schema"),
)


def columns() -> list[str]:
    """Return every column of the list as schema.table.column; one that is in it twice is returned twice."""
    return [f"{kept.table}.{column}" for kept in LIST for column in kept.columns.split()]


def as_table() -> str:
    """Return the list as the table of docs/operations.md."""
    rows = ["| table | columns | become | after | |", "| --- | --- | --- | --- | --- |"]
    for kept in LIST:
        days = 0 if kept.after is None else kept.after.days
        when = f" {days} days" if days > 1 else " a day" if days else ""
        rows.append(f"| `{kept.table}` | {', '.join(kept.columns.split())} | {kept.how} |{when} | {kept.why} |")
    return "\n".join(rows)
