"""PostgreSQL keeps numbers, depths and years that Python does not: how they are read all the same [pure]."""

import json
from math import isfinite
from typing import Final

# Ours are a tenth as deep; some hundreds of levels would still be read, and could then be neither shown nor written.
DEEPEST: Final = 100


def decoded(text: str) -> object:
    """A stored value; None for one that Python does not hold (nested too deep, or a number of thousands of digits).

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
    if not isfinite(number):  # which is no JSON when it is written again
        raise ValueError
    return number


def _is_deeper(value: object) -> bool:
    """Whether objects and lists lie within each other on more levels than are allowed."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
    return any(isinstance(one, dict | list) for one in level)


def _inside(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def bounded(moment: str) -> str:
    """The SQL of a time that others chose, within the years that Python has; PostgreSQL has more, and infinity."""
    return f"CASE WHEN {moment} IS NOT NULL THEN LEAST(GREATEST({moment}, '1970-01-01 Z'), '9000-01-01 Z') END"


# When the time of a pending action `a` is over.
EXPIRES: Final = bounded("a.expires_at")
