"""The environment read once, checked, and shown without its secrets."""

import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.settings import MASK, Secret, Settings, demand_safe_listening, dump, duration, quiet_third_parties
from shared.errors import InvalidInput, Misconfigured
from tests.rig.forks import QUIET

SECRETS = {
    "DATABASE_URL": "postgresql://someone:s3cr3t-one@db.test:5432/butlers",
    "BUTLERS_TELEGRAM_TOKEN": "123456:s3cr3t-two-AAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "BUTLERS_SMTP_URL": "smtps://someone:s3cr3t-three@mail.test:465",
    "BUTLERS_IMAP_URL": "imaps://someone:s3cr3t-four@mail.test",
    "BUTLERS_SANDBOX_SMTP_URL": "smtp://someone:s3cr3t-five@127.0.0.1:41104",
    "BUTLERS_SANDBOX_IMAP_URL": "imap://someone:s3cr3t-nine@127.0.0.1:41105",
    "BUTLERS_CONSOLE_PASSWORD": "s3cr3t-six with spaces ",
    "BUTLERS_ANTHROPIC_API_KEY": "s3cr3t-seven",
    "BUTLERS_OPENAI_API_KEY": "s3cr3t-eight",
}
PLAIN = {
    "BUTLERS_WITNESS": "/elsewhere/witness",
    "BUTLERS_HOME": "/srv/butlers",
    "BUTLERS_FLEET": "fleet",
    "BUTLERS_HOST": "::1",
    "BUTLERS_PORT_BASE": "50000",
    "BUTLERS_OWNER_NAME": "Ada Lovelace",
    "BUTLERS_OWNER_TELEGRAM": "telegram:5000000000000001",
    "BUTLERS_OWNER_EMAIL": "owner@Sandbox.test",
    "BUTLERS_TELEGRAM_BASE_URL": "http://127.0.0.1:41103/",
    "BUTLERS_EMAIL_FROM": "butlers@home.test",
    "BUTLERS_MAIL_AUTHSERV_ID": "mx.home.test",
    "BUTLERS_ADVERTISE_URL": "http://10.0.0.1:50000",
    "BUTLERS_AGENTS_URL": "http://127.0.0.1",
    "BUTLERS_ALLOW_PLAINTEXT": "yes",
    "BUTLERS_TLS_CERT": "/etc/tls/cert.pem",
    "BUTLERS_TLS_KEY": "/etc/tls/key.pem",
    "BUTLERS_SANDBOX_URL": "http://sandbox:41103",
    "BUTLERS_PUBLIC_URL": "https://home.test/",
    "BUTLERS_CARD_BURST": "5",
    "BUTLERS_APPROVAL_TTL": "90m",
    "BUTLERS_QUIET_HOURS": "22:00-07:00 Europe/Berlin",
    "BUTLERS_SWEEP_SECONDS": "0.5",
    "BUTLERS_MEMORY_MB": "2048",
    "BUTLERS_RATE_LIMITS": "off",
    "BUTLERS_MODEL_BASE_URL": "http://127.0.0.1:11434/v1",
}


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = Settings.from_env({})
    assert settings.home == Path(".butlers")
    assert (settings.host, settings.port_base) == ("127.0.0.1", 14100)
    assert settings.telegram_base_url == "https://api.telegram.org"
    assert (settings.card_burst, settings.approval_ttl, settings.sweep_seconds) == (3, timedelta(hours=72), 2.0)
    assert settings.memory_mb == 1024
    assert settings.allow_plaintext is False
    assert settings.rate_limits is None
    assert settings.unknown == ()
    assert [settings.database_url, settings.telegram_token, settings.smtp_url, settings.fleet] == [None] * 4


