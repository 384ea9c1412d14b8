"""Sessions that wait for their runtime keep their prompt and what caused them."""

from migrations.raw import execute

revision = "0044"
down_revision = "0043"

PROMPTS = """
ALTER TABLE shared.sessions
    ADD cause text CHECK (length(cause) <= 200),
    ADD prompt text CHECK (length(prompt) <= 100000),
    ADD occurrence_id uuid;
GRANT INSERT (cause, prompt, occurrence_id) ON shared.sessions TO butlers_group_butler;
"""


def upgrade() -> None:
    """Add what a session is begun with."""
    execute(PROMPTS)
