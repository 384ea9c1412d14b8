"""The seals of the audit: a chain of signed hashes over its lines."""

from migrations.raw import execute

revision = "0013"
down_revision = "0012"

SEALS = """
CREATE TABLE shared.audit_seals (
    n bigint PRIMARY KEY CHECK (n > 0),
    -- Which lines of approval_events it covers: one committed late is covered by a later seal.
    seqs int8multirange NOT NULL CHECK (NOT isempty(seqs)),
    -- SHA-256 of each of these lines, one after the other in the order of seq.
    digests bytea NOT NULL CHECK (octet_length(digests) % 32 = 0 AND octet_length(digests) > 0),
    events integer NOT NULL GENERATED ALWAYS AS (octet_length(digests) / 32) STORED,
    -- The hash of the seal before; 32 zero bytes for the first.
    prev bytea NOT NULL CHECK (octet_length(prev) = 32),
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    -- The Messenger's, over the hash.
    signature bytea NOT NULL CHECK (octet_length(signature) = 64),
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- How far the seals reach, whatever a late line's seal covers.
CREATE INDEX audit_seals_reach ON shared.audit_seals (upper(seqs));

CREATE OR REPLACE FUNCTION shared.events_stay() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON shared.audit_seals
    FOR EACH STATEMENT EXECUTE FUNCTION shared.events_stay();

GRANT SELECT, INSERT ON shared.audit_seals TO butlers_group_messenger;
GRANT SELECT ON shared.audit_seals TO butlers_group_console, butlers_group_owner;
"""


def upgrade() -> None:
    """Create `shared.audit_seals`."""
    execute(SEALS)