def test_every_variable_is_read() -> None:
    settings = Settings.from_env(PLAIN | SECRETS)
    unset = [field.name for field in fields(settings) if getattr(settings, field.name) in (None, ())]
    assert unset == ["unknown"]
    assert settings.owner_telegram == "5000000000000001"
    assert settings.owner_email == "owner@sandbox.test"
    assert settings.telegram_base_url == "http://127.0.0.1:41103"
    assert settings.public_url == "https://home.test"
    assert settings.approval_ttl == timedelta(minutes=90)
    assert (settings.sweep_seconds, settings.memory_mb) == (0.5, 2048)
    assert (settings.allow_plaintext, settings.rate_limits) == (True, False)
    assert settings.console_password == Secret("s3cr3t-six with spaces ")
    assert dump(settings).keys() == PLAIN.keys() | SECRETS.keys()


@pytest.mark.parametrize("name", [*PLAIN, *SECRETS])
def test_an_empty_variable_counts_as_absent(name: str) -> None:
    assert Settings.from_env({name: ""}) == Settings.from_env({})


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_may_come_from_a_file(name: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRETS[name] + "\r\n")
    given_in_file = Settings.from_env({f"{name}_FILE": str(file), name: ""})
    assert given_in_file == Settings.from_env({name: SECRETS[name]})
    assert given_in_file.unknown == ()


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_given_twice_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=f"Both {name} and {name}_FILE"):
        Settings.from_env({name: SECRETS[name], f"{name}_FILE": str(tmp_path / "secret")})


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_a_secrets_file_that_holds_none_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Misconfigured) as refusal:
        Settings.from_env({"BUTLERS_SMTP_URL_FILE": str(file)})
    assert "BUTLERS_SMTP_URL_FILE" in refusal.value.message
    assert str(file) in refusal.value.message


BAD = [
    ("DATABASE_URL", "postgresql+asyncpg://u:s3cr3t@h/d"),
    ("DATABASE_URL", "mysql://u:s3cr3t@h/d"),
    ("DATABASE_URL", "postgresql://u:ab/s3cr3t@h/d"),
    ("DATABASE_URL", "postgresql://u:12#s3cr3t@h/d"),
    ("BUTLERS_HOST", "http://0.0.0.0"),
    ("BUTLERS_HOST", "a b"),
    ("BUTLERS_PORT_BASE", "80"),
    ("BUTLERS_PORT_BASE", "65500"),
    ("BUTLERS_PORT_BASE", "-1"),
    ("BUTLERS_PORT_BASE", "forty"),
    ("BUTLERS_PORT_BASE", "\u0664\u0661\u0661\u0660"),
    ("BUTLERS_OWNER_NAME", "Ada\nLovelace"),
    ("BUTLERS_OWNER_TELEGRAM", "@durov"),
    ("BUTLERS_OWNER_TELEGRAM", "-100123"),
    ("BUTLERS_OWNER_EMAIL", "Ada <ada@home.test>"),
    ("BUTLERS_TELEGRAM_TOKEN", "s3cr3t"),
    ("BUTLERS_TELEGRAM_TOKEN", "bot123:s3cr3t"),
    ("BUTLERS_TELEGRAM_BASE_URL", "https://api.telegram.org/bot"),
    ("BUTLERS_TELEGRAM_BASE_URL", "api.telegram.org"),
    ("BUTLERS_ANTHROPIC_API_KEY", "s3cr3t with spaces"),
    ("BUTLERS_MODEL_BASE_URL", "http://u:s3cr3t@h"),
    ("BUTLERS_SMTP_URL", "http://u:s3cr3t@h"),
    ("BUTLERS_SMTP_URL", "smtp://u:s3cr3t@h:port"),
    ("BUTLERS_SMTP_URL", "smtp://u:s3cr3t@h:0"),
    ("BUTLERS_SMTP_URL", "smtp://u:s3cr3t@h:70000"),
    ("BUTLERS_SMTP_URL", "mail.test"),
    ("BUTLERS_EMAIL_FROM", "butlers"),
    ("BUTLERS_IMAP_URL", "pop3://u:s3cr3t@h"),
    ("BUTLERS_IMAP_URL", "imaps://mail.test"),
    ("BUTLERS_IMAP_URL", "imaps://a%0Ab:s3cr3t@mail.test"),
    ("BUTLERS_ADVERTISE_URL", "http://u:s3cr3t@h"),
    ("BUTLERS_ALLOW_PLAINTEXT", "perhaps"),
    ("BUTLERS_SANDBOX_URL", "ftp://h"),
    ("BUTLERS_PUBLIC_URL", "https://h?x=1"),
    ("BUTLERS_MAIL_AUTHSERV_ID", "spf=pass"),
    ("BUTLERS_PUBLIC_URL", "https://h/butlers"),
    ("BUTLERS_PUBLIC_URL", "https://[::1"),
    ("BUTLERS_CARD_BURST", "0"),
    ("BUTLERS_CARD_BURST", "3.5"),
    ("BUTLERS_APPROVAL_TTL", "soon"),
    ("BUTLERS_APPROVAL_TTL", "0"),
    ("BUTLERS_QUIET_HOURS", "at night"),
    ("BUTLERS_SWEEP_SECONDS", "-2"),
    ("BUTLERS_MEMORY_MB", "0"),
    ("BUTLERS_MEMORY_MB", "255"),
    ("BUTLERS_MEMORY_MB", "1g"),
    ("BUTLERS_RATE_LIMITS", "2"),
    ("BUTLERS_TLS_CERT", "/etc/tls/cert.pem"),
    ("BUTLERS_TLS_KEY", "/etc/tls/key.pem"),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=ascii)
