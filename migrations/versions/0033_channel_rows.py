"""A channel is a row: what names one refers to it, and no list of channels stands in a check."""

from migrations.raw import execute

revision = "0033"
down_revision = "0032"

ROWS = """
INSERT INTO shared.channels (channel) VALUES ('telegram'), ('email') ON CONFLICT DO NOTHING;
ALTER TABLE shared.channels DROP CONSTRAINT channels_channel_check;
ALTER TABLE shared.contacts DROP CONSTRAINT contacts_preferred_channel_check,
    ADD FOREIGN KEY (preferred_channel) REFERENCES shared.channels;
ALTER TABLE shared.brakes DROP CONSTRAINT brakes_channel_check,
    ADD FOREIGN KEY (channel) REFERENCES shared.channels;
"""


def upgrade() -> None:
    """Let `shared.contacts` and `shared.brakes` refer to `shared.channels`."""
    execute(ROWS)
