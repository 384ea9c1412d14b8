"""The brake: the owner's "stop, for now", for everything or for one butler, contact or channel."""

from migrations.raw import execute

revision = "0005"
down_revision = "0004"

BRAKES = """
CREATE TABLE shared.brakes (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    butler text,
    contact_id uuid REFERENCES shared.contacts ON DELETE CASCADE,
    channel text CHECK (channel IN ('telegram', 'email')),
    owner_too boolean NOT NULL DEFAULT false,
    until timestamptz,
    made_by uuid,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lifted_at timestamptz
);
CREATE INDEX brakes_on ON shared.brakes (made_at) WHERE lifted_at IS NULL;
CREATE TRIGGER authority_moves BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON shared.brakes
    FOR EACH STATEMENT EXECUTE FUNCTION shared.move_authority();
GRANT SELECT ON shared.brakes TO butlers_group_butler, butlers_group_switchboard, butlers_group_messenger,
    butlers_group_console, butlers_group_owner;
GRANT INSERT, UPDATE ON shared.brakes TO butlers_group_console, butlers_group_owner;
"""


def upgrade() -> None:
    """Create `shared.brakes`."""
    execute(BRAKES)
