"""The owner's Telegram entry is a private chat, whoever writes it and by whichever way."""

from migrations.raw import execute

revision = "0040"
down_revision = "0039"

# A chat that stands on the owner and is nobody's own stays on file, as a contact of its own. Where there is none,
# nothing is touched, since whatever touches an address says that authority has changed.
MOVE = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM shared.contact_info i JOIN shared.contacts o ON o.id = i.contact_id
        WHERE 'owner' = ANY (o.roles) AND i.type = 'telegram' AND i.lookup !~ '^[1-9][0-9]*$')
    THEN
        WITH groups AS (
            SELECT i.id, o.name FROM shared.contact_info i JOIN shared.contacts o ON o.id = i.contact_id
            WHERE 'owner' = ANY (o.roles) AND i.type = 'telegram' AND i.lookup !~ '^[1-9][0-9]*$'),
        made AS (INSERT INTO shared.contacts (name) SELECT left(name, 190) || ' (group)' FROM groups LIMIT 1
            RETURNING id)
        UPDATE shared.contact_info SET contact_id = made.id, is_primary = false FROM groups, made
        WHERE contact_info.id = groups.id;
    END IF;
END $$;
"""
CONSTRAINT = """
CREATE FUNCTION shared.owner_in_private() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ BEGIN
    IF EXISTS (SELECT FROM shared.contact_info i JOIN shared.contacts o ON o.id = i.contact_id
        WHERE o.id = coalesce(to_jsonb(NEW) ->> 'contact_id', to_jsonb(NEW) ->> 'id')::uuid
            AND 'owner' = ANY (o.roles) AND i.type = 'telegram' AND i.lookup !~ '^[1-9][0-9]*$')
    THEN RAISE EXCEPTION USING ERRCODE = 'check_violation', CONSTRAINT = 'owner_in_private',
        MESSAGE = 'the Telegram address of the owner is not a private chat';
    END IF;
    RETURN NULL; END $$;
REVOKE EXECUTE ON FUNCTION shared.owner_in_private() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER owner_in_private AFTER INSERT OR UPDATE ON shared.contact_info
    FOR EACH ROW WHEN (NEW.type = 'telegram') EXECUTE FUNCTION shared.owner_in_private();
CREATE CONSTRAINT TRIGGER owner_in_private AFTER INSERT OR UPDATE OF roles ON shared.contacts
    FOR EACH ROW WHEN ('owner' = ANY (NEW.roles)) EXECUTE FUNCTION shared.owner_in_private();
"""


def upgrade() -> None:
    """Move what is no private chat off the owner, and hold it from now on."""
    execute(MOVE)
    execute(CONSTRAINT)
