"""The settings, as values that check themselves: a wrong one never exists.

Nothing here reads a file or the environment: `postroom.settings.load` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from postroom.durations import format_duration
from postroom.errors import ConfigError
from postroom.fields import check_fields, within
from postroom.limits import Limits
from postroom.retry import MAX_ATTEMPTS_DEFAULT, Backoff, RetryPolicy
from postroom.tables import TableNames

__all__ = ["Limits", "RelayConfig", "Settings", "TableNames"]

LEASE_PER_SEND = 2
"""A lease lasts at least so many send time-outs.

A lease is renewed each third of it, and no send starts that could outlast what is left: two thirds of the
lease must hold a whole send, with time to spare for the renewal itself.
"""
MILLISECOND, HOUR = timedelta(milliseconds=1), timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayConfig:
    """How a relay works.

    >>> RelayConfig(batch=500, lease=timedelta(seconds=30)).retry.max_attempts
    6
    """

    enabled: bool = False
    """Whether an application starts the relay embedded in it. Default off.

    `postroom relay`, a process that exists to be one, runs regardless."""
    concurrency: int = field(default=4, metadata=within(1, 1_000))
    """How many batches are in flight at once. Default 4; 1 to 1,000."""
    batch: int = field(default=32, metadata=within(1, 10_000))
    """How many messages are claimed at once, at most. Default 32; 1 to 10,000."""
    poll: timedelta = field(default=timedelta(seconds=0.5), metadata=within(MILLISECOND, HOUR))
    """How long an idle relay waits before it looks again, at most; twice as long where the store tells it of commits.
    Default 0.5 s; 1 ms to 1 h."""
    lease: timedelta = field(default=timedelta(seconds=120), metadata=within(100 * MILLISECOND, 24 * HOUR))
    """How long a silent relay keeps its lanes. Default 120 s; 100 ms to 24 h; two send time-outs at least."""
    send_timeout: timedelta = field(default=timedelta(seconds=2.5), metadata=within(MILLISECOND, HOUR))
    """How long one send may take. Default 2.5 s; 1 ms to 1 h."""
    max_attempts: int = field(default=MAX_ATTEMPTS_DEFAULT, metadata=within(1, 1_000_000))
    """How many tries a message has, the first one included. Default 6; 1 to 1,000,000."""
    backoff: Backoff = RetryPolicy.WORKER.backoff
    """How long to wait between tries. Default 5, 10, 20, 40, 80, 160 s."""

    no_route: str = "dead"
    """What becomes of a message that no route fits: `dead` (and its key is parked), or it will `wait`. Default dead."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.no_route not in ("dead", "wait"):
            raise ConfigError(f"no_route is {self.no_route!r}; it must be dead or wait.", no_route=self.no_route)
        if self.lease < LEASE_PER_SEND * self.send_timeout:
            raise ConfigError(
                f"lease is {format_duration(self.lease)} with a send_timeout of {format_duration(self.send_timeout)}; "
                f"a lease must be at least {LEASE_PER_SEND} times the send_timeout, "
                "or a relay could lose its lanes in the middle of a send.",
                lease=self.lease,
                send_timeout=self.send_timeout,
            )

    @property
    def retry(self) -> RetryPolicy:
        """The backoff and the cap together."""
        return RetryPolicy(self.backoff, self.max_attempts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that can be set. Its `repr` shows no URL, since a URL may hold a password."""

    store: str | None = field(default=None, repr=False)
    """The URL of the database. Default none: then it must be given where it is needed."""
    to: str | None = field(default=None, repr=False)
    """The URL of the broker. Default none: then it must be given where it is needed."""
    lanes: int = field(default=64, metadata=within(1, 1_024))
    """How many lanes `init` makes. Default 64; 1 to 1,024. Later it changes only with nothing open."""
    relay: RelayConfig = RelayConfig()
    """How the relay works."""
    tables: TableNames = TableNames()  # noqa: RUF009 - a frozen value
    """What the tables are called."""
    limits: Limits = Limits()  # noqa: RUF009 - a frozen value
    """How large a message may be."""

    def __post_init__(self) -> None:
        check_fields(self)
