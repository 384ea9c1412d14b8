"""The matrix of privileges without a database: its document, and what becomes of a migration under one role."""

import pytest

from butlers.setup import logins
from migrations.raw import for_one_role
from shared.postgres.process import SETTINGS
from tests.privileges.document import DOCUMENT, with_matrix
from tests.privileges.matrix import ROLES, read


def test_the_document_shows_the_matrix_as_it_is() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert with_matrix(document) == document, "run `python -m tests.privileges.document`"


def test_no_butler_and_no_stranger_may_do_what_gives_authority() -> None:
    matrix = read()
    for name in ("approval_rules", "brakes", "contacts", "contact_info", "authority", "channels", "keyring"):
        for role in ("butler", "switchboard"):
            assert matrix[f"table shared.{name}"][role] == ("select",)
    assert {cells["PUBLIC"] for cells in matrix.values()} == {()}
    assert {cells["up"] for name, cells in matrix.items() if name.split()[0] not in {"database", "role"}} == {()}
    for role in ROLES:
        assert "create" not in "".join("".join(cells[role]) for name, cells in matrix.items() if "schema " in name)


def test_the_connections_of_all_logins_fit_the_embedded_server() -> None:
    places = int(SETTINGS["max_connections"]) - 3
    assert sum(logins.LIMITS.values()) + 8 * logins.LIMIT_OF_A_BUTLER <= places
    for name in (*logins.POOLS, "a butler"):
        assert logins.limit_of(name) >= 2 * (logins.pool_of(name) + 1), f"{name} could not run twice"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("GRANT SELECT ON a TO butlers_group_butler, butlers_group_owner;", 'GRANT SELECT ON a TO "al\'s", "al\'s";'),
        ("REVOKE UPDATE ON a FROM butlers_group_butler;\nSELECT 1;", "\nSELECT 1;"),
        ("REVOKE EXECUTE ON FUNCTION f() FROM PUBLIC;", "REVOKE EXECUTE ON FUNCTION f() FROM PUBLIC;"),
        ("pg_has_role(current_user, 'butlers_group_messenger', 'MEMBER')", "shared.me() = 'messenger'"),
        ("format('GRANT %I TO x', 'butlers_group_owner')", "format('GRANT %I TO x', 'al''s')"),
        ("DO $$ BEGIN EXECUTE format('CREATE ROLE %I', 'butlers_group_owner'); END $$;", ""),
    ],
)
def test_under_one_role_a_script_speaks_of_that_role(script: str, expected: str) -> None:
    assert for_one_role(script, "al's") == expected
