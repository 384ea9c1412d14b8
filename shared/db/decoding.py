"""What PostgreSQL keeps and Python does not, and the other way round: numbers, depths and years; texts. Pure."""

import json
from math import isfinite
from typing import Final

# Our own values are a tenth as deep. Some hundreds of levels could be read, but then neither shown nor written.
DEEPEST: Final = 100


def decoded(text: str) -> object:
    """Return a stored value; None for one that Python does not hold.

    Such a value is nested too deep, or has a number of thousands of digits.

    INVARIANT: it never raises, as that would hide whatever is read together with it.
    """
    try:
        value = json.loads(text, parse_float=_float)
    except (ValueError, RecursionError):
        return None
    opened = text.count("{") + text.count("[")
    return None if opened > DEEPEST and _is_deeper(value) else value


def _float(text: str) -> float:
    number = float(text)
    if not isfinite(number):  # it would be no JSON when it is written again
        raise ValueError
    return number


def _is_deeper(value: object) -> bool:
    """Return whether objects and lists are nested on more levels than are allowed."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
    return any(isinstance(one, dict | list) for one in level)


def _inside(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def bounded(moment: str) -> str:
    """Return the SQL of a time that others chose, cut to the years Python has; PostgreSQL has more, and infinity."""
    return f"CASE WHEN {moment} IS NOT NULL THEN LEAST(GREATEST({moment}, '1970-01-01 Z'), '9000-01-01 Z') END"


# The time at which a pending action `a` expires.
EXPIRES: Final = bounded("a.expires_at")


def storable(text: str) -> str:
    """Return the text without what no row can hold: NUL and incomplete characters."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()
