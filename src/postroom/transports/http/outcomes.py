"""What a receiver's answer means for the message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from postroom.contracts.transport import Failed, Outcome, Rejected, Sent, Unavailable

RETRY_AFTER_MAX = timedelta(hours=24)
ERROR_MAX = 512
"""How many characters of an error are kept."""

_LATER = frozenset({408, 409, 423, 425, 429})
_OF_THE_ROUTE = {401: "HTTP_401", 403: "HTTP_403", 404: "HTTP_404", 407: "HTTP_407"}
_GONE = 410


def outcome_of(status: int, error: str, retry_after: timedelta | None = None) -> Outcome:
    """Return whose fault the status is.

    2xx is sent; what may pass is failed. A wrong URL or wrong credentials are the route's fault, and so is a redirect,
    which is never followed: no message pays for them. 410 shuts the route until a person acts. The rest is against the
    message, and rejected."""
    if 200 <= status < 300:
        return Sent(status)
    if status in _LATER or status >= 500:
        return Failed(f"HTTP_{status}", cut(error), retry_after)
    if status in _OF_THE_ROUTE or status < 400:
        return Unavailable(f"HTTP_{status}", cut(error), retry_after)
    if status == _GONE:
        return Unavailable("ENDPOINT_GONE", cut(error), until_told=True)
    return Rejected(f"HTTP_{status}", cut(error))


def read_retry_after(value: str | None, now: datetime) -> timedelta | None:
    """How long the receiver asks us to wait: seconds, or an HTTP date. From 0 to 24 hours; nonsense is None.

    >>> read_retry_after("120", datetime.now(UTC))
    datetime.timedelta(seconds=120)
    """
    value = (value or "").strip()
    if value.isascii() and value.isdigit():
        return timedelta(seconds=min(float(value), RETRY_AFTER_MAX.total_seconds()))
    try:
        moment = parsedate_to_datetime(value)
        # The old forms of an HTTP date name no zone; all of them are in UTC.
        wait = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now
    except (ValueError, OverflowError, TypeError):
        return None
    return max(timedelta(0), min(wait, RETRY_AFTER_MAX))


def cut(text: str) -> str:
    """The text on one line, with nothing that a terminal would obey, and not too long."""
    plain = "".join(character if character.isprintable() else " " for character in text[: 2 * ERROR_MAX])
    plain = " ".join(plain.split())
    return plain if len(plain) <= ERROR_MAX else f"{plain[: ERROR_MAX - 1]}…"
