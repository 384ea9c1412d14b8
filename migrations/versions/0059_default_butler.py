"""The default butler is the owner's word and no heartbeat's; and nobody's notices are counted by another butler."""

from migrations.raw import execute

revision = "0059"
down_revision = "0058"

DEFAULT = """
CREATE TABLE switchboard.default_butler (butler text PRIMARY KEY CHECK (length(butler) <= 31));
GRANT SELECT ON switchboard.default_butler TO butlers_group_switchboard, butlers_group_owner;
INSERT INTO switchboard.default_butler
    SELECT name FROM switchboard.butlers WHERE is_default AND kind = 'butler' AND length(name) <= 31
    ORDER BY last_seen_at DESC LIMIT 1;
ALTER TABLE switchboard.butlers DROP COLUMN is_default;
"""

# What a butler writes for another goes to the row policies as it is, which refuse it: it counts nothing.
COUNTED = """
DROP TRIGGER bound ON shared.notices;
CREATE TRIGGER bound BEFORE INSERT ON shared.notices FOR EACH ROW
    WHEN (coalesce(shared.me(), 'owner') IN (NEW.butler, 'switchboard', 'messenger', 'console', 'owner'))
    EXECUTE FUNCTION shared.bound_notice();
"""


def upgrade() -> None:
    """Create `switchboard.default_butler` from what heartbeats said last, and count a butler's own notices alone."""
    execute(DEFAULT)
    execute(COUNTED)
