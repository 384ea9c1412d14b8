"""The mail that a person writes in the sandbox, as its mail server puts it into the mailbox (RFC 5322). Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final

from shared.errors import InvalidInput

NAME: Final = "sandbox.test"
LONGEST_TEXT: Final = 100_000
LONGEST_LINE: Final = 500
ADDRESS: Final = re.compile(r"[^\s<>@,;:()\[\]\\\"]{1,64}@[A-Za-z0-9.-]{1,253}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a person wrote; `authenticated` says whether the mail server vouches for the sender's domain.

    `answers` is the Message-ID of the mail that it answers, if it is an answer.
    """

    sender: str
    to: str
    subject: str
    text: str
    name: str = ""
    answers: str = ""
    authenticated: bool = True
    # A file that comes with it: its name, its type and its bytes.
    file: tuple[str, str, bytes] | None = None


def written(draft: Draft, at: datetime, number: int) -> Mapping[str, str]:
    """Return the mail, whole; raise InvalidInput for what is no address, or too long."""
    for address in (draft.sender, draft.to):
        if not ADDRESS.fullmatch(address):
            raise InvalidInput("That is no e-mail address.", "Write one like anna@example.org.")
    if len(draft.text) > LONGEST_TEXT or any(len(one) > LONGEST_LINE for one in (draft.subject, draft.name)):
        raise InvalidInput("That mail is too long for the sandbox.", f"Write at most {LONGEST_TEXT} characters.")
    mail = EmailMessage(policy=SMTP)
    domain = draft.sender.rpartition("@")[2]
    message_id = f"<{int(at.timestamp())}.{number}@{domain}>"
    mail["Authentication-Results"] = f"{NAME}; dmarc={'pass' if draft.authenticated else 'fail'} header.from={domain}"
    mail["From"] = Address(_plain(draft.name), addr_spec=draft.sender)
    mail["To"] = draft.to
    mail["Subject"] = _plain(draft.subject)
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = message_id
    if draft.answers:
        mail["In-Reply-To"] = mail["References"] = _plain(draft.answers)
    mail.set_content(draft.text.encode("utf-8", "replace").decode())
    if draft.file is not None:
        name, kind, body = draft.file
        main, _, sub = kind.partition("/")
        mail.add_attachment(body, maintype=main, subtype=sub, filename=name)
    said = {"to": draft.to, "sender": draft.sender, "subject": _plain(draft.subject), "message_id": message_id}
    return {**said, "raw": mail.as_bytes().decode(errors="surrogateescape")}


def _plain(text: str) -> str:
    return " ".join(text.encode("utf-8", "replace").decode().split())
