"""The realm that each channel works in: a bot, a mail account, or the sandbox where nothing else is set."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from shared.channels import CHANNELS
from shared.channels.base import Credential
from shared.config.settings import Secret, Settings, is_loopback
from shared.db.pool import Connection
from shared.errors import Misconfigured

SANDBOX_TOKEN: Final = "1:sandbox"  # noqa: S105  # opens only the sandbox, which asks for none
SANDBOX: Final = "sandbox"
# What vouches for a sender there: whoever writes a mail says whether it does.
SANDBOX_SERVER: Final = "sandbox.test"
# They ask who is there, whatever the channels are.
OWN_SURFACES: Final = frozenset({"console", "cli"})
NOT_HERE: Final = "This is the sandbox. Live messages are decided in the console or with `butlers approvals`."
CONSOLE_ONLY: Final = "Live messages can be approved only in the console, because"
ASK_ELSEWHERE: Final = (
    "Set BUTLERS_TELEGRAM_TOKEN, or give the owner an address on the live channel by `butlers contacts set --primary`."
)
PAIR: Final = "Run `butlers pair telegram`, open the link that it prints, and press Start."

NOTED = "SELECT channel, realm FROM shared.channels"
SENDER = "SELECT sender FROM shared.channels WHERE channel = $1"
WRITE = """
INSERT INTO shared.channels AS c (channel, realm, sender) VALUES ($1, $2, $3)
ON CONFLICT (channel) DO UPDATE SET realm = $2, sender = $3, changed_at = clock_timestamp()
WHERE (c.realm, c.sender) IS DISTINCT FROM ($2, $3)
"""
WORKS = """
SELECT EXISTS (SELECT FROM shared.channels
    WHERE seen_at BETWEEN clock_timestamp() - $1::interval AND clock_timestamp() + $1::interval)
"""
SEEN = """
UPDATE shared.channels SET seen_at = CASE WHEN $3 THEN clock_timestamp() END WHERE channel = $1 AND realm = $2
"""
UNASKED = """
SELECT realm FROM shared.channels WHERE channel = 'telegram'
    AND EXISTS (SELECT FROM shared.channels WHERE realm <> 'sandbox')
    AND NOT EXISTS (SELECT FROM messenger.owner_at WHERE realm <> 'sandbox')
"""


@dataclass(frozen=True, slots=True)
class Configured:
    """The servers, credentials and realms that the Messenger sends by."""

    telegram_url: str
    token: Secret
    smtp_url: Secret
    # Where the sandbox hands out the mails that people write there.
    imap_url: Secret
    # By channel: what it works in, and the address its messages come from, which may be empty.
    realms: Mapping[str, str]
    senders: Mapping[str, str]


def sandbox_url(settings: Settings) -> str:
    """Return where the sandbox is: as set, or beside the other daemons of this installation."""
    return settings.sandbox_url or f"http://{settings.reached_at}:{settings.port_base + 3}"


def configured(settings: Settings) -> Configured:
    """Return live channels where credentials are given, and the sandbox for the rest."""
    sandbox_smtp = settings.sandbox_smtp_url or Secret(f"smtp://{settings.reached_at}:{settings.port_base + 4}")
    return Configured(
        telegram_url=settings.telegram_base_url if settings.telegram_token else sandbox_url(settings),
        token=settings.telegram_token or Secret(SANDBOX_TOKEN),
        smtp_url=settings.smtp_url or sandbox_smtp,
        imap_url=settings.sandbox_imap_url or Secret(f"imap://{settings.reached_at}:{settings.port_base + 5}"),
        realms={name: realm_of(settings, name) for name in CHANNELS},
        senders={name: _sender_of(settings, name) for name in CHANNELS},
    )


def in_clear(settings: Settings) -> Mapping[str, tuple[str, str]]:
    """Return by live channel that leaves this computer unencrypted: what others on the way can read, and the remedy."""
    found = dict[str, tuple[str, str]]()
    bot = urlsplit(settings.telegram_base_url)
    if settings.telegram_token is not None and bot.scheme == "http" and not is_loopback(bot.hostname or ""):
        text = "The bot's token and all messages are sent unencrypted: BUTLERS_TELEGRAM_BASE_URL is http://."
        found["telegram"] = (text, "Use https://, or remove it.")
    mail = urlsplit(settings.smtp_url.reveal()) if settings.smtp_url is not None else None
    # With a login STARTTLS is demanded.
    if mail is not None and mail.scheme == "smtp" and not mail.username and not is_loopback(mail.hostname or ""):
        text = "Mails may be sent unencrypted: BUTLERS_SMTP_URL is smtp:// without a login."
        found["email"] = (text, "Use smtps://, or add a login, which requires encryption.")
    return found


def unvouched(settings: Settings) -> tuple[str, str] | None:
    """Return why no mail from the live mailbox counts as the owner's, and the remedy; None where that is not so."""
    if settings.imap_url is None or settings.mail_authserv_id is not None:
        return None
    text = "No mail counts as yours: BUTLERS_MAIL_AUTHSERV_ID is not set."
    return text, "Set it to the name by which your own mail server signs its Authentication-Results."


