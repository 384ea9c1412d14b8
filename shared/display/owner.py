"""Messages to the owner, in Telegram and by mail: whose words they are, and nothing of others that can be pressed.

The house's own messages begin with a mark that nobody else can write, a butler's with its name. Telegram makes links of
addresses, names, commands and numbers by itself, but not within `code` and `pre`; it takes a hundred such stretches.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shared.channels import CHANNELS
from shared.channels.base import Message, Wire
from shared.channels.telegram import LIMIT_UNITS, render, split, utf16_units, with_fields
from shared.display.quotes import Quote, quotation
from shared.display.visible import MARK, visible
from shared.errors import InvalidInput

MOST_STRETCHES: Final = 40
# A number with more digits may be one to call.
DIGITS: Final = 6
ABOVE: Final = "(The text is above.)"
# Room for the number of a part, and for the label of its words.
ROOM_ABOVE: Final = 80
# A date is no number that anybody could call.
_DATE: Final = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}\b")
_NUMBER: Final = re.compile(r"\+?\(?[0-9][0-9 \u00a0().\-]{5,}[0-9]")
_WORD: Final = re.compile(r"\S+")
_PRESSED: Final = re.compile(
    r"://|\S\.[^\s\d.,;:!?\"')\]}]{2}|[0-9](?:\.[0-9]+){3}|\w@\w|(?<!\w)[@#\uff03]\w|(?<![\w/<>])/\w|\$[A-Z]"
)
_HIDDEN_HOST: Final = re.compile(r"://[^\s/?#]*[@\\]([^\s/?#@\\]+)")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of a text, in characters, and what it is to Telegram."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Said:
    """A text as Telegram shows it."""

    text: str = ""
    stretches: tuple[Stretch, ...] = ()

    def __add__(self, other: "Said") -> "Said":
        """Return both texts, one after the other."""
        by = len(self.text)
        moved = (replace(one, start=one.start + by, end=one.end + by) for one in other.stretches)
        return Said(self.text + other.text, (*self.stretches, *moved))

    @property
    def entities(self) -> list[dict[str, object]]:
        """The stretches as the Bot API takes them, in UTF-16 units."""
        return [
            {
                "length": utf16_units(self.text[one.start : one.end]),
                "offset": utf16_units(self.text[: one.start]),
                "type": one.kind,
            }
            for one in self.stretches
        ]

    @property
    def fields(self) -> dict[str, object]:
        """The fields of a sendMessage or editMessageText that it fills."""
        return {"text": self.text, **({"entities": self.entities} if self.stretches else {})}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A message of the house: lines of ours above and below the words of others, which may be none.

    `links` are pages of ours that stand among the lines; they alone can be pressed.
    """

    head: str
    quotes: tuple[Quote, ...] = ()
    foot: str = ""
    links: tuple[str, ...] = ()

    def marked(self) -> "Sheet":
        """Return the same sheet with the house's mark on its first line, and on the last, below the words of others."""
        above, line_end, last = self.foot.rpartition("\n")
        foot = f"{above}{line_end}{MARK} {last}" if self.quotes and self.foot else self.foot
        return replace(self, head=f"{MARK} {self.head}", foot=foot)


def plain(text: str, links: Sequence[str] = ()) -> Said:
    """Return a text in which nothing can be pressed but these links of ours."""
    found = [one for one in pressed(text) if text[one[0] : one[1]] not in links]
    if len(found) > MOST_STRETCHES:
        return as_block(text)
    return Said(text, tuple(Stretch("code", *one) for one in found))


def as_block(text: str) -> Said:
    """Return a text that stands in a block of its own."""
    return Said(text, (Stretch("pre", 0, len(text)),) if text else ())


def pressed(text: str) -> list[tuple[int, int]]:
    """Return what Telegram might make a link of, and more: where each begins and ends, in order, without overlaps."""
    callable_ = (one for one in _NUMBER.finditer(_DATE.sub("x" * 10, text)) if sum(map(str.isdigit, one[0])) > DIGITS)
    merged = list[tuple[int, int]]()
    for start, end in sorted([*_addresses(text), *(one.span() for one in callable_)]):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _addresses(text: str) -> list[tuple[int, int]]:
    return [one.span() for one in _WORD.finditer(text) if _PRESSED.search(one[0])]


