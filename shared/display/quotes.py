"""Words of others among lines of ours. Pure."""

from dataclasses import dataclass
from typing import Final

from shared.display.visible import quoted


@dataclass(frozen=True, slots=True)
class Quote:
    """Words of others as they are, with a label of ours for what they are; without one they are the message itself."""

    text: str
    label: str = ""


_MARKS: Final = str.maketrans(dict.fromkeys('“”„‟«»"', "'"))


def in_marks(text: str, most: int) -> str:
    """Return words on one line in “quotation marks” that nothing in them can end; of longer ones the beginning."""
    said = " ".join(text.split()).translate(_MARKS)
    return f"“{said[:most]}{'…' if len(said) > most else ''}”"


def quotation(quote: Quote) -> str:
    """Return a quote for a mail or a terminal: each row of the words begins with a mark."""
    return f"{quote.label}:\n{quoted(quote.text)}" if quote.label else quoted(quote.text)


def written(subject: str | None, emoji: str | None, message: str) -> tuple[Quote, ...]:
    """Return what somebody wrote as quotes: subject, text and emoji, each if there is one."""
    return tuple(
        one for one in (Quote(subject or "", "Subject"), Quote(message), Quote(emoji or "", "Emoji")) if one.text
    )
