"""The tree of errors: each has a stable code, one sentence saying what is wrong, and one saying what to do."""


class ButlersError(Exception):
    """Anything this product refuses or cannot do, in words a person can act on."""

    code = "internal_error"
    retryable = False

    def __init__(self, message: str, remedy: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        """Return both sentences, as shown on a terminal."""
        return f"{self.message} {self.remedy}".strip()


class InvalidInput(ButlersError):
    """The caller's input is invalid; nothing was written and nothing was sent."""

    code = "validation_error"


class Unreadable(ButlersError):
    """What a stored row says can be carried out neither now nor later.

    The code that meets such a row ends it and goes on.
    """

    code = "unreadable"


class Forbidden(ButlersError):
    """The caller is known and may not do this."""

    code = "forbidden"


class IdempotencyConflict(ButlersError):
    """The same explicit key came again with other content."""

    code = "idempotency_conflict"


class Unavailable(ButlersError):
    """Something this needs cannot be reached now; asking again later may work."""

    code = "target_unavailable"
    retryable = True


class Away(Unavailable):
    """Something this needs is not there yet: it may be starting or recovering, and may only need time."""


class Locked(Away):
    """Somebody else holds a row that this needs, and does not let go of it, or it takes longer than anything may."""


class Degraded(ButlersError):
    """A module of this butler cannot work now; it is tried again, and the rest of the butler works."""

    code = "module_degraded"
    retryable = True


class Gone(ButlersError):
    """What somebody sent cannot be had any more."""

    code = "gone"

    def __init__(self, whose: str) -> None:
        super().__init__(f"{whose} does not have this file any more.", "Ask for it to be sent again.")


class TooLarge(ButlersError):
    """What somebody sent is larger than anything that is fetched."""

    code = "too_large"

    def __init__(self) -> None:
        super().__init__("This file is larger than 20 MB.", "Ask for a smaller one.")


class Misconfigured(ButlersError):
    """The installation is not in order; a person has to change something."""

    code = "misconfigured"


class HopFailed(ButlersError):
    """Another daemon could not be called, or did not answer as agreed."""

    code = "target_unavailable"
    retryable = True

    def __init__(self, message: str, *, proved_not_begun: bool = False, timed_out: bool = False) -> None:
        super().__init__(message)
        self.proved_not_begun = proved_not_begun
        self.timed_out = timed_out


class PostgresFailed(ButlersError):
    """The embedded server cannot be found, made, started or stopped; the message says why."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy, code=code)
