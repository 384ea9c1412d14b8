"""What the registry may say: whose kind is whose, and what is the address of a daemon."""

import pytest

from butlers.daemon.discovery import is_base_url, kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [("switchboard", "switchboard"), ("messenger", "messenger"), ("console", "console"), ("health", "butler")],
)
def test_the_kind_is_the_names(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:41110", "https://greeter:41110/", "http://[::1]:41110", "https://home.example"]
)
def test_scheme_host_and_port_are_an_address(url: str) -> None:
    assert is_base_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "http://[",
        "//127.0.0.1:9",
        "ftp://127.0.0.1:9",
        "javascript:alert(1)",
        "http://127.0.0.1:0",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:port",
        "http://user:word@127.0.0.1:9",
        "http://127.0.0.1:9/path",
        "http://127.0.0.1:9//",
        "http://127.0.0.1:9?",
        "http://127.0.0.1:9#",
        "http://127.0.0.1:9\\x",
        " http://127.0.0.1:9",
        "\x01http://127.0.0.1:9",
        "http://127.0.0.1:9\n",
        "http://127.0.0.1\u202e:9",
        "http://" + "a" * 300,
    ],
)
def test_nothing_else_is(url: str) -> None:
    assert not is_base_url(url)
