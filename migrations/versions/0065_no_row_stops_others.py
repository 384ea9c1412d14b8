"""No row of a butler's stops whoever reads it: questions as every reader can hold them, and uses counted in order."""

from migrations.raw import execute

revision = "0065"
down_revision = "0064"

# What a check would refuse is put right first, or no later change of that row would be let in: it could not even end.
PUT_RIGHT = """
UPDATE shared.questions SET options = ARRAY(SELECT unnest(options)) WHERE array_lower(options, 1) <> 1;
UPDATE shared.questions SET about = '{}' WHERE NOT shared.plain(about);
UPDATE shared.questions SET show_at = least(greatest(show_at, '2020-01-01Z'), '2200-01-01Z'),
        expires_at = least(greatest(expires_at, '2020-01-01Z'), '2200-01-01Z'),
        remind_at = CASE WHEN remind_at BETWEEN '2020-01-01Z' AND '2200-01-01Z' THEN remind_at END,
        until = CASE WHEN until BETWEEN '2020-01-01Z' AND '2200-01-01Z' THEN until END,
        heard_until = CASE WHEN heard_until BETWEEN '2020-01-01Z' AND '2200-01-01Z' THEN heard_until END,
        closed_at = CASE WHEN status <> 'open' THEN least(greatest(closed_at, '2020-01-01Z'), '2200-01-01Z') END
    WHERE NOT coalesce(show_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'
        AND expires_at BETWEEN '2020-01-01Z' AND '2200-01-01Z' AND remind_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'
        AND until BETWEEN '2020-01-01Z' AND '2200-01-01Z' AND heard_until BETWEEN '2020-01-01Z' AND '2200-01-01Z'
        AND closed_at BETWEEN '2020-01-01Z' AND '2200-01-01Z', true);
UPDATE shared.rule_uses SET n = NULL WHERE n > 1000000;
UPDATE switchboard.inbox SET routed_to = NULL WHERE length(routed_to) > 31;
"""

# A button's place is its option's, so the first option stands at one.
BOUNDS = """
ALTER TABLE shared.questions
    ADD CONSTRAINT times_that_can_be_read CHECK (show_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'
        AND expires_at BETWEEN '2020-01-01Z' AND '2200-01-01Z' AND remind_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'
        AND until BETWEEN '2020-01-01Z' AND '2200-01-01Z' AND heard_until BETWEEN '2020-01-01Z' AND '2200-01-01Z'
        AND closed_at BETWEEN '2020-01-01Z' AND '2200-01-01Z'),
    ADD CONSTRAINT options_begin_at_one CHECK (array_lower(options, 1) = 1);
ALTER TABLE switchboard.inbox ADD CONSTRAINT inbox_routed_to_check CHECK (length(routed_to) <= 31);
ALTER POLICY own_rows_asked ON shared.questions WITH CHECK (origin_butler = shared.me() AND shared.plain(about)
    AND EXISTS (SELECT FROM shared.keyring k WHERE k.name = origin_butler));
"""

# A butler closes a question of its own that is open, and nothing else of how one stands is its word.
CLOSED = """
CREATE FUNCTION shared.keep_closed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE insufficient_privilege USING MESSAGE = 'a question that is closed stays closed as it was';
END $$;
REVOKE ALL ON FUNCTION shared.keep_closed() FROM PUBLIC;
CREATE TRIGGER closed BEFORE UPDATE OF status, closed_at ON shared.questions FOR EACH ROW
    WHEN (OLD.status <> 'open' AND shared.me() = OLD.origin_butler
        AND (NEW.status, NEW.closed_at) IS DISTINCT FROM (OLD.status, OLD.closed_at))
    EXECUTE FUNCTION shared.keep_closed();
"""

# Whatever number a butler says: one that is too high would leave none for the next use, which is another butler's.
USES = """
CREATE FUNCTION shared.count_use() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.n := (SELECT coalesce(max(n), 0) + 1 FROM shared.rule_uses WHERE rule_id = NEW.rule_id);
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION shared.count_use() FROM PUBLIC;
CREATE TRIGGER counted BEFORE INSERT ON shared.rule_uses FOR EACH ROW WHEN (NEW.n IS NOT NULL)
    EXECUTE FUNCTION shared.count_use();
"""

# As the owner's files say; that a question asks for a popup is its butler's word.
POPUPS = """
CREATE TABLE shared.popups (butler text PRIMARY KEY CHECK (length(butler) <= 31));
GRANT SELECT ON shared.popups
    TO butlers_group_butler, butlers_group_messenger, butlers_group_console, butlers_group_owner;
"""


def upgrade() -> None:
    """Bound questions, keep closed ones closed, count the uses of rules, and create `shared.popups`."""
    execute(PUT_RIGHT)
    execute(BOUNDS)
    execute(CLOSED)
    execute(USES)
    execute(POPUPS)
