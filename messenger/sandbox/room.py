"""How much a sandbox may hold, since anybody on this computer may write there, beside daemons in one process. Pure."""

from typing import Final

# A comma or a bracket stands for an object of Python's, which takes about so many bytes.
OF_ELEMENT: Final = 128


def weigh(raw: bytes) -> int:
    """Return about how many bytes of memory the JSON, or the text, in these bytes takes once it is read."""
    # Python keeps all letters of a text as wide as the widest one.
    width = 4 if b"\\ud" in raw or not raw.isascii() else 2 if b"\\u" in raw else 1
    return width * len(raw) + OF_ELEMENT * sum(raw.count(one) for one in (b",", b"[", b"{"))


class Room:
    """What all requests, answers and mails that are under way may take together."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, weight: int) -> bool:
        """Take so much, and return True; return False, with nothing taken, if there is not as much left."""
        if weight > self._left:
            return False
        self._left -= weight
        return True

    def give(self, weight: int) -> None:
        """Give back so much."""
        self._left += weight
