"""The cards about calls that may have run, or failed, count attempts from one: a restored call has begun none."""

from migrations.raw import execute

revision = "0097"
down_revision = "0096"

# The highest first, since no two cards about a call have the same number. That of a call which has begun no attempt has
# its own already.
ONE_MORE = """
DO $$
DECLARE n integer;
BEGIN
    FOR n IN SELECT DISTINCT revision FROM messenger.deliveries
            WHERE card_kind IN ('call_ended', 'call_uncertain') ORDER BY revision DESC LOOP
        UPDATE messenger.deliveries SET revision = n + 1
        WHERE card_kind IN ('call_ended', 'call_uncertain') AND revision = n
            AND action_id NOT IN (SELECT id FROM shared.tool_calls WHERE attempt = 0);
    END LOOP;
END $$;
"""


def upgrade() -> None:
    """Give each card about the end of a call the number that its attempt has now."""
    execute(ONE_MORE)
