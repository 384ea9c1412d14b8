"""A press, or what may be a command, is found among thousands of waiting updates without reading them all."""

from migrations.raw import execute

revision = "0062"
down_revision = "0061"

WORDS = """
CREATE INDEX updates_words ON messenger.updates (bot, update_id)
    WHERE handled_at IS NULL AND (body ? 'callback_query' OR left(ltrim(body #>> '{message,text}', E' \\n'), 1) = '/');
"""


def upgrade() -> None:
    """Index the updates that may be words of the owner's."""
    execute(WORDS)
