"""Which realm each channel works in: a bot, a mail account, or the sandbox where nothing else is set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from shared.config import Secret, Settings, is_loopback
from shared.db import Connection

SANDBOX_TOKEN: Final = "1:sandbox"  # noqa: S105  # opens only the sandbox, which asks for none
SANDBOX: Final = "sandbox"
# The owner invented for a newcomer; nobody is there on a live channel.
SANDBOX_OWNER: Final = {"telegram": "5000000000000001", "email": "owner@sandbox.test"}
SANDBOX_SENDER: Final = "butlers@sandbox.test"

SENDER = "SELECT sender FROM shared.channels WHERE channel = 'email'"
WRITE = """
INSERT INTO shared.channels AS c (channel, realm, sender) VALUES ($1, $2, $3)
ON CONFLICT (channel) DO UPDATE SET realm = $2, sender = $3, changed_at = clock_timestamp()
WHERE (c.realm, c.sender) IS DISTINCT FROM ($2, $3)
"""


@dataclass(frozen=True, slots=True)
class Configured:
    """What the Messenger sends by."""

    telegram_url: str
    token: Secret
    telegram_realm: str
    smtp_url: Secret
    email_realm: str
    sender: str


def configured(settings: Settings) -> Configured:
    """Live channels where credentials are given, the sandbox for the rest."""
    base = settings.port_base
    sandbox = settings.sandbox_url or f"http://127.0.0.1:{base + 3}"
    sandbox_smtp = settings.sandbox_smtp_url or Secret(f"smtp://127.0.0.1:{base + 4}")
    live_telegram, live_mail = settings.telegram_token is not None, settings.smtp_url is not None
    token = settings.telegram_token or Secret(SANDBOX_TOKEN)
    account = urlsplit(settings.smtp_url.reveal()) if settings.smtp_url else None
    return Configured(
        telegram_url=settings.telegram_base_url if live_telegram else sandbox,
        token=token,
        telegram_realm=token.reveal().partition(":")[0] if live_telegram else SANDBOX,
        smtp_url=settings.smtp_url or sandbox_smtp,
        email_realm=f"{account.username or ''}@{account.hostname}" if account else "sandbox",
        sender=(settings.email_from or SANDBOX_SENDER) if live_mail else SANDBOX_SENDER,
    )


def in_clear(settings: Settings) -> Mapping[str, tuple[str, str]]:
    """By live channel that leaves this computer unencrypted: what anybody on the way can do, and the remedy."""
    found = dict[str, tuple[str, str]]()
    bot = urlsplit(settings.telegram_base_url)
    if settings.telegram_token is not None and bot.scheme == "http" and not is_loopback(bot.hostname or ""):
        text = "The bot's token and every message cross the network readable: BUTLERS_TELEGRAM_BASE_URL is http://."
        found["telegram"] = (text, "Give it as https://, or remove it.")
    mail = urlsplit(settings.smtp_url.reveal()) if settings.smtp_url is not None else None
    # With a login STARTTLS is demanded.
    if mail is not None and mail.scheme == "smtp" and not mail.username and not is_loopback(mail.hostname or ""):
        text = "Mails may cross the network readable: BUTLERS_SMTP_URL is smtp:// without a login."
        found["email"] = (text, "Give it as smtps://, or with a login, which demands encryption.")
    return found


async def sender(connection: Connection) -> str:
    """The From address of our mail."""
    found: str = await connection.fetchval(SENDER)
    return found


async def write_channels(connection: Connection, set_up: Configured) -> None:
    """Tell the others which realm their words are for."""
    await connection.execute(WRITE, "telegram", set_up.telegram_realm, "")
    await connection.execute(WRITE, "email", set_up.email_realm, set_up.sender)
