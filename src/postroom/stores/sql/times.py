"""Moments as whole microseconds since 1970, for databases without a type for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
EARLIEST, LATEST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


@overload
def microseconds(moment: datetime) -> int: ...
@overload
def microseconds(moment: None) -> None: ...
@overload
def microseconds(moment: datetime | None) -> int | None: ...
def microseconds(moment: datetime | None) -> int | None:
    """Exactly: whole numbers all the way, no float.

    >>> microseconds(datetime(2026, 11, 15, tzinfo=UTC))
    1794700800000000
    """
    return None if moment is None else (moment - EPOCH) // MICROSECOND


@overload
def moment(microseconds: int) -> datetime: ...
@overload
def moment(microseconds: None) -> None: ...
@overload
def moment(microseconds: int | None) -> datetime | None: ...
def moment(microseconds: int | None) -> datetime | None:
    """The other way; what no datetime can hold becomes the nearest one that it can."""
    if microseconds is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return LATEST if microseconds > 0 else EARLIEST
