"""Connections to a mail server by IMAP whose answers have an end, whatever length the server announces."""

from imaplib import IMAP4, IMAP4_SSL
from typing import Any, Final

# The largest file with its encoding, and some more.
MOST_ANSWERED: Final = 32 * 2**20


class Bounded(IMAP4):
    """A connection on which the answer to one command has an end: what would be longer is not waited for."""

    _left = MOST_ANSWERED

    def send(self, data: Any) -> None:  # noqa: ANN401  # as the library types it
        """Give a command, whose answer may be so long."""
        self._left = MOST_ANSWERED
        super().send(data)

    def read(self, size: int) -> bytes:
        """Read so many bytes, which the server announced."""
        self._take(size)
        return super().read(size)

    def readline(self) -> bytes:
        """Read a line."""
        line = super().readline()
        self._take(len(line))
        return line

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise self.abort(f"it answers with more than {MOST_ANSWERED // 2**20} MiB")


class BoundedTls(Bounded, IMAP4_SSL):
    """The same over TLS from the start."""
