"""One look into the mailbox, read-only, for what came back since the last one. Blocking, so it runs in a thread.

Of each new message the Content-Type is fetched, and only of a delivery report its beginning, without marking anything
as read. The password crosses a network encrypted or not at all, and stands in no error message.
"""

import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from imaplib import IMAP4, IMAP4_SSL
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from messenger.channels.email import trust
from messenger.channels.smtp import Relay
from messenger.inbound.dsn import LIMIT_BYTES, Bounce, is_report, parse
from shared.errors import Misconfigured, Unavailable

# For connecting and for each answer; and how long new messages are taken up before the rest waits for the next look.
ANSWER_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 60.0
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# A connection that fails, a server that says no, and all that the library raises where a server talks nonsense.
UNREADABLE: Final = (IMAP4.error, OSError, ValueError, LookupError, TypeError, AttributeError)
REMEDY: Final = "Write imaps:// in BUTLERS_IMAP_URL, or let the server offer STARTTLS."


@dataclass(frozen=True, slots=True)
class Seen:
    """How far the mailbox was read, and since which day anything may be new."""

    uidvalidity: int
    last_uid: int
    since: date


@dataclass(frozen=True, slots=True)
class Found:
    """How far it is read now, and what came back, by the message's number; `whole` if nothing was left for later."""

    uidvalidity: int
    last_uid: int
    bounces: tuple[tuple[int, Bounce], ...]
    whole: bool


def account_from(url: str) -> Relay:
    """Return the account in imap[s]://user:password@host:port; raise Misconfigured, never quoting the URL."""
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not parts.hostname or not user or any(sign in user + password for sign in "\r\n\0"):
        remedy = "Set BUTLERS_IMAP_URL like imaps://user:password@mail.example.org:993 (percent-encode the login)."
        raise Misconfigured("The mailbox URL has no usable login.", remedy)
    if parts.scheme == "imaps":
        return Relay(parts.hostname, parts.port or 993, user, password, "tls")
    return Relay(parts.hostname, parts.port or 143, user, password, "starttls")


class Look:
    """One look into the mailbox, which another thread can end."""

    def __init__(self, account: Relay, seen: Seen) -> None:
        self._account = account
        self._seen = seen
        self._server: IMAP4 | None = None
        self._is_over = False

    def stop(self) -> None:
        """End the look soon, wherever it is."""
        self._is_over = True
        if self._server is not None:
            with suppress(OSError):
                # Not the TLS socket's own shutdown, which takes away what the reading thread is using.
                socket.socket.shutdown(self._server.sock, socket.SHUT_RDWR)

    def take(self) -> Found:
        """Return what is new; raise Misconfigured or Unavailable in words that hold no secret."""
        try:
            server = self._server = self._connected()
            try:
                _log_in(server, self._account)
                return self._read(server)
            finally:
                with suppress(IMAP4.error, OSError):
                    server.logout()
                with suppress(OSError):  # a logout that fails closes nothing
                    server.shutdown()
        except UNREADABLE as failed:
            said = " ".join(str(failed).split()) or type(failed).__name__
            said = said.replace(self._account.password, "***") if self._account.password else said
            raise Unavailable(f"The mailbox cannot be read: {said[:200]}.", "Butlers retries by itself.") from None

    def _connected(self) -> IMAP4:
        account = self._account
        if account.tls == "tls":
            return IMAP4_SSL(account.host, account.port, ssl_context=trust(account), timeout=ANSWER_SECONDS)
        return IMAP4(account.host, account.port, timeout=ANSWER_SECONDS)

    def _read(self, server: IMAP4) -> Found:
        """Select the mailbox by EXAMINE, which changes nothing, then read all that is new in order of arrival."""
        _demand(*server.select("INBOX", readonly=True))
        uidvalidity = int(server.response("UIDVALIDITY")[1][0] or 0)
        done = self._seen.last_uid if uidvalidity == self._seen.uidvalidity else 0
        # A range that ends in * holds the last message, however small its number is.
        new = sorted(uid for uid in self._numbers(server, done) if uid > done)
        bounces: list[tuple[int, Bounce]] = []
        until = time.monotonic() + LOOK_SECONDS
        for uid in new:
            if self._is_over or time.monotonic() > until:
                return Found(uidvalidity, done, tuple(bounces), whole=False)
            bounces += ((uid, bounce) for bounce in _came_back(server, uid))
            done = uid
        return Found(uidvalidity, done, tuple(bounces), whole=True)

    def _numbers(self, server: IMAP4, done: int) -> list[int]:
        since = self._seen.since
        day = f"{since.day}-{MONTHS[since.month - 1]}-{since.year}"
        found = _demand(*server.uid("SEARCH", "UID", f"{done + 1}:*", "SINCE", day))
        return [int(number) for number in (found[0] or b"").split()]


def _came_back(server: IMAP4, uid: int) -> tuple[Bounce, ...]:
    """Return what this message reports; of one that is no report nothing but its Content-Type is fetched."""
    header = _fetched(server, uid, "HEADER.FIELDS (CONTENT-TYPE)", "")
    return parse(_fetched(server, uid, "", f"<0.{LIMIT_BYTES}>")) if is_report(header) else ()


def _fetched(server: IMAP4, uid: int, section: str, beginning: str) -> bytes:
    """Fetch a piece of a message, which stays unread; return it, empty where the message is gone."""
    items = _demand(*server.uid("FETCH", str(uid), f"(BODY.PEEK[{section}]{beginning})"))
    return next((item[1] for item in items if isinstance(item, tuple)), b"")


def _log_in(server: IMAP4, account: Relay) -> None:
    """Encrypt where it is not yet, then give the login; raise Misconfigured if the login is refused."""
    if account.tls == "starttls" and "STARTTLS" in server.capabilities:
        server.starttls(trust(account))
    if not (account.is_loopback or isinstance(server.sock, ssl.SSLSocket)):
        raise Misconfigured("The mailbox server offers no encryption, and passwords are not sent unencrypted.", REMEDY)
    try:
        if "AUTH=PLAIN" in server.capabilities:
            server.authenticate("PLAIN", lambda _: f"\0{account.user}\0{account.password}".encode())
        else:
            _demand(*server.login(_quoted(account.user), account.password))
    except IMAP4.abort:
        raise
    except IMAP4.error:
        raise Misconfigured("The mailbox server rejects the login.", "Correct the login in BUTLERS_IMAP_URL.") from None


def _quoted(user: str) -> str:
    """Return the user as a quoted string (RFC 3501); the library quotes the password alone."""
    escaped = user.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _demand(kind: str, items: list[Any]) -> list[Any]:
    """Return the items of an answer that says OK; raise IMAP4.error for another."""
    if kind != "OK":
        raise IMAP4.error(f"it answered {kind}")
    return items
