"""Parsers for the text of settings, one pure function for each kind of value.

Each returns the value, or raises ValueError whose text completes "... is not" (InvalidInput where an address is read).
"""

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from shared.addresses import canonical
from shared.channels import telegram

_LONGEST_LINE: Final = 200
_LEAST_MEMORY: Final = 256
_PORTS: Final = range(1024, 65401)
_BOT_TOKEN: Final = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]+", re.ASCII)
_WORDS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def line(text: str) -> str:
    """Return the text if it is one printable line of at most 200 characters, such as a name."""
    if not text.isprintable() or len(text) > _LONGEST_LINE:
        raise ValueError("one line of at most 200 characters")
    return text


def host(text: str) -> str:
    """Return the text if it can be a host name or an IP address to listen on."""
    if re.search(r"[\s/@]|://", text):
        raise ValueError("a host name or an IP address")
    return text


def mail_server(text: str) -> str:
    """Return the name by which a mail server signs its results, with or without the semicolon that follows it there."""
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?;?", text):
        raise ValueError("the name of a server, such as mx.example.org")
    return text.removesuffix(";")


def port_base(text: str) -> int:
    """Parse the port above which a fleet takes its ports: not a privileged one, and with room above it."""
    if not re.fullmatch(r"[0-9]{4,5}", text, re.ASCII) or int(text) not in _PORTS:
        raise ValueError("a port between 1024 and 65400")
    return int(text)


def positive(text: str) -> int:
    """Parse a whole number above zero."""
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or int(text) == 0:
        raise ValueError("a whole number above zero")
    return int(text)


def memory_mb(text: str) -> int:
    """Parse a number of megabytes, no fewer than a daemon needs to start."""
    if not re.fullmatch(r"[0-9]{1,7}", text, re.ASCII) or int(text) < _LEAST_MEMORY:
        raise ValueError(f"a whole number of megabytes, {_LEAST_MEMORY} at the least")
    return int(text)


def yes_or_no(text: str) -> bool:
    """Parse a switch, given in one of the usual words."""
    try:
        return _WORDS[text.lower()]
    except KeyError:
        raise ValueError("one of 1, 0, true, false, yes, no, on, off") from None


def bot_token(text: str) -> str:
    """Return the text if it has the form of a Bot API token."""
    if not _BOT_TOKEN.fullmatch(text):
        raise ValueError("a bot token as BotFather gives it, <digits>:<letters and digits>")
    return text


def email(text: str) -> str:
    """Return an e-mail address in its canonical form."""
    return canonical("email", text)


def private_chat(text: str) -> str:
    """Return the Telegram id of a person's own chat, in its canonical form."""
    value = canonical("telegram", text)
    if not telegram.is_private_chat(value):
        raise ValueError(telegram.SPEC.address.private)
    return value


def _url(text: str, schemes: tuple[str, ...]) -> str:
    expected = f"a URL such as {schemes[0]}://host:port"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(expected) from None
    if parts.scheme not in schemes or not parts.hostname or port == 0 or re.search(r"\s", text):
        raise ValueError(expected)
    return text


def web_url(text: str) -> str:
    """Return an http or https URL without its final slash; refuse one that carries credentials."""
    parts = urlsplit(_url(text, ("http", "https")))
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("a plain URL such as http://host:port, without user, query or fragment")
    return text.rstrip("/")


def origin_url(text: str) -> str:
    """Return a web URL that consists of scheme, host and port alone."""
    url = web_url(text)
    if urlsplit(url).path:
        raise ValueError("a URL without a path, such as https://api.telegram.org")
    return url


def api_key(text: str) -> str:
    """Return the key of a model's provider, as one word; a line break around it is dropped."""
    key = text.strip()
    if not re.fullmatch(r"[!-~]{8,1000}", key):
        raise ValueError("a key: one word of at least 8 ASCII characters")
    return key


def smtp_url(text: str) -> str:
    """Return the URL of the server that mail is handed to: smtp (STARTTLS where offered) or smtps."""
    return _url(text, ("smtp", "smtps"))


def imap_url(text: str) -> str:
    """Return the URL of the server that mail is read from: imaps or imap."""
    return _url(text, ("imaps", "imap"))


def mailbox_url(text: str) -> str:
    """Return the URL of a mailbox with its login; refuse one without, or with what no login holds."""
    parts = urlsplit(imap_url(text))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not user or re.search(r"[\r\n\0]", user + password):
        raise ValueError("a URL such as imaps://user:password@host:993, with its login percent-encoded")
    return text


def database_url(text: str) -> str:
    """Return a PostgreSQL URL as libpq reads it, several hosts and socket folders included.

    An @ after the first /, ? or # ends a login that is not encoded, which would be taken for a host, and shown as one.
    """
    expected = "a URL such as postgresql://user:password@host:5432/database, with its login percent-encoded"
    if not re.fullmatch(r"postgres(?:ql)?://[^/?#\s]*(?:[/?#][^@\s]*)?", text):
        raise ValueError(expected)
    try:
        urlsplit(text)
    except ValueError:  # a [ or ] outside a host
        raise ValueError(expected) from None
    return text
