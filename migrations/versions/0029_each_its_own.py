"""Each butler's own line at an address, rules that say when they expired, and answers that say one thing."""

from migrations.raw import execute

revision = "0029"
down_revision = "0028"

LINES = """
-- Who is next of each butler at each address.
DROP INDEX messenger.deliveries_in_line;
CREATE INDEX deliveries_in_line ON messenger.deliveries
    (channel, address, coalesce(origin_butler, ''), (class <> 'card'), created_at, id) WHERE status = 'queued';
"""

RULES = """
-- A rule that allows, once it was seen past its time: it counts no more, wherever the clock is put.
ALTER TABLE shared.approval_rules ADD COLUMN expired_at timestamptz;
GRANT UPDATE (expired_at) ON shared.approval_rules TO butlers_group_messenger;
"""

ANSWERS = """
-- What a butler or the Switchboard inserts says one thing: its answer has no status and no number but the row's, and no
-- error beside another status. Restrictive, so that it holds beside whatever lets a row in.
CREATE POLICY one_answer ON shared.notifications AS RESTRICTIVE FOR INSERT
    TO butlers_group_butler, butlers_group_switchboard
    WITH CHECK (coalesce(answer ->> 'status', status) = status
        AND coalesce(answer ->> 'notification_id', id::text) = id::text
        AND (status = 'error' OR NOT answer ? 'error'));
"""


def upgrade() -> None:
    """Order the queue by butler too, let a rule be marked expired, and bound what an inserted answer says."""
    execute(LINES)
    execute(RULES)
    execute(ANSWERS)