def with_hosts(text: str) -> str:
    """Return a butler's words to the owner, with the house's mark written out.

    After an address that hides its host, that host is added.
    """
    text = text.replace(MARK, visible(MARK))
    return _WORD.sub(lambda word: word[0] + "".join(f" [{host}]" for host in _HIDDEN_HOST.findall(word[0])), text)


def by_butler(message: Message, origin: str, notes: Sequence[str] = ()) -> tuple[Wire, ...]:
    """Render the wires of a butler's message to the owner; `notes` are lines of ours about it."""
    if message.intent == "react":
        return CHANNELS[message.channel].render(message)
    if not message.text.strip():
        raise InvalidInput("The message has no visible text.", "Give the text to send.")
    above = "".join(f"{MARK} {note}\n" for note in notes)
    words = with_hosts(message.text)
    spec = CHANNELS[message.channel]
    if not spec.has_buttons:
        named = f"{origin}: {with_hosts(spec.subject(message))}" if spec.subject else None
        return spec.render(replace(message, text=f"{above}{origin}:\n\n{inert(words)}", subject=named))
    parts = split(words, LIMIT_UNITS - utf16_units(above) - len(f"{origin} (99/99):\n"))
    names = [f"{origin} ({n}/{len(parts)})" if len(parts) > 1 else origin for n in range(1, len(parts) + 1)]
    return wires(
        message,
        [
            plain(above) + Said(f"{name}:", (Stretch("bold", 0, len(name) + 1),)) + plain(f"\n{part}")
            for name, part in zip(names, parts, strict=True)
        ],
    )


def by_house(message: Message, sheet: Sheet) -> tuple[Wire, ...]:
    """Render the wires of a message of the house itself; the text is the sheet's."""
    spec = CHANNELS[message.channel]
    if not spec.has_buttons:
        return spec.render(replace(message, text=as_text(sheet), subject=f"{MARK} {message.subject}"))
    return wires(message, bubbles(sheet))


def wires(message: Message, bodies: Sequence[Said]) -> tuple[Wire, ...]:
    """Render one Telegram message for each body; only the first keeps the intent, such as a reply."""
    made = [
        with_fields(wire, said.fields)
        for n, said in enumerate(bodies)
        for wire in render(replace(message, text=said.text, intent=message.intent if n == 0 else "send"))
    ]
    return tuple(made)


def as_text(sheet: Sheet) -> str:
    """Return a sheet as the text of a mail: each line of others has its mark."""
    sheet = sheet.marked()
    return "\n\n".join(filter(None, [sheet.head, *map(quotation, sheet.quotes), sheet.foot]))


def bubbles(sheet: Sheet) -> list[Said]:
    """Return a sheet as Telegram messages: one if it fits, else all words of others first, in numbered parts."""
    sheet = sheet.marked()
    head, foot = plain(sheet.head, sheet.links), plain(sheet.foot, sheet.links)
    whole = _joined([head, *(_block(one.label, visible(one.text)) for one in sheet.quotes), foot])
    if utf16_units(whole.text) <= LIMIT_UNITS:
        return [whole]
    room = LIMIT_UNITS - ROOM_ABOVE
    parts = [(one.label, part) for one in sheet.quotes for part in split(visible(one.text), room)]
    numbered = [
        plain(f"{MARK} ({n}/{len(parts)})\n") + _block(label, part) for n, (label, part) in enumerate(parts, start=1)
    ]
    return [*numbered, _joined([head, plain(ABOVE), foot])]


def _block(label: str, words: str) -> Said:
    return plain(f"{label}:\n") + as_block(words) if label else as_block(words)


def _joined(pieces: Sequence[Said]) -> Said:
    said = Said()
    for piece in pieces:
        if piece.text:
            said = said + plain("\n\n") + piece if said.text else piece
    return said


def inert(text: str) -> str:
    """Return a text in which a mail program finds no address to press: its dots and signs stand in brackets."""
    return "".join(_inert(text))


def _inert(text: str) -> Iterator[str]:
    end = 0
    for start, stop in _addresses(text):
        yield text[end:start]
        yield re.sub(r"(?<=\w)\.(?=\w)", "[.]", text[start:stop].replace("://", "[:]//"))
        end = stop
    yield text[end:]
