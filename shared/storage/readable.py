"""What others wrote into rows, as the owner's lists show it: whatever a row holds, it hides no other row."""

from collections.abc import Mapping

from shared.db.pool import Record
from shared.storage import notifications


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
