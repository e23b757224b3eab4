"""What MongoDB said, by the driver's class and the server's code: whose fault is it?

https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml.
"""

from __future__ import annotations

from typing import Any

from pymongo.errors import ConnectionFailure, PyMongoError

from postroom.errors import StoreError, StoreUnavailable

DUPLICATE_KEY, NO_SUCH_TRANSACTION = 11000, 251
TRANSIENT, UNKNOWN = "TransientTransactionError", "UnknownTransactionCommitResult"
ENDING = frozenset({91, 189, 10058, 10107, 11600, 11601, 11602, 13435, 13436})
"""The primary steps down, or ends."""
TOO_LONG = frozenset({24, 46, 50, 64, 134, 202, 262, 290})
"""Something was not there in time: a lock, a majority."""
FULL = frozenset({39, 146, 14031})
"""Disk or memory are used up, or fail."""
BLOCKED = frozenset({371})
"""An operator lets nobody write for now."""
UNREACHABLE = frozenset({6, 7, 89, 133, 9001})
"""Parts of it do not see each other."""
STRANGERS = frozenset({18})
"""It does not let us in."""
AWAY = ENDING | TOO_LONG | FULL | BLOCKED | UNREACHABLE | STRANGERS


def is_away(exc: PyMongoError) -> bool:
    """Is it the server, which may do it later; and not what was asked?"""
    if isinstance(exc, ConnectionFailure) or exc.has_error_label(UNKNOWN) or exc.has_error_label(TRANSIENT):
        return True
    return exc.timeout or not AWAY.isdisjoint(_codes(exc))


def _codes(exc: PyMongoError) -> set[Any]:
    """The code of the error, and those inside of one that is about many writes."""
    details: Any = getattr(exc, "details", None) or {}
    parts = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
    if isinstance(concern := details.get("writeConcernError"), dict):
        parts.append(concern)
    return {getattr(exc, "code", None), *(each.get("code") for each in parts)}


def said(exc: PyMongoError) -> str:
    """What the driver or the server said, in one line and short."""
    details: Any = getattr(exc, "details", None) or {}
    text = str(details.get("errmsg") or exc).strip()
    return text.splitlines()[0].partition(", Timeout:")[0].partition(" (configured timeouts")[0].rstrip(".")[:300]


def was_second(exc: PyMongoError) -> bool:
    """Did another transaction write the same document, or did the server end this one for another reason of the moment?"""
    return exc.has_error_label(TRANSIENT) or DUPLICATE_KEY in _codes(exc)


def contended(shown: str) -> StoreUnavailable:
    """The error for a message that another transaction handles now, and goes on handling."""
    return StoreUnavailable(
        f"MongoDB at {shown} is busy with another transaction on the same message; it is tried again."
    )


def ended() -> StoreError:
    """The error for a transaction that was over when it was to be committed."""
    return StoreError(
        "The transaction was over before its end: the handler ended it, went on after an error, which rolls back all of it, "
        "or took longer than the server's transactionLifetimeLimitSeconds; leave commit and abort to the inbox, and let "
        "errors out."
    )
