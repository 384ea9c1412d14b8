"""What `butlers go-live` keeps is read by who needs it, beneath what the environment says."""

import json
from pathlib import Path

import pytest

from butlers.cli.terminal import settings_of
from shared.auth import keystore
from shared.errors import Misconfigured


@pytest.fixture
def home(tmp_path: Path) -> Path:
    keystore.ensure(tmp_path, "messenger")
    kept = {"BUTLERS_TELEGRAM_TOKEN": "77:kept", "BUTLERS_EMAIL_FROM": "kept@example.org"}
    keystore.replace_credentials(tmp_path, "messenger", json.dumps(kept).encode())
    return tmp_path


def test_a_variable_and_its_file_count_before_what_is_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (found := settings_of(None, home).telegram_token) is not None
    assert found.reveal() == "77:kept"
    (tmp_path / "token").write_text("78:file")
    monkeypatch.setenv("BUTLERS_TELEGRAM_TOKEN_FILE", str(tmp_path / "token"))
    settings = settings_of(None, home)
    assert settings.telegram_token is not None
    assert (settings.telegram_token.reveal(), settings.email_from) == ("78:file", "kept@example.org")


def test_a_daemon_that_is_not_the_messenger_reads_none(home: Path) -> None:
    assert settings_of(None, home, credentials=False).telegram_token is None


def test_a_damaged_file_is_said(home: Path) -> None:
    keystore.replace_credentials(home, "messenger", b"{")
    with pytest.raises(Misconfigured, match=r"is damaged\. Remove it"):
        settings_of(None, home)