def test_a_bad_value_is_named_and_no_secret_shown(name: str, value: str) -> None:
    with pytest.raises(Misconfigured) as refusal:
        Settings.from_env({name: value})
    assert name in refusal.value.message
    assert refusal.value.remedy.endswith(".")
    assert "s3cr3t" not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_an_unknown_name_is_warned_of_with_the_nearest() -> None:
    settings = Settings.from_env(
        {"BUTLERS_TELEGRAM_TOKN": "x", "BUTLERS_HOME_FILE": "x", "BUTLERS_QQQQ": "", "PATH": "x"}
    )
    said = {warning.name: warning.nearest for warning in settings.unknown}
    assert said == {
        "BUTLERS_HOME_FILE": "BUTLERS_HOME",
        "BUTLERS_QQQQ": None,
        "BUTLERS_TELEGRAM_TOKN": "BUTLERS_TELEGRAM_TOKEN",
    }
    assert "Did you mean BUTLERS_HOME?" in str(settings.unknown[0])


def test_nothing_shows_a_secret() -> None:
    settings = Settings.from_env(PLAIN | SECRETS)
    shown = f"{settings} {settings!r} {dump(settings)}"
    assert "s3cr3t" not in shown
    assert dump(settings)["BUTLERS_SMTP_URL"] == f"smtps://someone:{MASK}@mail.test:465"
    assert dump(settings)["BUTLERS_CONSOLE_PASSWORD"] == MASK
    assert dump(settings)["BUTLERS_IMAP_URL"].endswith("@mail.test")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cr3t@h/d",
        "postgresql://u:s3cr3t@with@at@h/d",
        "postgresql:///d?host=/run&user=u&password=s3cr3t",
        "postgresql://u:s3cr3t@h1:5432,h2:5432/d",
    ],
)
def test_a_database_url_is_dumped_without_its_password(url: str) -> None:
    settings = Settings.from_env({"DATABASE_URL": url})
    assert "s3cr3t" not in dump(settings)["DATABASE_URL"]
    assert MASK in dump(settings)["DATABASE_URL"]
    assert settings.database_url == Secret(url)


@pytest.mark.parametrize("login", ["u:[s3cr3t", "u:s3]cr3t", "u:a@b/c@d"])
def test_a_database_url_whose_login_is_not_encoded_is_refused_without_showing_it(login: str) -> None:
    with pytest.raises(Misconfigured, match="percent-encoded") as refused:
        Settings.from_env({"DATABASE_URL": f"postgresql://{login}@h/d"})
    assert "s3cr3t" not in str(refused.value)


