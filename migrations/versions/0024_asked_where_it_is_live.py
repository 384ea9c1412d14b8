"""Where the owner is asked: on a live channel never at an address that was invented for the sandbox."""

from migrations.raw import execute

revision = "0024"
down_revision = "0023"

OWNER_AT = """
-- Where the owner is asked on each channel: a private chat, or an address.
CREATE OR REPLACE VIEW messenger.owner_at WITH (security_invoker) AS
    SELECT DISTINCT ON (c.channel) c.channel, i.value AS address, c.realm, o.preferred_channel
    FROM shared.contacts o
        JOIN shared.contact_info i ON i.contact_id = o.id
        JOIN shared.channels c ON c.channel = i.type
    WHERE 'owner' = ANY (o.roles) AND (i.type <> 'telegram' OR i.lookup ~ '^[1-9][0-9]*$')
        AND (c.realm = 'sandbox' OR (i.lookup <> '5000000000000001' AND i.lookup NOT LIKE '%@sandbox.test'))
    ORDER BY c.channel, i.is_primary DESC, i.created_at;
-- `butlers up` and `butlers doctor` say where nobody can be asked about what is live.
GRANT SELECT ON messenger.owner_at TO butlers_group_console, butlers_group_owner;
"""


def upgrade() -> None:
    """Replace the view `messenger.owner_at`, and let the console and the owner read it."""
    execute(OWNER_AT)
