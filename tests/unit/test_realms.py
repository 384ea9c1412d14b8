"""Which answer counts: the sandbox, which asks nobody who they are, speaks for its own words alone."""

import pytest

from shared.channels.realms import OWN_SURFACES, SANDBOX, configured, may_ask, may_decide
from shared.config.settings import Settings

LIVE = ("77", "butlers@mail.example.org")


@pytest.mark.parametrize(
    ("realm", "about", "counts"),
    [
        (SANDBOX, SANDBOX, True),
        (SANDBOX, "77", False),
        (SANDBOX, "butlers@mail.example.org", False),
        (SANDBOX, "", False),
        (SANDBOX, "Sandbox", False),
        ("77", SANDBOX, True),
        ("77", "77", True),
        ("77", "butlers@mail.example.org", True),
    ],
)
def test_the_sandbox_is_asked_about_nothing_live_and_decides_nothing_of_it(
    realm: str, about: str, *, counts: bool
) -> None:
    assert may_ask(realm, about) is counts
    assert may_decide("telegram", realm, about) is counts


@pytest.mark.parametrize("about", [SANDBOX, *LIVE])
@pytest.mark.parametrize("surface", sorted(OWN_SURFACES))
def test_the_console_and_the_command_line_decide_about_everything(surface: str, about: str) -> None:
    assert may_decide(surface, None, about)


@pytest.mark.parametrize("about", LIVE)
@pytest.mark.parametrize("surface", ["telegram", "email", "", "Console"])
def test_a_surface_that_names_no_realm_is_taken_for_the_sandbox(surface: str, about: str) -> None:
    assert not may_decide(surface, None, about)
    assert may_decide(surface, None, SANDBOX)


@pytest.mark.parametrize(
    ("host", "there"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("10.1.2.3",) * 2]
)
def test_the_sandbox_is_looked_for_where_it_listens(host: str, there: str) -> None:
    found = configured(Settings.from_env({"BUTLERS_HOST": host, "BUTLERS_PORT_BASE": "20000"}))
    assert found.telegram_url == f"http://{there}:20003"
    assert found.smtp_url.reveal() == f"smtp://{there}:20004"
    assert found.imap_url.reveal() == f"imap://{there}:20005"
