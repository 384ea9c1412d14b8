"""What Telegram would make a link of, and what of a message stands in no block of its own."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

# As its own library finds it (td/telegram/MessageEntity.cpp), on purpose without its list of domains.
LINKS: Final = re.compile(
    r"\w+://\S|(?<![\w@])@\w{3,}|(?<![\w/<>])/\w|(?<!\w)#\w|(?<!\w)\$[A-Z]{1,8}|[\w.+-]+@[\w-]+\.\w{2,}|\w\.[^\W\d_]{2,}"
    r"|(?<![0-9-])(?![0-9]{4}-[0-9]{2}-)\+?[0-9][0-9 ().-]{7,}[0-9]"
)
# Narrower than any phone is.
COLUMNS: Final = 40


def pressable(payload: Mapping[str, object]) -> list[str]:
    """What of a message of Telegram's somebody could press."""
    return [hit[0] for hit in LINKS.finditer(_without(payload, {"code", "pre"}))]


def unquoted(payload: Mapping[str, object]) -> str:
    """What a phone may show of a message at the beginning of a row, without a mark and in no block of its own."""
    return "\n".join(_rows(_without(payload, {"pre"})))


def _rows(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield line[COLUMNS:] if line.startswith(">") else line


def _without(payload: Mapping[str, object], kinds: set[str]) -> str:
    """The text with a blank for each character in a stretch of these kinds."""
    raw = str(payload.get("text", "")).encode("utf-16-le")
    units = [raw[n : n + 2] for n in range(0, len(raw), 2)]
    for one in cast("list[dict[str, int | str]]", payload.get("entities", []))[:100]:
        if one["type"] in kinds:
            start = int(one["offset"])
            for n in range(start, start + int(one["length"])):
                units[n] = b" \0"
    return b"".join(units).decode("utf-16-le")
