"""What others wrote into rows, as the owner's lists show it: whatever it is, it hides nothing beside it."""

from collections.abc import Mapping

from shared.db.pool import Record
from shared.storage import notifications


def message(row: Mapping[str, object] | Record) -> Mapping[str, object] | None:
    """The fields of what goes out by a notification; None where they hold no words."""
    return _with_words(notifications.delivery_of(row))


def question(row: Mapping[str, object] | Record) -> Mapping[str, object] | None:
    """The same of a pending action, which may be about no notification and then has its arguments only."""
    return message(row) if row["notification_id"] is not None else _with_words(row["tool_args"])


def unreadable(row_id: str) -> str:
    """What stands in the place of words that cannot be read, with the id by which to find them."""
    return f"What was asked cannot be read ({row_id})."


def shown(found: Mapping[str, object] | None, row_id: str) -> Mapping[str, object]:
    """The fields as a list shows them."""
    return {"message": unreadable(row_id)} if found is None else found


def _with_words(fields: object) -> Mapping[str, object] | None:
    if not isinstance(fields, Mapping):
        return None
    words = fields.get("message"), fields.get("emoji")
    return fields if any(isinstance(one, str) for one in words) else None
