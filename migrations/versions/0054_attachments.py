"""Files that came with messages, fetched because their butler asked for them, for a short while."""

from migrations.raw import execute

revision = "0054"
down_revision = "0052"

TABLE = """
-- In pieces, so that no statement holds a whole file in memory.
CREATE TABLE shared.attachments (
    message_id uuid NOT NULL,
    number smallint NOT NULL CHECK (number BETWEEN 1 AND 32),
    piece smallint NOT NULL CHECK (piece BETWEEN 0 AND 19),
    -- The one that the message was routed to, and that alone reads it.
    butler text NOT NULL CHECK (length(butler) <= 31),
    body bytea NOT NULL CHECK (octet_length(body) <= 1048576),
    fetched_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (message_id, number, piece)
);
CREATE INDEX attachments_by_age ON shared.attachments (fetched_at);
"""

GRANTS = """
GRANT SELECT ON shared.attachments TO butlers_group_butler;
GRANT SELECT, INSERT, DELETE ON shared.attachments TO butlers_group_messenger;
ALTER TABLE shared.attachments ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON shared.attachments FOR SELECT TO butlers_group_butler USING (butler = shared.me());
CREATE POLICY fetched ON shared.attachments TO butlers_group_messenger USING (true) WITH CHECK (true);
"""


def upgrade() -> None:
    """Create `shared.attachments`."""
    execute(TABLE)
    execute(GRANTS)
