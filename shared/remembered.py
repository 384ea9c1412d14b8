"""A small bounded cache of answers that expire; the caller hands in the time, in any unit that only grows."""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MOST: Final = 1024


class Remembered(Generic[K, V]):
    """A cache of at most 1024 answers, each with its end; the least recently used one is dropped first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def get(self, key: K, now: float) -> V | None:
        """Return the answer, or None if there is none or its end has come."""
        entry = self._entries.get(key)
        if entry is None or now >= entry[1]:
            self._entries.pop(key, None)
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, until: float) -> None:
        """Remember an answer until this time."""
        self._entries[key] = (value, until)
        self._entries.move_to_end(key)
        if len(self._entries) > _MOST:
            self._entries.popitem(last=False)
