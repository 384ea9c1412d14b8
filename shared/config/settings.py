"""The only reader of the environment: every setting has a name, is checked and typed, and is masked when shown.

A field's name is its variable's name in lower case without `BUTLERS_`. An empty variable counts as absent. Every secret
may instead be given as `..._FILE`, the path of a file that holds it.
"""

import difflib
import os
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, fields
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self, TypeVar

from shared.config import parsers
from shared.config.quiet_hours import QuietHours, quiet_hours
from shared.config.timings import STANDARD, Timings
from shared.errors import InvalidInput, Misconfigured

T = TypeVar("T")

MASK: Final = "***"
DEFAULT_HOME: Final = Path(".butlers")
_PREFIX: Final = "BUTLERS_"
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(s|m|h|d|w)?", re.ASCII)
_UNIT_SECONDS: Final = {None: 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LONGEST: Final = timedelta(days=3660)
_URL_PASSWORD: Final = re.compile(r"(?<=://)([^/?#\s:@]*):([^/?#\s]*)@")
_QUIET: Final = {
    "FASTMCP_SHOW_SERVER_BANNER": "false",
    "FASTMCP_CHECK_FOR_UPDATES": "off",
    "FASTMCP_ENABLE_RICH_TRACEBACKS": "false",
    "FASTMCP_LOG_LEVEL": "WARNING",
    "FASTMCP_LOG_ENABLED": "false",  # its lines go the way of all others, redacted
    "FASTMCP_ENV_FILE": os.devnull,  # otherwise it reads ./.env of whatever folder we were started in
}


class Secret:
    """A text that no log line, page, `repr` or error shows; only `reveal()` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the text itself, for the one place that hands it to its owner."""
        return self._value

    def __repr__(self) -> str:
        """Return the mask."""
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        """Return the mask."""
        return MASK

    def __eq__(self, other: object) -> bool:
        """Return whether both hide the same text."""
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        """Return the hash of the hidden text."""
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class UnknownVariable:
    """A BUTLERS_ variable that nothing reads, with the valid name that was probably meant."""

    name: str
    nearest: str | None

    def __str__(self) -> str:
        """Return the warning in two sentences."""
        hint = f" Did you mean {self.nearest}?" if self.nearest else " Remove it."
        return f"Unknown environment variable {self.name}.{hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings that the environment gives, checked; None where it gives none and there is no default."""

    database_url: Secret | None
    home: Path
    fleet: Path | None
    host: str
    port_base: int
    owner_name: str | None
    owner_telegram: str | None
    owner_email: str | None
    telegram_token: Secret | None
    telegram_base_url: str
    smtp_url: Secret | None
    email_from: str | None
    imap_url: Secret | None
    mail_authserv_id: str | None
    advertise_url: str | None
    allow_plaintext: bool
    tls_cert: Path | None
    tls_key: Path | None
    sandbox_url: str | None
    sandbox_smtp_url: Secret | None
    sandbox_imap_url: Secret | None
    console_password: Secret | None
    public_url: str | None
    agents_url: str | None
    witness: Path | None
    card_burst: int
    approval_ttl: timedelta
    quiet_hours: QuietHours | None
    sweep_seconds: float
    memory_mb: int
    anthropic_api_key: Secret | None
    openai_api_key: Secret | None
    model_base_url: str | None
    rate_limits: bool | None  # None: on for live channels, off for the sandbox
    unknown: tuple[UnknownVariable, ...] = ()
    # What no variable changes.
    timings: Timings = STANDARD

    @property
    def reached_at(self) -> str:
        """The host by which this computer reaches what listens at `host`, as it stands in a URL."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host  # noqa: S104  # compared, not bound
        return f"[{host}]" if ":" in host else host

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read all settings from `environ` and the files that it names; raise Misconfigured naming the variable."""
        env = _Environment(environ)
        settings = cls(
            database_url=env.secret("DATABASE_URL", parsers.database_url),
            home=env.read("BUTLERS_HOME", Path) or DEFAULT_HOME,
            fleet=env.read("BUTLERS_FLEET", Path),
            host=env.read("BUTLERS_HOST", parsers.host) or "127.0.0.1",
            port_base=env.read("BUTLERS_PORT_BASE", parsers.port_base) or 14100,
            owner_name=env.read("BUTLERS_OWNER_NAME", parsers.line),
            owner_telegram=env.read("BUTLERS_OWNER_TELEGRAM", parsers.private_chat),
            owner_email=env.read("BUTLERS_OWNER_EMAIL", parsers.email),
            telegram_token=env.secret("BUTLERS_TELEGRAM_TOKEN", parsers.bot_token),
            telegram_base_url=env.read("BUTLERS_TELEGRAM_BASE_URL", parsers.origin_url) or "https://api.telegram.org",
            smtp_url=env.secret("BUTLERS_SMTP_URL", parsers.smtp_url),
            email_from=env.read("BUTLERS_EMAIL_FROM", parsers.email),
            imap_url=env.secret("BUTLERS_IMAP_URL", parsers.mailbox_url),
            mail_authserv_id=env.read("BUTLERS_MAIL_AUTHSERV_ID", parsers.mail_server),
            advertise_url=env.read("BUTLERS_ADVERTISE_URL", parsers.origin_url),
            allow_plaintext=env.read("BUTLERS_ALLOW_PLAINTEXT", parsers.yes_or_no) or False,
            tls_cert=env.read("BUTLERS_TLS_CERT", Path),
            tls_key=env.read("BUTLERS_TLS_KEY", Path),
            sandbox_url=env.read("BUTLERS_SANDBOX_URL", parsers.web_url),
            sandbox_smtp_url=env.secret("BUTLERS_SANDBOX_SMTP_URL", parsers.smtp_url),
            sandbox_imap_url=env.secret("BUTLERS_SANDBOX_IMAP_URL", parsers.imap_url),
            console_password=env.secret("BUTLERS_CONSOLE_PASSWORD", str),
            public_url=env.read("BUTLERS_PUBLIC_URL", parsers.origin_url),
            agents_url=env.read("BUTLERS_AGENTS_URL", parsers.origin_url),
            witness=env.read("BUTLERS_WITNESS", Path),
            card_burst=env.read("BUTLERS_CARD_BURST", parsers.positive) or 3,
            approval_ttl=env.read("BUTLERS_APPROVAL_TTL", duration) or timedelta(hours=72),
            quiet_hours=env.read("BUTLERS_QUIET_HOURS", quiet_hours),
            sweep_seconds=(env.read("BUTLERS_SWEEP_SECONDS", duration) or timedelta(seconds=2)).total_seconds(),
            memory_mb=env.read("BUTLERS_MEMORY_MB", parsers.memory_mb) or 1024,
            anthropic_api_key=env.secret("BUTLERS_ANTHROPIC_API_KEY", parsers.api_key),
            openai_api_key=env.secret("BUTLERS_OPENAI_API_KEY", parsers.api_key),
            model_base_url=env.read("BUTLERS_MODEL_BASE_URL", parsers.web_url),
            rate_limits=env.read("BUTLERS_RATE_LIMITS", parsers.yes_or_no),
            unknown=env.unknown(),
        )
        _demand_both_tls_files(settings)
        return settings


def current(beneath: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of this process from its environment as it is now, and from `beneath` what that leaves open."""
    beneath = beneath or {}
    said = {name: value for name, value in os.environ.items() if value.strip() or name not in beneath}
    left = {name: value for name, value in beneath.items() if not os.environ.get(f"{name}_FILE", "").strip()}
    return Settings.from_env({**left, **said})


def named_home() -> Path | None:
    """Return the home that this process's environment names, whichever that is; None where it names none."""
    return _Environment(os.environ).read("BUTLERS_HOME", Path)


def duration(text: str) -> timedelta:
    """Parse `72h`, `30d`, `10m`, `2s`, `1w` or plain seconds into a length of time; above zero, at most ten years.

    Raises InvalidInput.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST.total_seconds():
        raise InvalidInput(
            f"{text[:40]!a} is not a duration of up to ten years.",
            "Write a number and s, m, h, d or w, such as 72h.",
        )
    return timedelta(seconds=seconds)


def stated_duration(text: str) -> timedelta:
    """Parse a length of time as a person states it, with its unit: `30` is half a minute, and may be meant as a month.

    Raises InvalidInput.
    """
    length = duration(text)
    if text.strip()[-1].isdecimal():
        raise InvalidInput(f"{text[:40]!a} has no unit.", "Write a number and s, m, h, d or w, such as 30d.")
    return length


def demand_safe_listening(settings: Settings) -> None:
    """Raise Misconfigured if daemons would speak plaintext on an address other machines can reach."""
    if settings.tls_cert or settings.allow_plaintext or is_loopback(settings.host):
        return
    raise Misconfigured(
        f"BUTLERS_HOST is {settings.host}, which other machines can reach, and there is no TLS.",
        "Set BUTLERS_TLS_CERT and BUTLERS_TLS_KEY for `butlers run`, or keep `butlers up` on 127.0.0.1 behind a proxy; "
        "or set BUTLERS_ALLOW_PLAINTEXT=1 if nobody else uses the network.",
    )


def dump(settings: Settings) -> dict[str, str]:
    """Return every variable with its value as it could be given, passwords masked; '' where it is not set."""
    names = {
        field.name: _variable(field.name) for field in fields(settings) if field.name not in {"unknown", "timings"}
    }
    return {variable: _shown(getattr(settings, name)) for name, variable in names.items()}


def quiet_third_parties(environ: MutableMapping[str, str] | None = None) -> None:
    """Replace all FASTMCP_ variables by the ones we mean: no banner, no check for updates, no ./.env.

    Call it before the libraries are imported. Without an argument it changes the process's own environment.
    """
    target = os.environ if environ is None else environ
    for name in [name for name in target if name.upper().startswith("FASTMCP_")]:
        del target[name]
    target.update(_QUIET)


class _Environment:
    """A mapping of variables that remembers which names were asked for."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._known: set[str] = set()

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return the parsed value, or None if the variable is absent or blank."""
        text = self._text(name).strip()
        return _parsed(name, text, parse, shown=True) if text else None

    def secret(self, name: str, parse: Callable[[str], str]) -> Secret | None:
        """Return the value, or the content of the file in `<name>_FILE`; raise Misconfigured if both are set."""
        text, file = self._text(name), self._text(f"{name}_FILE").strip()
        if text and file:
            raise Misconfigured(f"Both {name} and {name}_FILE are set.", "Keep one of them.")
        if file:
            text = _file_content(f"{name}_FILE", Path(file))
        return Secret(_parsed(name, text, parse, shown=False)) if text else None

    def unknown(self) -> tuple[UnknownVariable, ...]:
        """Return the variables with our prefix that were never asked for, sorted by name."""
        strangers = sorted(name for name in self._environ if name.startswith(_PREFIX) and name not in self._known)
        return tuple(UnknownVariable(name, _nearest(name, self._known)) for name in strangers)

    def _text(self, name: str) -> str:
        self._known.add(name)
        return self._environ.get(name, "")


def _parsed(name: str, text: str, parse: Callable[[str], T], *, shown: bool) -> T:
    try:
        return parse(text)
    except InvalidInput as wrong:
        raise Misconfigured(f"{name} is not valid: {wrong.message}", wrong.remedy) from None
    except ValueError as wrong:
        value = f" ({_URL_PASSWORD.sub(_masked, text[:80])!a})" if shown else ""
        raise Misconfigured(f"{name}{value} is not {wrong}.", f"Correct {name}, or remove it.") from None


def _file_content(name: str, path: Path) -> str:
    try:
        content = path.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not text"
        raise Misconfigured(
            f"{name} is {path}, which cannot be read ({why}).", "Correct the path or its permissions."
        ) from None
    if not content:
        raise Misconfigured(f"{name} is {path}, which is empty.", f"Put the secret into it, or remove {name}.")
    return content


def _nearest(name: str, known: set[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)), None)


def _demand_both_tls_files(settings: Settings) -> None:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise Misconfigured("Only one of BUTLERS_TLS_CERT and BUTLERS_TLS_KEY is set.", "Set both or neither.")


def is_loopback(host: str) -> bool:
    """Return whether a host is this computer, so that nobody can listen in between."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _variable(field: str) -> str:
    return "DATABASE_URL" if field == "database_url" else _PREFIX + field.upper()


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "1" if value else "0"
        case timedelta():
            return f"{value.total_seconds():g}s"
        case Secret():
            text, passwords = _URL_PASSWORD.subn(_masked, value.reveal())
            return text if passwords and "?" not in text else MASK
        case _:
            return _URL_PASSWORD.sub(_masked, str(value))


def _masked(match: re.Match[str]) -> str:
    return f"{match[1]}:{MASK}@"


def variable(name: str) -> str | None:
    """Return a variable that another program's conventions name, and none of our settings does; None if it is empty."""
    return os.environ.get(name) or None
