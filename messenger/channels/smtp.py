"""The words of SMTP as pure functions: where a mail goes, what is written, what a reply proves (RFC 5321)."""

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from messenger.channels.base import Reason, Receipt, SendFailed
from shared.channels.base import Wire
from shared.errors import InvalidInput, Misconfigured

_BARE_LINE_END = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_LEADING_DOT = re.compile(rb"^\.", re.MULTILINE)
# What may stand between < and >: visible ASCII without brackets, so no address can end its command.
_ENVELOPE = re.compile(r"[!-;=?-~]{1,320}", re.ASCII)
_MESSAGE_ID = re.compile(rb"^Message-ID:[ \t]*([!-~]+)", re.IGNORECASE | re.MULTILINE)
_TAKEN = range(200, 300)
_NOT_TAKEN = range(400, 600)
FOR_GOOD = range(500, 600)
_LOGIN_WANTED = frozenset({530, 534, 535, 538})


@dataclass(frozen=True, slots=True)
class Relay:
    """The mail server. 'starttls' encrypts when offered, and must when a login would cross a network."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    tls: Literal["none", "starttls", "tls"] = "starttls"

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this computer, so that nobody can stand between."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Failed(Exception):
    """An outcome raised out of a stage before the dot; always proved not sent."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.outcome = SendFailed(reason, message, proved_not_sent=True)


def relay_from(url: str) -> Relay:
    """Return the relay in smtp[s]://user:password@host:port; raise Misconfigured, never quoting the URL."""
    remedy = "Set BUTLERS_SMTP_URL like smtps://user:password@mail.example.org:465 (percent-encode the login)."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Misconfigured("The mail URL is not valid.", remedy) from None
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise Misconfigured("The mail URL is not smtp:// or smtps:// with a host.", remedy)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if parts.scheme == "smtps":
        return Relay(parts.hostname, port or 465, user, password, "tls")
    return Relay(parts.hostname, port or (587 if user else 25), user, password, "starttls")


def stuffed(body: bytes) -> tuple[bytes, bytes]:
    """Return what DATA carries, dot-stuffed, and the terminator to hold back (RFC 5321 4.5.2).

    Raises InvalidInput for a CR or LF outside a pair: servers disagree where such a text ends.
    """
    if _BARE_LINE_END.search(body):
        raise InvalidInput("The mail holds a bare CR or LF.", "Render it with CRLF line ends.")
    text = _LEADING_DOT.sub(b"..", body)
    return text, b".\r\n" if text.endswith(b"\r\n") or not text else b"\r\n.\r\n"


def envelope(wire: Wire) -> tuple[bytes, bytes]:
    """Return the two addresses of MAIL and RCPT, exactly as in the wire."""
    if not (_ENVELOPE.fullmatch(wire.sender) and _ENVELOPE.fullmatch(wire.to)):
        raise InvalidInput("An address cannot stand in an SMTP command.", "Use one plain address.")
    return wire.sender.encode("ascii"), wire.to.encode("ascii")


def judge(wire: Wire, code: int, text: str) -> Receipt | SendFailed:
    """Return what the reply to the final dot proves: 2xx is the receipt, 4xx and 5xx say it was not taken."""
    if code in _TAKEN:
        head = wire.body.partition(b"\r\n\r\n")[0]
        found = _MESSAGE_ID.search(head)
        return Receipt(found[1].decode("ascii") if found else "", f"{code} {text}")
    if code in _NOT_TAKEN:
        reason, message = refusal(code, text)
        return SendFailed(reason, message, proved_not_sent=True)
    return SendFailed("unreadable", f"{code} {text}", proved_not_sent=False)


def refusal(code: int, text: str) -> tuple[Reason, str]:
    """Return why, in a reason and a text, a reply other than the one wanted means not sent."""
    if code in _LOGIN_WANTED:
        return "unauthorized", f"{code} {text}"
    return ("provider_rejected" if code in FOR_GOOD else "unavailable"), f"{code} {text}"


def one_line(text: str) -> str:
    """Return a reply's text as one printable line."""
    return " ".join(text.encode(errors="replace").decode().split())
