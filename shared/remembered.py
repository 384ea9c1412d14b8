"""A small bounded memory of answers that end; time is handed in, in any unit that only grows."""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MOST: Final = 1024


class Remembered(Generic[K, V]):
    """At most 1024 answers, each with its end; the least lately used goes first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def get(self, key: K, now: float) -> V | None:
        """The answer, if there is one that has not ended."""
        entry = self._entries.get(key)
        if entry is None or now >= entry[1]:
            self._entries.pop(key, None)
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, until: float) -> None:
        """Remember an answer up to this time."""
        self._entries[key] = (value, until)
        self._entries.move_to_end(key)
        if len(self._entries) > _MOST:
            self._entries.popitem(last=False)
