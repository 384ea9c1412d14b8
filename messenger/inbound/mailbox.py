"""A connection to the mailbox, read-only, for what came since the last look. Blocking, so it runs in a thread.

Of each new message only the beginning is fetched, without marking anything as read. Where nothing is new, the server is
asked to say when something is (IDLE, RFC 2177). The password crosses a network encrypted or not at all, and stands in
no error message.
"""

import re
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from imaplib import IMAP4
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from messenger.channels.email import trust
from messenger.channels.imap import Bounded, BoundedTls
from messenger.channels.smtp import Relay
from messenger.inbound.mail.dsn import LIMIT_BYTES, Bounce, is_report, parse
from messenger.inbound.mail.letter import Letter, letter_of
from shared.errors import Misconfigured, Unavailable
from shared.telemetry.logs import logger

log = logger("messenger.inbound.mailbox")
T = TypeVar("T")
# For connecting and for each answer; and how long new messages are taken up before the rest waits for the next look.
ANSWER_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 30.0
MOST_AT_ONCE: Final = 50
# Of a mail that is larger the rest is not read.
LARGEST: Final = 1_048_576
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Server and database may disagree on the time; a restore adds nearly as much (`shared/storage/restored.py`).
CLOCKS_APART: Final = timedelta(minutes=10)
_INTERNALDATE: Final = re.compile(r'INTERNALDATE "([^"]{1,40})"', re.IGNORECASE)
# A connection that fails, a server that says no, and all that the library raises where a server talks nonsense.
UNREADABLE: Final = (IMAP4.error, OSError, ValueError, LookupError, TypeError, AttributeError)
REMEDY: Final = "Write imaps:// in BUTLERS_IMAP_URL, or let the server offer STARTTLS."


@dataclass(frozen=True, slots=True)
class Seen:
    """How far the mailbox was read, since which day anything may be new, and since when mails count; None if never."""

    uidvalidity: int
    last_uid: int
    since: date
    mails_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class Arrived:
    """A mail, and when the server got it, if it says that."""

    letter: Letter
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Found:
    """How far it is read now, and what came, by its number; `whole` if nothing was left for later.

    `woken` says that the server was asked to wait, and that it is time to look again.
    """

    uidvalidity: int
    last_uid: int
    items: tuple[tuple[int, Bounce | Arrived], ...]
    whole: bool
    woken: bool = False


def account_from(url: str) -> Relay:
    """Return the account in imap[s]://user:password@host:port, which the settings have checked."""
    parts = urlsplit(url)
    host, user, password = parts.hostname or "", unquote(parts.username or ""), unquote(parts.password or "")
    if parts.scheme == "imaps":
        return Relay(host, parts.port or 993, user, password, "tls")
    return Relay(host, parts.port or 143, user, password, "starttls")


def sandbox_feed(url: str) -> Relay:
    """Return where the sandbox hands out its mails, for which there is no login."""
    parts = urlsplit(url)
    return Relay(parts.hostname or "127.0.0.1", parts.port or 143, tls="none")


