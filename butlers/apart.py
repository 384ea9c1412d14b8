"""What is done beside other things, and must not take them with it when it fails."""

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.stdlib import BoundLogger

from shared.errors import ButlersError


@contextmanager
def apart(log: BoundLogger, what: str, **about: object) -> Iterator[None]:
    """Log what goes wrong in here and go on behind it; a mistake of ours with its traceback."""
    try:
        yield
    except ButlersError as failed:
        log.warning(what, why=failed.message, **about)
    except Exception:
        log.exception(what, **about)
