"""The desk: a code signs it in at the console, once, and its token is a row as a client's is."""

from migrations.raw import execute

revision = "0051"
down_revision = "0050"

# No code for a desk signs a browser in, and no link for a browser makes a desk's token.
COLUMNS = """
ALTER TABLE console.sign_in_links ADD COLUMN purpose text NOT NULL DEFAULT 'browser'
    CHECK (purpose IN ('browser', 'desk'));
ALTER TABLE shared.client_tokens ADD COLUMN kind text NOT NULL DEFAULT 'client'
    CHECK (kind IN ('client', 'desk'));
"""

GRANTS = """
GRANT INSERT (jti, butler, expires_at, kind, notices) ON shared.client_tokens TO butlers_group_console;
"""

POLICIES = """
DROP POLICY the_owner ON shared.client_tokens;
CREATE POLICY the_owner ON shared.client_tokens TO butlers_group_owner USING (true) WITH CHECK (true);
CREATE POLICY the_console ON shared.client_tokens FOR SELECT TO butlers_group_console USING (true);
CREATE POLICY the_console_signs_in ON shared.client_tokens FOR INSERT TO butlers_group_console
    WITH CHECK (kind = 'desk' AND butler = 'console' AND NOT notices);
"""


def upgrade() -> None:
    """Let the console sign in a desk."""
    execute(COLUMNS)
    execute(GRANTS)
    execute(POLICIES)
