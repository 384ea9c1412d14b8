"""The question put to the owner before a message goes to somebody else: one text for card, mail, page and command line.

Every word of others is shown as data. What the house says it computes itself; of a butler's own words there are only
its message and what it says about it, as quotations. Pure.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.channels import CHANNELS
from shared.display.quotes import Quote, quotation, written
from shared.display.visible import in_line
from shared.hashing import short

NO_ADDRESS: Final = "no address on file"
UNKNOWN: Final = "an unknown recipient"
WANTS: Final = {"send": "message", "reply": "reply to", "react": "react to"}
# The longest words of others in a line of ours, so that they cannot fill the screen.
NAME_ROOM: Final = 40
THREAD_ROOM: Final = 100
SUMMARY_ROOM: Final = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """One question as it stands now: what would go out, to whom, and why it is asked.

    `thread` is the message that is answered or reacted to, as it would go out; `address` is empty where there is none
    on file, and `deliverable` is false where it cannot be sent to. `findings` are the house's own reasons, `summary` is
    what its butler says about it beyond them, and may be empty.
    """

    origin: str
    admitted_by: str
    intent: str
    channel: str
    contact_id: str
    name: str
    address: str
    deliverable: bool
    subject: str
    emoji: str
    thread: str
    findings: tuple[str, ...]
    summary: str
    until: datetime
    message: str
    content_sha: str | None

    @property
    def whom(self) -> str:
        """The name on file and the address that is used."""
        return whom(self.channel, self.name, self.address)

    @property
    def short(self) -> str:
        """The part of the content's hash that the owner is shown."""
        return in_line(short(self.content_sha))


def lines(asked: Asked) -> list[str]:
    """Return the whole question, for mails and terminals: each row of somebody's words begins with a mark."""
    told = ["\n".join(head(asked)), *map(quotation, quotes(asked)), "\n".join(foot(asked))]
    return "\n\n".join(told).split("\n")


def head(asked: Asked) -> list[str]:
    """Return what stands above the words of others: who wants to message whom by what, and in which thread."""
    mark, thread = marking(asked.origin, asked.admitted_by), thread_words(asked)
    return [
        wants(asked),
        *([mark] if mark else []),
        *([f"{'Reaction' if asked.intent == 'react' else 'Reply'} to {thread}"] if thread else []),
    ]


def wants(asked: Asked) -> str:
    """Return who wants to message whom by what: `Greeter wants to message Anna on Telegram (4242)`."""
    name, address = called(asked.channel, asked.name, asked.address), in_line(asked.address or NO_ADDRESS)
    via = CHANNELS[asked.channel].via
    return f"{titled(asked.origin)} wants to {WANTS[asked.intent]} {name or UNKNOWN} {via} ({address})"


def titled(butler: str) -> str:
    """Return a butler's name as the first word of a line."""
    name = in_line(butler)
    return f"{name[:1].upper()}{name[1:]}"


def quotes(asked: Asked) -> tuple[Quote, ...]:
    """Return the words of others: what would go out, and what its butler says about it."""
    summary = asked.summary
    more = f" ... ({len(summary)} characters)" if len(summary) > SUMMARY_ROOM else ""
    own = (Quote(f"{summary[:SUMMARY_ROOM]}{more}", f"{titled(asked.origin)} says"),) if summary else ()
    return (*written(asked.subject, asked.emoji, asked.message), *own)


def foot(asked: Asked) -> list[str]:
    """Return what stands below the words of others, right above the buttons.

    It says why it is asked, until when, and once more to whom and what.
    """
    why = [f"Why: {in_line(' '.join(asked.findings))}"] if asked.findings else []
    return [*why, f"Expires {local(asked.until)}", f"To {asked.whom}: {measured(asked.message)}, hash {asked.short}"]


def local(at: datetime) -> str:
    """Return a moment in the time zone of this process, with its offset: `Wed 25 Nov 2026 14:52 UTC+01:00`."""
    here = at.astimezone()
    return f"{here:%a %-d %b %Y %H:%M} UTC{here.isoformat()[-6:] if here.utcoffset() else ''}"


def thread_words(asked: Asked) -> str:
    """Return which message is answered or reacted to; empty where there is none."""
    if not asked.thread:
        return ""
    place, _, number = (clipped(part, NAME_ROOM) for part in asked.thread.rpartition(":"))
    words = CHANNELS[asked.channel].thread.words
    return words.format(thread=clipped(asked.thread, THREAD_ROOM), place=place, number=number)


def clipped(text: str, room: int) -> str:
    """Return words of others for a line of ours; of longer ones only the beginning."""
    shown = in_line(text)
    return shown if len(shown) <= room else f"{shown[: room - 3]}..."


def measured(text: str) -> str:
    """Return how long a text is, as words."""
    return f"{len(text)} character{'' if len(text) == 1 else 's'}"


def whom(channel: str, name: str, address: str) -> str:
    """Return a name on file and the address that is used, which is never cut."""
    return f"{called(channel, name, address) or 'unknown'} ({in_line(address or NO_ADDRESS)})"


def called(channel: str, name: str, address: str) -> str:
    """Return a name, and that the address is a group's if it is; empty where neither says who that is."""
    return ", ".join(one for one in (clipped(name, NAME_ROOM), CHANNELS[channel].address.group(address)) if one)


def marking(origin: str, admitted_by: str) -> str:
    """Return the line that says who admitted a message in its butler's name; empty if the butler did so itself."""
    return "" if admitted_by == origin else f"Submitted by {in_line(admitted_by)} on behalf of {in_line(origin)}."
