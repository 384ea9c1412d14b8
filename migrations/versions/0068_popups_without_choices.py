"""A popup offers nothing but OK: its window shows no choices, and Enter alone is the first."""

from migrations.raw import execute

revision = "0068"
down_revision = "0067"

# What its butler's process wrote otherwise stands as a notification, with its choices.
PUT_RIGHT = "UPDATE shared.questions SET popup = false WHERE popup AND (options <> '{}' OR action_label <> 'OK')"
CHOICES = """
ALTER TABLE shared.questions
    ADD CONSTRAINT popups_offer_nothing CHECK (NOT popup OR (options = '{}' AND action_label = 'OK'));
"""


def upgrade() -> None:
    """Keep choices that nobody sees out of popups."""
    execute(PUT_RIGHT)
    execute(CHOICES)
