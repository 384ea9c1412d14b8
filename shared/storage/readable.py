"""What others wrote into rows, as the owner's lists show it: whatever a row holds, it hides no other row."""

from collections.abc import Mapping
from typing import Final

from shared.db.pool import Record
from shared.storage import notifications

# No message that can be sent is longer.
LONGEST_MESSAGE: Final = 10_000
# The words that a list shows, none longer than one that can be sent.
FIELDS: Final = "unnest(ARRAY['intent', 'channel', 'subject', 'message', 'emoji']) field"
LONGEST_FIELD: Final = f"CASE field WHEN 'message' THEN {LONGEST_MESSAGE} ELSE 500 END"
# What a list fetches of the envelope of a notification `n`, and of the arguments of a pending action `a`.
# INVARIANT: it fetches nothing else of what a butler wrote, and reads all rows however large they are.
ENVELOPE: Final = f"""jsonb_build_object('delivery', (
    SELECT jsonb_object_agg(field, left(n.envelope #>> ARRAY['delivery', field], {LONGEST_FIELD})) FROM {FIELDS}
    WHERE jsonb_typeof(n.envelope #> ARRAY['delivery', field]) = 'string'))"""
ARGUMENTS: Final = f"""(
    SELECT jsonb_object_agg(field, left(a.tool_args ->> field, {LONGEST_FIELD})) FROM {FIELDS}
    WHERE jsonb_typeof(a.tool_args -> field) = 'string')"""


def message(row: Mapping[str, object] | Record) -> Mapping[str, object] | None:
    """Return the fields of what goes out by a notification; None if they hold no words."""
    return _with_words(notifications.delivery_of(row))


def question(row: Mapping[str, object] | Record) -> Mapping[str, object] | None:
    """Return the fields of what goes out by a pending action; None if they hold no words.

    An action that is about no notification has its arguments only.
    """
    return message(row) if row["notification_id"] is not None else _with_words(row["tool_args"])


def unreadable(row_id: str) -> str:
    """Return what stands in the place of words that cannot be read, with the id by which to find them."""
    return f"What was asked cannot be read ({row_id})."


def shown(found: Mapping[str, object] | None, row_id: str) -> Mapping[str, object]:
    """Return the fields as a list shows them."""
    return {"message": unreadable(row_id)} if found is None else found


def _with_words(fields: object) -> Mapping[str, object] | None:
    if not isinstance(fields, Mapping):
        return None
    words = fields.get("message"), fields.get("emoji")
    return fields if any(isinstance(one, str) for one in words) else None