class Mailbox:
    """A connection that stays open from look to look, and that another thread can end.

    `server` names the mail server whose word on a sender counts, of mails to `address`.
    """

    def __init__(self, account: Relay, server: str | None = None, address: str = "") -> None:
        self.account = account
        self._vouching = server, address
        self._server: IMAP4 | None = None
        self._is_over = False

    def stop(self) -> None:
        """End the look soon, wherever it is."""
        self._is_over = True
        if self._server is not None:
            with suppress(OSError):
                # Not the TLS socket's own shutdown, which takes away what the reading thread is using.
                socket.socket.shutdown(self._server.sock, socket.SHUT_RDWR)

    def take(self, seen: Seen, wait: float = 0.0) -> Found:
        """Return what is new; where nothing is, wait so many seconds for the server to say that something is.

        Raises Misconfigured or Unavailable in words that hold no secret.
        """
        try:
            return self._taken(seen, wait)
        except Misconfigured:
            self.close()
            raise
        except UNREADABLE as failed:
            self.close()
            raise self._unreadable(failed) from None

    def _unreadable(self, failed: Exception) -> Unavailable:
        said = " ".join(str(failed).split()) or type(failed).__name__
        said = said.replace(self.account.password, "***") if self.account.password else said
        return Unavailable(f"The mailbox cannot be read: {said[:200]}.", "Butlers retries by itself.")

    def read_once(self, read: Callable[[IMAP4], T]) -> T:
        """Return what is read of the mailbox over a connection of its own.

        Raises what `read` does, Misconfigured, or Unavailable in words that hold no secret.
        """
        try:
            self._server = self._connected()
            _log_in(self._server, self.account)
            _demand(*self._server.select("INBOX", readonly=True))
            return read(self._server)
        except UNREADABLE as failed:
            raise self._unreadable(failed) from None
        finally:
            self.close()

    def close(self) -> None:
        """Log out and close the connection, if there is one."""
        server, self._server = self._server, None
        if server is not None:
            with suppress(IMAP4.error, OSError):
                server.logout()
            with suppress(OSError):  # a logout that fails closes nothing
                server.shutdown()

    def _taken(self, seen: Seen, wait: float) -> Found:
        if self._server is None:
            self._server = self._connected()
            _log_in(self._server, self.account)
        found = self._read(self._server, seen)
        if found.items or not found.whole or found.last_uid != seen.last_uid or not wait or self._is_over:
            return found
        return replace(found, woken=_idled(self._server, wait))

    def _connected(self) -> IMAP4:
        account = self.account
        if account.tls == "tls":
            return BoundedTls(account.host, account.port, ssl_context=trust(account), timeout=ANSWER_SECONDS)
        return Bounded(account.host, account.port, timeout=ANSWER_SECONDS)

    def _read(self, server: IMAP4, seen: Seen) -> Found:
        """Select the mailbox by EXAMINE, which changes nothing, then read all that is new in order of arrival."""
        _demand(*server.select("INBOX", readonly=True))
        uidvalidity, following = (int(server.response(name)[1][0] or 0) for name in ("UIDVALIDITY", "UIDNEXT"))
        # A mailbox that was put back from a copy gives numbers that are known already to other mails.
        done = 0 if uidvalidity != seen.uidvalidity or 0 < following <= seen.last_uid else seen.last_uid
        # A range that ends in * holds the last message, however small its number is.
        new = sorted(uid for uid in _numbers(server, done, seen.since) if uid > done)
        items: list[tuple[int, Bounce | Arrived]] = []
        until = time.monotonic() + LOOK_SECONDS
        for uid in new:
            if self._is_over or len(items) >= MOST_AT_ONCE or time.monotonic() > until:
                return Found(uidvalidity, done, tuple(items), whole=False)
            items += ((uid, item) for item in self._item(server, uid, seen.mails_from))
            done = uid
        return Found(uidvalidity, done, tuple(items), whole=True)

    def _item(self, server: IMAP4, uid: int, mails_from: datetime | None) -> tuple[Bounce | Arrived, ...]:
        """Return what this message is: bounces, a mail, or nothing that is read."""
        raw, at = fetched_piece(server, uid, LARGEST if mails_from else LIMIT_BYTES)
        try:
            if is_report(raw):
                return parse(raw)
            if mails_from is None or (at is not None and at < mails_from - CLOCKS_APART):
                return ()
            # The end of a line that the limit cuts in two is none.
            letter = letter_of(raw.removesuffix(b"\r"), *self._vouching, cut=len(raw) >= LARGEST)
        except UNREADABLE as odd:
            # Of one mail, and not of the mailbox, whose other mails would wait behind it for ever.
            log.warning("a mail is passed over, since it cannot be read", number=uid, why=type(odd).__name__)
            return ()
        return (Arrived(letter, at),) if raw else ()


