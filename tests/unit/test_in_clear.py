"""Which live channel leaves this computer in clear."""

import pytest

from shared.channels.realms import in_clear
from shared.config.settings import Settings

TOKEN = {"BUTLERS_TELEGRAM_TOKEN": "123456:abcdefghijklmnopqrstuvwxyzabcdefghi"}
SENDER = {"BUTLERS_EMAIL_FROM": "butlers@example.org"}


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, set()),
        ({"BUTLERS_TELEGRAM_BASE_URL": "http://bots.example.org"}, set()),
        (TOKEN, set()),
        ({**TOKEN, "BUTLERS_TELEGRAM_BASE_URL": "https://bots.example.org"}, set()),
        ({**TOKEN, "BUTLERS_TELEGRAM_BASE_URL": "http://127.0.0.1:8081"}, set()),
        ({**TOKEN, "BUTLERS_TELEGRAM_BASE_URL": "http://[::1]:8081"}, set()),
        ({**TOKEN, "BUTLERS_TELEGRAM_BASE_URL": "http://bots.example.org"}, {"telegram"}),
        ({**TOKEN, "BUTLERS_TELEGRAM_BASE_URL": "http://192.168.1.5:8081"}, {"telegram"}),
        ({**SENDER, "BUTLERS_SMTP_URL": "smtps://mail.example.org"}, set()),
        ({**SENDER, "BUTLERS_SMTP_URL": "smtp://me:secret@mail.example.org"}, set()),
        ({**SENDER, "BUTLERS_SMTP_URL": "smtp://localhost:25"}, set()),
        ({**SENDER, "BUTLERS_SMTP_URL": "smtp://mail.example.org"}, {"email"}),
        ({**SENDER, "BUTLERS_SANDBOX_SMTP_URL": "smtp://sandbox:41104"}, set()),
    ],
)
def test_what_crosses_a_network_readable_is_named(env: dict[str, str], found: set[str]) -> None:
    said = in_clear(Settings.from_env(env))
    assert set(said) == found
    assert "secret" not in str(said)
