"""The open questions of each butler in the order in which they are shown, and the cards of questions."""

from migrations.raw import execute

revision = "0069"
down_revision = "0068"

# However many questions of one butler wait, the next ones of each are found by these.
INDEXES = """
CREATE INDEX questions_in_turn ON shared.questions (origin_butler, show_at, id) WHERE status = 'open';
CREATE INDEX cards_of_questions ON messenger.deliveries (about) WHERE card_kind = 'question';
"""


def upgrade() -> None:
    """Make the two indexes."""
    execute(INDEXES)
