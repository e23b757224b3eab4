"""The settings, as values that check themselves: a wrong one never exists.

Nothing here reads a file or the environment: `postroom.settings.load` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Literal

from postroom.durations import format_duration
from postroom.errors import ConfigError
from postroom.retry import MAX_ATTEMPTS_DEFAULT, Backoff, RetryPolicy

LEASE_PER_SEND = 2
"""A lease lasts at least so many send time-outs.

A lease is renewed each third of it, and no send starts that could outlast what is left: two thirds of the
lease must hold a whole send, with time to spare for the renewal itself.
"""
NAME_MAX = 48
IDENTIFIER = re.compile(rf"[a-z_][a-z0-9_]{{0,{NAME_MAX - 1}}}")
"""A table prefix or schema. Short enough that prefix and `_messages` stay below PostgreSQL's 63 bytes."""
MILLISECOND, HOUR, KIB = timedelta(milliseconds=1), timedelta(hours=1), 1024
BODY_DEFAULT, BODY_MAX = 256 * KIB, 1024 * KIB
HEADERS_DEFAULT, HEADERS_MAX = 64, 256
HEADERS_TOTAL_DEFAULT, HEADERS_TOTAL_MAX = 16 * KIB, 64 * KIB
HEADER_NAME_DEFAULT, HEADER_NAME_MAX = 128, 256
HEADER_VALUE_DEFAULT, HEADER_VALUE_MAX = 2 * KIB, 16 * KIB
# These three are as wide as their columns: they can be lowered, not raised.
TYPE_MAX, KEY_MAX, TOPIC_MAX = 200, 200, 255


def _within(low: int | timedelta, high: int | timedelta) -> dict[str, Any]:
    return {"within": (low, high)}


def _check_fields(config: Any) -> None:
    for each in fields(config):
        if within := each.metadata.get("within"):
            _check(each.name, getattr(config, each.name), *within)


def _check(name: str, value: Any, low: Any, high: Any) -> None:
    # By exact type, because True is an int to Python and no count to anybody.
    if type(value) is not type(low) or not low <= value <= high:
        kind = "duration" if isinstance(low, timedelta) else "whole number"
        raise ConfigError(
            f"{name} is {_show(value)}; it must be a {kind} from {_show(low)} to {_show(high)}.",
            **{name: value},
        )


