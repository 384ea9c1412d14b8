"""What a daemon's log says, collected; afterwards the logging of this process is as it was."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from shared.config.settings import Secret
from shared.telemetry.logs import configure


@contextmanager
def logged(*secrets: str) -> Iterator[io.StringIO]:
    """Log as the butler greeter does, which knows these secrets."""
    root, library = logging.getLogger(), structlog.get_config()
    before, level, into = root.handlers[:], root.level, io.StringIO()
    configure("greeter", secrets=[Secret(one) for one in secrets], stream=into)
    try:
        yield into
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        structlog.configure(**library)
        structlog.contextvars.clear_contextvars()