def _numbers(server: IMAP4, done: int, since: date) -> list[int]:
    day = f"{since.day}-{MONTHS[since.month - 1]}-{since.year}"
    found = _demand(*server.uid("SEARCH", "UID", f"{done + 1}:*", "SINCE", day))
    return [int(number) for number in (found[0] or b"").split()]


def all_named(server: IMAP4, message_id: str) -> list[int]:
    """Return the numbers of the mails with that Message-ID, in order of arrival; anybody may have used it again."""
    found = _demand(*server.uid("SEARCH", "HEADER", "MESSAGE-ID", _quoted(message_id)))
    return sorted(int(number) for number in (found[0] or b"").split())


def fetched_piece(server: IMAP4, uid: int, most: int, section: str = "") -> tuple[bytes, datetime | None]:
    """Fetch the beginning of a message or of its part, which stays unread; return it, and when the message came.

    It is empty where the message is gone. INVARIANT: the answer has an end, and holds no header fields by their names:
    some servers die of that where a head has many megabytes, and would be asked for the same mail at every look.
    """
    items = _demand(*server.uid("FETCH", str(uid), f"(INTERNALDATE BODY.PEEK[{section}]<0.{most}>)"))
    piece = next((item[1] for item in items if isinstance(item, tuple)), b"")
    said = b" ".join(item[0] if isinstance(item, tuple) else item for item in items if item)
    return piece, _received(said.decode("ascii", "replace"))


def _received(said: str) -> datetime | None:
    """Return the time at which the server got a message, if it says one that can be."""
    found = _INTERNALDATE.search(said)
    try:
        day, month, rest = found[1].strip().split("-", 2) if found else ("", "", "")
        number = MONTHS.index(month.capitalize()) + 1
        return datetime.strptime(f"{day} {number} {rest}", "%d %m %Y %H:%M:%S %z")
    except ValueError:
        return None


def _idled(server: IMAP4, seconds: float) -> bool:
    """Wait until the server says anything, or so many seconds; return whether it knows how to."""
    if "IDLE" not in server.capabilities:
        return False
    server.send(b"IDLE1 IDLE\r\n")
    if not server.readline().startswith(b"+"):
        raise IMAP4.error("it does not wait")
    if not _has_more(server):
        poll = select.poll()
        poll.register(server.sock, select.POLLIN)
        poll.poll(seconds * 1000)
    server.send(b"DONE\r\n")
    while not (line := server.readline()).startswith(b"IDLE1 "):
        if not line:
            raise IMAP4.abort("it hung up")
    return True


def _has_more(server: IMAP4) -> bool:
    """Return whether the server has said more than was read, which its socket alone does not tell."""
    server.sock.settimeout(0)
    try:
        return bool(server.readline())
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    finally:
        server.sock.settimeout(ANSWER_SECONDS)


def _log_in(server: IMAP4, account: Relay) -> None:
    """Encrypt where it is not yet, then give the login; raise Misconfigured if the login is refused.

    INVARIANT: a server that wants no login is taken for ours only where there is none to give, in the sandbox.
    """
    if (server.state == "AUTH") != (not account.user):
        raise Misconfigured("The mailbox server and BUTLERS_IMAP_URL disagree on a login.", REMEDY)
    if not account.user:
        return
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
    # The list that came with the login stands before the answer.
    can = _demand(*server.capability())[-1] or b""
    server.capabilities = ("IDLE",) if b"IDLE" in can.upper().split() else ()


def _quoted(user: str) -> str:
    """Return the user as a quoted string (RFC 3501); the library quotes the password alone."""
    escaped = user.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _demand(kind: str, items: list[Any]) -> list[Any]:
    """Return the items of an answer that says OK; raise IMAP4.error for another."""
    if kind != "OK":
        raise IMAP4.error(f"it answered {kind}")
    return items