def test_what_is_dumped_can_be_given_back() -> None:
    settings = Settings.from_env(PLAIN)
    assert Settings.from_env(dump(settings)) == settings


def test_a_secret_gives_itself_only_when_asked() -> None:
    secret = Secret("s3cr3t")
    assert "s3cr3t" not in f"{secret} {secret!r} {secret!s} {[secret]} %s" % secret
    assert secret.reveal() == "s3cr3t"
    assert secret == Secret("s3cr3t")
    assert hash(secret) == hash(Secret("s3cr3t"))
    assert secret != Secret("other")
    assert secret != "s3cr3t"


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("72h", timedelta(hours=72)),
        ("30d", timedelta(days=30)),
        ("10m", timedelta(minutes=10)),
        ("2s", timedelta(seconds=2)),
        ("2w", timedelta(weeks=2)),
        ("90", timedelta(seconds=90)),
        ("0.25", timedelta(milliseconds=250)),
        (" 1.5h ", timedelta(minutes=90)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, span: timedelta) -> None:
    assert duration(text) == span


@given(st.text(max_size=12))
def test_a_duration_is_positive_or_refused(text: str) -> None:
    try:
        span = duration(text)
    except InvalidInput:
        return
    assert timedelta() < span <= timedelta(days=3660)


@pytest.mark.parametrize(
    "text", ["", "0", "-1h", "+1h", "1 h", "1y", "h", "1h30m", "1e3", "nan", "inf", "\u0661h", "9" * 9 + "w"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="duration"):
        duration(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    demand_safe_listening(Settings.from_env({"BUTLERS_HOST": host}))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "home.test", "localhost.evil.example"])
def test_an_open_address_needs_tls_or_a_word(host: str) -> None:
    with pytest.raises(Misconfigured, match="BUTLERS_HOST"):
        demand_safe_listening(Settings.from_env({"BUTLERS_HOST": host}))
    demand_safe_listening(Settings.from_env({"BUTLERS_HOST": host, "BUTLERS_ALLOW_PLAINTEXT": "1"}))
    tls = {"BUTLERS_TLS_CERT": "cert.pem", "BUTLERS_TLS_KEY": "key.pem"}
    demand_safe_listening(Settings.from_env({"BUTLERS_HOST": host, **tls}))


def printed(program: str, folder: Path, environ: dict[str, str]) -> str:
    """What a Python of its own prints, started in this folder with this environment."""
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=folder, env=root | environ, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_the_process_environment_is_read(tmp_path: Path) -> None:
    program = "from shared.config.settings import current; print(current().port_base)"
    assert printed(program, tmp_path, {"BUTLERS_PORT_BASE": "45000"}) == "45000\n"


def test_third_parties_are_left_only_what_we_mean() -> None:
    environ = {"FASTMCP_STATELESS_HTTP": "true", "fastmcp_port": "1", "FASTMCP_LOG_LEVEL": "DEBUG", "PATH": "/bin"}
    quiet_third_parties(environ)
    assert environ == {"PATH": "/bin", **QUIET}


def test_fastmcp_heeds_what_it_is_left_and_no_dotenv(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FASTMCP_LOG_LEVEL=DEBUG\nFASTMCP_STRICT_INPUT_VALIDATION=true\n")
    program = (
        "from shared.config.settings import quiet_third_parties; quiet_third_parties();"
        "from fastmcp import settings as s;"
        "print(s.log_level, s.show_server_banner, s.check_for_updates, s.enable_rich_tracebacks,"
        "s.strict_input_validation)"
    )
    said = printed(program, tmp_path, {"FASTMCP_STRICT_INPUT_VALIDATION": "true"})
    assert said.split() == ["WARNING", "False", "off", "False", "False"]
