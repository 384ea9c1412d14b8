"""Of others' sessions the Switchboard changes words and stops; it asks the classifier, and about messages."""

from migrations.raw import execute

revision = "0067"
down_revision = "0066"

# Policies say which rows; which columns is said by groups, and the Switchboard's login is in that of butlers too.
SESSIONS = """
CREATE FUNCTION shared.keep_sessions() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE kept shared.sessions := OLD;
BEGIN
    kept.stop_asked_at := NEW.stop_asked_at;
    IF OLD.status = 'waiting' AND OLD.cause = 'message' THEN
        kept.prompt := NEW.prompt;
    END IF;
    IF kept IS DISTINCT FROM NEW THEN
        RAISE insufficient_privilege USING MESSAGE = 'of a session of another only the words that wait, or a stop';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION shared.keep_sessions() FROM PUBLIC;
CREATE TRIGGER kept BEFORE UPDATE ON shared.sessions FOR EACH ROW
    WHEN (shared.me() = 'switchboard' AND OLD.butler <> 'switchboard')
    EXECUTE FUNCTION shared.keep_sessions();
"""
CLASSIFIER = """
ALTER POLICY what_is_asked_of_the_classifier ON shared.sessions WITH CHECK (status = 'waiting' AND cause = 'classify'
    AND sessions.butler IN (SELECT c.butler FROM switchboard.classifier c));
"""

# A question about no message is a call of its butler's own; in that butler's name nobody could answer or end it.
QUESTIONS = """
DO $$
BEGIN
    EXECUTE (SELECT format('ALTER POLICY %I ON shared.pending_actions
            WITH CHECK ((%s) AND notification_id IS NOT NULL)', polname, pg_get_expr(polwithcheck, polrelid))
        FROM pg_policy WHERE polrelid = 'shared.pending_actions'::regclass AND polname = 'for_butlers');
END $$;
"""


def upgrade() -> None:
    """Hold the Switchboard to what it does of sessions and questions of others."""
    execute(SESSIONS)
    execute(CLASSIFIER)
    execute(QUESTIONS)
