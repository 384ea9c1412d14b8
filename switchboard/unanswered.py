"""What an unanswered notification means: its target is away or late, and the message is kept all the same."""

from butlers.butler import Context
from butlers.outcomes import rows_say
from shared import answers
from shared.contracts import NotifyEnvelope, NotifyResponse


async def as_it_stands(context: Context, envelope: NotifyEnvelope, *, again: bool) -> NotifyResponse | None:
    """Return how a notification stands as its rows have it, or None where nothing can be said.

    What is admitted is kept as `queued` if the rows cannot be read; of a request made again that is not known.
    """
    notification_id = str(envelope.notification_id)
    found = await rows_say(context.db, notification_id, envelope.origin_butler)
    if found is None and again:
        return None
    return found or answers.queued(notification_id)