def _show(value: object) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    return f"{value:,}" if type(value) is int else repr(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayConfig:
    """How a relay works.

    >>> RelayConfig(batch=500, lease=timedelta(seconds=30)).retry.max_attempts
    6
    """

    enabled: bool = False
    """Whether an application starts the relay embedded in it. Default off.

    `postroom relay`, a process that exists to be one, runs regardless."""
    concurrency: int = field(default=4, metadata=_within(1, 1_000))
    """How many batches are in flight at once. Default 4; 1 to 1,000."""
    batch: int = field(default=32, metadata=_within(1, 10_000))
    """How many messages are claimed at once, at most. Default 32; 1 to 10,000."""
    poll: timedelta = field(default=timedelta(seconds=0.5), metadata=_within(MILLISECOND, HOUR))
    """How long an idle relay waits before it looks again, at most. Default 0.5 s; 1 ms to 1 h."""
    lease: timedelta = field(default=timedelta(seconds=120), metadata=_within(100 * MILLISECOND, 24 * HOUR))
    """How long a silent relay keeps its lanes. Default 120 s; 100 ms to 24 h; two send time-outs at least."""
    send_timeout: timedelta = field(default=timedelta(seconds=2.5), metadata=_within(MILLISECOND, HOUR))
    """How long one send may take. Default 2.5 s; 1 ms to 1 h."""
    max_attempts: int = field(default=MAX_ATTEMPTS_DEFAULT, metadata=_within(1, 1_000_000))
    """How many tries a message has, the first one included. Default 6; 1 to 1,000,000."""
    backoff: Backoff = RetryPolicy.WORKER.backoff
    """How long to wait between tries. Default 5, 10, 20, 40, 80, 160 s."""

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.lease < LEASE_PER_SEND * self.send_timeout:
            raise ConfigError(
                f"lease is {_show(self.lease)} with a send_timeout of {_show(self.send_timeout)}; "
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
class Limits:
    """How large a message may be; checked at `put`, before anything is written."""

    body: int = field(default=BODY_DEFAULT, metadata=_within(1, BODY_MAX))
    """The encoded body, in bytes. Default 256 KiB; at most 1 MiB."""
    headers: int = field(default=HEADERS_DEFAULT, metadata=_within(0, HEADERS_MAX))
    """How many headers. Default 64; at most 256."""
    headers_total: int = field(default=HEADERS_TOTAL_DEFAULT, metadata=_within(0, HEADERS_TOTAL_MAX))
    """All names and values of the headers together, in bytes. Default 16 KiB; at most 64 KiB."""
    header_name: int = field(default=HEADER_NAME_DEFAULT, metadata=_within(1, HEADER_NAME_MAX))
    """One header's name, in bytes. Default 128; at most 256."""
    header_value: int = field(default=HEADER_VALUE_DEFAULT, metadata=_within(1, HEADER_VALUE_MAX))
    """One header's value, in bytes. Default 2 KiB; at most 16 KiB."""
    type: int = field(default=TYPE_MAX, metadata=_within(1, TYPE_MAX))
    """The type, in characters. Default 200, and not more."""
    key: int = field(default=KEY_MAX, metadata=_within(1, KEY_MAX))
    """The key, in bytes of UTF-8. Default 200, and not more."""
    topic: int = field(default=TOPIC_MAX, metadata=_within(1, TOPIC_MAX))
    """The topic, in characters. Default 255, and not more."""

    def __post_init__(self) -> None:
        _check_fields(self)


Part = Literal["", "lane", "claim", "hold", "relay", "schema", "messages"]
"""The tables: the messages themselves, what is around them, and the view that people read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableNames:
    """What the tables are called.

    >>> TableNames(prefix="post", schema="shop").qualified("lane")
    '"shop"."post_lane"'
    """

    prefix: str = "outbox"
    """The name of the messages' table, and the start of the others'. Default `outbox`; an identifier."""
    schema: str | None = None
    """The database schema they are in; an identifier. Default none: where the search path leads."""

    def __post_init__(self) -> None:
        for what, name in {"table prefix": self.prefix, "schema": self.schema}.items():
            if name is not None and not IDENTIFIER.fullmatch(name):
                raise ConfigError(
                    f"{name!r} is a {what} that is no identifier; it must be lower-case letters, digits "
                    f"and _, {NAME_MAX} of them at most, and not start with a digit.",
                    name=name,
                )

    def name(self, part: Part = "") -> str:
        """The bare name of one table: `outbox_lane`."""
        return f"{self.prefix}_{part}" if part else self.prefix

    def qualified(self, part: Part = "") -> str:
        """The name of one table as SQL takes it: quoted, with its schema where there is one."""
        name = f'"{self.name(part)}"'
        return f'"{self.schema}".{name}' if self.schema else name


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that can be set. Its `repr` shows no URL, since a URL may hold a password."""

    store: str | None = field(default=None, repr=False)
    """The URL of the database. Default none: then it must be given where it is needed."""
    to: str | None = field(default=None, repr=False)
    """The URL of the broker. Default none: then it must be given where it is needed."""
    lanes: int = field(default=64, metadata=_within(1, 1_024))
    """How many lanes `init` makes. Default 64; 1 to 1,024. Later it changes only with nothing open."""
    relay: RelayConfig = RelayConfig()
    """How the relay works."""
    tables: TableNames = TableNames()
    """What the tables are called."""
    limits: Limits = Limits()
    """How large a message may be."""

    def __post_init__(self) -> None:
        _check_fields(self)
