"""What is done beside other things, and must not take them with it when it fails."""

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.stdlib import BoundLogger

from shared.errors import ButlersError


@contextmanager
def apart(
    log: BoundLogger, what: str, *, through: tuple[type[ButlersError], ...] = (), **about: object
) -> Iterator[None]:
    """Log what goes wrong in here and go on behind it; a mistake of ours with its traceback.

    Errors of the kinds `through` concern whoever called, and are raised.
    """
    try:
        yield
    except through:
        raise
    except ButlersError as failed:
        log.warning(what, why=failed.message, **about)
    except Exception:
        log.exception(what, **about)
