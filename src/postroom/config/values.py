"""The settings, as values that check themselves: a wrong one never exists.

Nothing here reads a file or the environment: `postroom.config.load` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from postroom.checks import check_fields, one_of, within
from postroom.config.tables import TableNames
from postroom.durations import format_duration
from postroom.errors import ConfigError
from postroom.retry import MAX_ATTEMPTS_DEFAULT, Backoff, RetryPolicy
from postroom.urls import HostPort
from postroom.validation import Limits

__all__ = ["Limits", "RelayConfig", "RouteConfig", "Settings", "TableNames"]

AfterDeath: TypeAlias = Literal["park", "skip"]
NoRoute: TypeAlias = Literal["dead", "wait"]
Preset: TypeAlias = Literal["worker", "kafka"]
Patterns: TypeAlias = tuple[str, ...]
Secrets: TypeAlias = tuple[str, ...]

LEASE_PER_SEND = 2
"""A lease lasts at least so many send time-outs.

A lease is renewed each third of it, and no send starts that could outlast what is left: two thirds of the
lease must hold a whole send, with time to spare for the renewal itself.
"""
FIRST_BATCH, LARGEST_BATCH = 32, 4_096
"""The size of a batch without a setting: its first one, and the largest to which it grows."""
MILLISECOND, HOUR = timedelta(milliseconds=1), timedelta(hours=1)
INBOX_RETENTION_DEFAULT = timedelta(days=30)
"""How long an inbox recognises a message, by default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayConfig:
    """How a relay works.

    >>> RelayConfig(batch=500, lease=timedelta(seconds=30)).retry.max_attempts
    6
    """

    enabled: bool = False
    """Whether an application starts the relay embedded in it. Default off; on where code asks for one, as `relaying` does.

    `postroom relay`, a process that exists to be one, runs regardless."""
    concurrency: int = field(default=4, metadata=within(1, 1_000))
    """How many batches are in flight at once. Default 4; 1 to 1,000."""
    batch: int | None = field(default=None, metadata=within(1, 10_000))
    """How many messages are claimed at once, at most. Default 32 at first, and then as many as go quickly, up to `batch_max`;
    given, it stays as it is; 1 to 10,000."""
    batch_max: int | None = field(default=None, metadata=within(1, 10_000))
    """How large a batch grows by itself. Default 4,096, or `batch` where that is given; 1 to 10,000."""
    poll: timedelta = field(default=timedelta(seconds=0.5), metadata=within(MILLISECOND, HOUR))
    """How long an idle relay waits before it looks again, at most; twice as long where the store tells it of commits.
    Default 0.5 s; 1 ms to 1 h."""
    lease: timedelta = field(default=timedelta(seconds=30), metadata=within(100 * MILLISECOND, 24 * HOUR))
    """How long a silent relay keeps its lanes. Default 30 s; 100 ms to 24 h; two send time-outs at least."""
    send_timeout: timedelta = field(default=timedelta(seconds=2.5), metadata=within(MILLISECOND, HOUR))
    """How long one send may take. Default 2.5 s; 1 ms to 1 h."""
    max_attempts: int = field(default=MAX_ATTEMPTS_DEFAULT, metadata=within(1, 1_000_000))
    """How many tries a message has, the first one included. Default 6; 1 to 1,000,000."""
    backoff: Backoff = RetryPolicy.WORKER.backoff
    """How long to wait between tries. Default 5, 10, 20, 40, 80, 160 s."""
    health: HostPort | None = None
    """Where `/livez` and `/readyz` are answered. Default none: nowhere."""
    no_route: NoRoute = field(default="dead", metadata=one_of("dead", "wait"))
    """What becomes of a message that no route fits: `dead` (and its key is parked), or it will `wait`. Default dead."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batch is not None and self.batch_max is not None and self.batch > self.batch_max:
            raise ConfigError(
                f"batch is {self.batch:,} with a batch_max of {self.batch_max:,}; a batch grows from the one to the other, "
                "so give a larger batch_max, or leave one of them out.",
                batch=self.batch,
                batch_max=self.batch_max,
            )
        if self.lease < LEASE_PER_SEND * self.send_timeout:
            raise ConfigError(
                f"lease is {format_duration(self.lease)} with a send_timeout of {format_duration(self.send_timeout)}; "
                f"a lease must be at least {LEASE_PER_SEND} times the send_timeout, "
                "or a relay could lose its lanes in the middle of a send.",
                lease=self.lease,
                send_timeout=self.send_timeout,
            )

    @property
    def first_batch(self) -> int:
        """How many messages are claimed at once at first.

        >>> RelayConfig().first_batch, RelayConfig(batch=500).first_batch, RelayConfig(batch_max=10).first_batch
        (32, 500, 10)
        """
        return self.batch or min(FIRST_BATCH, self.largest_batch)

    @property
    def largest_batch(self) -> int:
        """How many messages are claimed at once at most.

        >>> RelayConfig().largest_batch, RelayConfig(batch=500).largest_batch
        (4096, 500)
        """
        return self.batch_max or self.batch or LARGEST_BATCH

    @property
    def retry(self) -> RetryPolicy:
        """The backoff and the cap together."""
        return RetryPolicy(self.backoff, self.max_attempts)


PRESETS: dict[str, RelayConfig] = {
    "worker": RelayConfig(
        concurrency=4,
        batch=32,
        poll=timedelta(seconds=0.5),
        lease=timedelta(seconds=120),
        send_timeout=timedelta(seconds=2.5),
        max_attempts=RetryPolicy.WORKER.max_attempts,
        backoff=RetryPolicy.WORKER.backoff,
    ),
    "kafka": RelayConfig(
        batch=500, max_attempts=RetryPolicy.TRANSFERS.max_attempts, backoff=RetryPolicy.TRANSFERS.backoff
    ),
}
"""Requirements that have a name: the relay's settings that each asks for."""
PRESET_FIELDS: dict[str, tuple[str, ...]] = {
    "worker": ("concurrency", "batch", "poll", "lease", "send_timeout", "max_attempts", "backoff"),
    "kafka": ("batch", "max_attempts", "backoff"),
}
"""Which of them a preset gives."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RouteConfig:
    """Where messages of some types go, and how. Its `repr` shows no URL and no secret.

    >>> RouteConfig(name="orders", pattern=("order.*",), to="https://shop.example/hooks").fits("order.paid")
    True
    """

    to: str = field(repr=False)
    """The URL of the broker, webhook or function."""
    name: str = "default"
    """What a person calls it; `route-1`, `route-2` … in a file that does not say."""
    pattern: Patterns = ("*",)
    """Which types it takes: `order.*` fits order.paid, `*` fits all. Default all."""
    topic: str | None = None
    """Where at the broker. Default: the message's own topic, or the transport's default."""
    after_death: AfterDeath = field(default="park", metadata=one_of("park", "skip"))
    """Whether the key of a dead message waits for a person (the default), or later messages pass it by."""
    max_attempts: int | None = field(default=None, metadata=within(1, 1_000_000))
    """How many tries a message has. Default: the relay's."""
    backoff: Backoff | None = None
    """How long to wait between tries. Default: the relay's."""
    source: str | None = None
    """CloudEvents' source. Default: the one for all, else `postroom`."""
    secrets: Secrets = field(default=(), repr=False)
    """What webhooks are signed with, newest first. Default: those for all."""
    public_only: bool | None = None
    """Whether only public addresses are delivered to. Default: as for all."""
    concurrency: int | None = field(default=None, metadata=within(1, 1_000))
    """How many messages are under way at once, to a webhook or a function. Default 16; 1 to 1,000."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.name or not self.name.isprintable():
            raise ConfigError(f"a route is called {self.name!r}; give it a name that can be printed.", name=self.name)
        if not self.pattern or not all(self.pattern):
            raise ConfigError("pattern is empty; write one like order.*, or leave it out for all types.")

    def fits(self, type_: str) -> bool:
        """Return whether it takes messages of this type."""
        return any(fnmatchcase(type_, pattern) for pattern in self.pattern)

    def retry(self, otherwise: RetryPolicy) -> RetryPolicy:
        """Its own backoff and cap, and where it has none the relay's."""
        return RetryPolicy(self.backoff or otherwise.backoff, self.max_attempts or otherwise.max_attempts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that can be set. Its `repr` shows no URL, since a URL may hold a password."""

    preset: Preset | None = field(default=None, metadata=one_of("worker", "kafka"))
    """A name for several of the relay's settings, read by `load`; what is given beside it wins. `worker`: batch 32 that never
    grows, concurrency 4, poll 0.5 s, lease 120 s, send time-out 2.5 s, six attempts with 5 to 160 s between them.
    `kafka`: batch 500 that never grows, five attempts with 2 s to 10 min between them. Default none."""
    store: str | None = field(default=None, repr=False)
    """The URL of the database. Default none: then it must be given where it is needed."""
    to: str | None = field(default=None, repr=False)
    """The URL of the broker. Default none: then it must be given where it is needed."""
    source: str | None = None
    """CloudEvents' source of what is sent: who sends it. Default `postroom`."""
    secrets: Secrets = field(default=(), repr=False)
    """What webhooks are signed with, newest first. Default none: they are not signed."""
    public_only: bool = False
    """Whether webhooks go to public addresses only. Default no: the URL an operator gives is trusted."""
    routes: tuple[RouteConfig, ...] = ()
    """Which types go where, the first that fits. Default none: then all goes where `to` says."""
    lanes: int = field(default=64, metadata=within(1, 1_024))
    """How many lanes `init` makes. Default 64; 1 to 1,024. Later it changes only with nothing open."""
    inbox_retention: timedelta = field(default=INBOX_RETENTION_DEFAULT, metadata=within(HOUR, 3_650 * 24 * HOUR))
    """For how long your inboxes remember: the shortest `retention` that you gave one. `requeue` refuses what is older.
    Default 30 days; 1 h to 3,650 d."""
    relay: RelayConfig = RelayConfig()
    """How the relay works."""
    tables: TableNames = TableNames()  # noqa: RUF009 - a frozen value
    """What the tables are called."""
    limits: Limits = Limits()  # noqa: RUF009 - a frozen value
    """How large a message may be."""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_routes(self.routes)


def _check_routes(routes: Iterable[RouteConfig]) -> None:
    """Raise ConfigError unless each route has its own name and can be reached."""
    before: dict[str, RouteConfig] = {}
    for route in routes:
        if route.name in before:
            raise ConfigError(f"two routes are called {route.name!r}; give each its own name.", name=route.name)
        taken = [earlier for earlier in before.values() if all(_covered(each, earlier) for each in route.pattern)]
        if taken:
            raise ConfigError(
                f"route {route.name!r} can never be reached: {taken[0].name!r} before it takes all that it fits; "
                "move it up, or take it out.",
                name=route.name,
            )
        before[route.name] = route


def _covered(pattern: str, earlier: RouteConfig) -> bool:
    """Does the earlier route take every type that this pattern fits? For sure, that is: no is also "cannot tell".

    A pattern of letters and stars alone that fits another pattern, read as a text, fits all that this one fits."""
    sure = (each for each in earlier.pattern if not set("?[") & set(each) or each == pattern)
    return any(each == pattern or (fnmatchcase(pattern, each) and "[" not in pattern) for each in sure)
