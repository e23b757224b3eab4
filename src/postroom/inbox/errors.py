"""What a handler's error means: business or technical, to be tried again or not. Decided here, and nowhere else; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

CORRUPT_PAYLOAD = "CORRUPT_PAYLOAD"
"""The code of a body that does not fit what the handler takes."""
NO_EVENT = "NO_EVENT"
"""The code of a delivery that is not a CloudEvent."""
NO_HANDLER = "NO_HANDLER"
"""The code of a message that no handler takes, where such are dead."""
BROKEN_TRANSACTION = "BROKEN_TRANSACTION"
"""The code of a handler that ended the transaction, or swallowed an error that broke it."""

HANDLER_TIMEOUT = "HANDLER_TIMEOUT"
"""The code of an async handler that ran longer than the inbox allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorClass:
    """The class of an error: on two axes, with a code for people and programs."""

    code: str
    business: bool = False
    """The data or the rules are against it; else it is technical: a network, a lock, a bug."""
    retryable: bool = True
    """The same message may work later."""
    retry_after: timedelta | None = None


class RetryLater(Exception):
    """Raised by a handler: not now, perhaps later. `retry_after` may lengthen the wait."""

    def __init__(self, reason: str, *, code: str = "RETRY", retry_after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.code, self.retry_after = code, retry_after


class RejectMessage(Exception):
    """Raised by a handler: this message will never work. It is dead at once."""

    def __init__(self, reason: str, *, code: str = "UNACCEPTABLE") -> None:
        super().__init__(reason)
        self.code = code


Mapped = Mapping[type[BaseException], ErrorClass]
"""A user's own classes of errors."""


def error_class_of(error: BaseException, mapped: Mapped) -> ErrorClass:
    """The class of this error: what the user says of its kind, nearest first; else technical, and tried again.

    >>> error_class_of(KeyError("x"), {LookupError: ErrorClass(code="GONE", business=True, retryable=False)}).code
    'GONE'
    >>> error_class_of(OSError("x"), {})
    ErrorClass(code='HANDLER_ERROR', business=False, retryable=True, retry_after=None)
    """
    match error:
        case RejectMessage():
            return ErrorClass(code=error.code, business=True, retryable=False)
        case RetryLater():
            return ErrorClass(code=error.code, retry_after=error.retry_after)
    for kind in type(error).__mro__:
        if kind in mapped:
            return mapped[kind]
    return ErrorClass(code="HANDLER_ERROR")