def unaddressed(set_up: Configured) -> tuple[str, str] | None:
    """Return why messages to people would come from the sandbox's own address, and the remedy; None if none would."""
    for name, realm in set_up.realms.items():
        if realm != SANDBOX and set_up.senders[name] == (CHANNELS[name].sandbox_sender or None):
            return "Mails need an address that they come from.", "Set BUTLERS_EMAIL_FROM."
    return None


def realm_of(settings: Settings, channel: str) -> str:
    """Return the realm in which a process with these settings works on that channel."""
    opened_by = _opened_by(settings, channel)
    return opened_by[0].realm(opened_by[1].reveal()) if opened_by else SANDBOX


def _sender_of(settings: Settings, channel: str) -> str:
    opened_by = _opened_by(settings, channel)
    given: str | None = getattr(settings, opened_by[0].sender_setting, None) if opened_by else None
    return given or CHANNELS[channel].sandbox_sender


def _opened_by(settings: Settings, channel: str) -> tuple[Credential, Secret] | None:
    """Return what a live channel is opened by; None for the sandbox."""
    credential = CHANNELS[channel].credential
    secret: Secret | None = getattr(settings, credential.setting) if credential else None
    return (credential, secret) if credential and secret else None


def may_ask(realm: str, about: str) -> bool:
    """Return whether the owner may be asked, in this realm, about what is in the realm `about`.

    INVARIANT: the sandbox, which asks nobody who they are, is shown what is its own and nothing live.
    """
    return realm != SANDBOX or about == SANDBOX


def may_decide(surface: str, realm: str | None, about: str) -> bool:
    """Return whether an answer counts that this surface gives on what is in the realm `about`.

    It counts where the owner might have been asked; a surface that names no realm is taken for the sandbox.
    """
    return surface in OWN_SURFACES or may_ask(realm or SANDBOX, about)


# INVARIANT: the sandbox, where anybody can write in the owner's name, begins nothing that reaches people.
REACHES_PEOPLE: Final = "EXISTS (SELECT FROM shared.channels WHERE realm <> 'sandbox')"
PLAYED: Final = f"""
SELECT EXISTS (SELECT FROM shared.channels WHERE channel = $1 AND realm = 'sandbox') AND {REACHES_PEOPLE}
"""
# Where the sandbox brings in what people write there.
PLACES: Final = "('1', 'butlers@sandbox.test')"


async def is_played(connection: Connection, channel: str) -> bool:
    """Return whether that channel is the sandbox while another reaches real people."""
    return bool(await connection.fetchval(PLAYED, channel))


async def console_only(connection: Connection) -> tuple[str, str] | None:
    """Return why live messages can be asked about only on the console, and the remedy; None where that is not so."""
    telegram = await connection.fetchval(UNASKED)
    if telegram is None:
        return None
    if telegram == SANDBOX:
        return f"{CONSOLE_ONLY} Telegram is the sandbox.", ASK_ELSEWHERE
    return f"{CONSOLE_ONLY} the owner has no private chat with the bot.", PAIR


async def sender(connection: Connection, channel: str) -> str:
    """Return the address that our messages on a channel come from, empty where it has none."""
    found: str = await connection.fetchval(SENDER, channel)
    return found


async def noted(connection: Connection) -> dict[str, str]:
    """Return by channel the realm that it was last set up for."""
    return {row["channel"]: row["realm"] for row in await connection.fetch(NOTED)}


WERE_LIVE = "SELECT DISTINCT channel FROM messenger.deliveries WHERE realm <> 'sandbox'"


async def were_live(connection: Connection) -> set[str]:
    """Return the channels by which something was to reach people, whatever they are set up for now."""
    return {row["channel"] for row in await connection.fetch(WERE_LIVE)}


async def messenger_works(connection: Connection, counts: timedelta) -> bool:
    """Return whether a Messenger was seen within `counts`: it alone says then where its channels go."""
    return bool(await connection.fetchval(WORKS, counts))


async def demand_same(connection: Connection, set_up: Configured, counts: timedelta) -> None:
    """Raise Misconfigured where a Messenger runs that sends elsewhere: every answer would count for its realm."""
    there = await noted(connection)
    others = [name for name, realm in set_up.realms.items() if there.get(name, realm) != realm]
    if others and await messenger_works(connection, counts):
        named = " and ".join(CHANNELS[name].label for name in others)
        raise Misconfigured(
            f"A Messenger is running that sends elsewhere by {named} than this one would.",
            "Give this one the same settings, or stop the other; one that was killed counts for half a minute.",
        )


async def write_channels(connection: Connection, set_up: Configured) -> None:
    """Store the realm and sender of each channel, so that others know which realm their messages are for.

    Raises Misconfigured where messages to people would come from the sandbox's own address.
    """
    if wrong := unaddressed(set_up):
        raise Misconfigured(*wrong)
    for name, realm in set_up.realms.items():
        await connection.execute(WRITE, name, realm, set_up.senders[name])


async def note_seen(connection: Connection, set_up: Configured, *, is_here: bool) -> None:
    """Note that a Messenger works by these channels, or that it does no more."""
    for name, realm in set_up.realms.items():
        await connection.execute(SEEN, name, realm, is_here)
