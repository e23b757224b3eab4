"""When to try again, and when to stop: decided from numbers alone, so a test owns every outcome.

A wait is the backoff's delay, less a random share of it: `delay * (1 - jitter * roll)`, roll in [0, 1).
Jitter only shortens, so that no delay or ceiling is exceeded; it is at most `JITTER_MAX`, so that no roll
turns a wait into none.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from reprlib import repr as short
from typing import ClassVar

from postroom.durations import format_duration, parse_duration
from postroom.errors import ConfigError

WAIT_MAX = timedelta(hours=24)
"""No wait is longer: neither one of ours, nor one a server asks for."""
FIRST_MIN = timedelta(milliseconds=1)
FACTOR_DEFAULT, FACTOR_MAX = 2.0, 100.0
JITTER_DEFAULT, JITTER_MAX = 0.2, 0.9
MAX_ATTEMPTS_DEFAULT = 6
MAX_ATTEMPTS = "MAX_ATTEMPTS"
"""The code of a message that was given up because its tries are used up."""

_RIGHT = (
    "write delays like 5,10,20 or 5s,1m,10m, or exp:2s..10m for doubling from 2 s to 10 min, "
    "or the name of a preset: worker or transfers."
)


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Try again, once this much time has passed."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Try no more: the message is dead, for this reason."""

    code: str


@dataclass(frozen=True, slots=True)
class Exponential:
    """Delays that grow by a factor, from the first to the ceiling, and stay there.

    >>> backoff = Exponential(timedelta(seconds=2), timedelta(minutes=10))
    >>> [backoff.delay(attempts).seconds for attempts in (1, 2, 3, 9, 10, 10**9)]
    [2, 4, 8, 512, 600, 600]
    """

    first: timedelta
    """The delay after the first failure. At least `FIRST_MIN`."""
    ceiling: timedelta
    """No delay is longer. At most `WAIT_MAX`."""
    factor: float = FACTOR_DEFAULT
    """Each delay is so many times the one before. Default 2; 1 to 100."""
    jitter: float = JITTER_DEFAULT
    """The share of a delay that chance may take away. Default 0.2; 0 (none) to 0.9."""

    def __post_init__(self) -> None:
        if not FIRST_MIN <= self.first <= self.ceiling <= WAIT_MAX:
            raise ConfigError(
                f"backoff goes from {format_duration(self.first)} to {format_duration(self.ceiling)}; "
                f"it must start at {format_duration(FIRST_MIN)} or more, and grow, "
                f"to {format_duration(WAIT_MAX)} at most."
            )
        _between("backoff factor", self.factor, 1, FACTOR_MAX)
        _between("backoff jitter", self.jitter, 0, JITTER_MAX)

    def delay(self, attempts: int) -> timedelta:
        """The wait after so many tries, before jitter; never shorter than the one before."""
        try:
            grown = self.first.total_seconds() * self.factor ** (attempts - 1)
        except OverflowError:
            return self.ceiling
        return self.ceiling if grown >= self.ceiling.total_seconds() else timedelta(seconds=grown)

    def __str__(self) -> str:
        factor = "" if self.factor == FACTOR_DEFAULT else f"*{self.factor!r}"
        jitter = "" if self.jitter == JITTER_DEFAULT else f"~{self.jitter!r}"
        return f"exp:{format_duration(self.first)}..{format_duration(self.ceiling)}{factor}{jitter}"


@dataclass(frozen=True, slots=True)
class Table:
    """Delays one after another as written; the last one repeats."""

    delays: tuple[timedelta, ...]
    """At least one, each from nothing (at once) to `WAIT_MAX`."""
    jitter: float = 0.0
    """The share of a delay that chance may take away. Default 0 (none); at most 0.9."""

    def __post_init__(self) -> None:
        if not self.delays:
            raise ConfigError(f"a backoff without a delay says nothing; {_RIGHT}")
        for delay in self.delays:
            if not timedelta(0) <= delay <= WAIT_MAX:
                raise ConfigError(
                    f"backoff has a delay of {format_duration(delay)}; it must be between 0s and "
                    f"{format_duration(WAIT_MAX)}."
                )
        _between("backoff jitter", self.jitter, 0, JITTER_MAX)

    def delay(self, attempts: int) -> timedelta:
        """The wait after so many tries, before jitter."""
        return self.delays[min(attempts, len(self.delays)) - 1]

    def __str__(self) -> str:
        jitter = f"~{self.jitter!r}" if self.jitter else ""
        return ",".join(map(format_duration, self.delays)) + jitter


Backoff = Exponential | Table


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait between tries, and how many there are.

    >>> RetryPolicy.parse("5,10,20", max_attempts=3).decide(2)
    RetryIn(delay=datetime.timedelta(seconds=10))
    >>> RetryPolicy.parse("5,10,20", max_attempts=3).decide(3)
    GiveUp(code='MAX_ATTEMPTS')
    """

    WORKER: ClassVar[RetryPolicy]
    """The command line's default: 5, 10, 20, 40, 80, 160 s; six tries."""
    TRANSFERS: ClassVar[RetryPolicy]
    """For a busy topic: 2 s doubling to 10 min; five tries."""

    backoff: Backoff
    """How long to wait."""
    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    """How many tries there are in all, the first one included. Default 6; at least 1."""

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise ConfigError(f"max_attempts is {self.max_attempts!r}; it must be a whole number, 1 or more.")

    @classmethod
    def parse(cls, text: str, *, max_attempts: int | None = None) -> RetryPolicy:
        """Reads a backoff as `parse_backoff` does, with a cap: this one, else the preset's, else 6."""
        preset = PRESETS.get(text.strip())
        cap = preset.max_attempts if preset else MAX_ATTEMPTS_DEFAULT
        return cls(parse_backoff(text), cap if max_attempts is None else max_attempts)

    def decide(
        self, attempts: int, *, retry_after: timedelta | None = None, roll: float | None = None
    ) -> RetryIn | GiveUp:
        """Says what follows the failure of a try; `attempts` counts the tries made, this one included.

        A server's `retry_after` can lengthen the wait, up to `WAIT_MAX`, and never shortens it. `roll` is the
        dice of the jitter, in [0, 1); by default it is thrown here.
        """
        if attempts >= self.max_attempts:
            return GiveUp(MAX_ATTEMPTS)
        # Spreading load needs no secrecy.
        dice = random.random() if roll is None else roll  # noqa: S311
        delay = self.backoff.delay(max(attempts, 1)) * (1 - self.backoff.jitter * dice)
        return RetryIn(max(delay, min(retry_after or timedelta(0), WAIT_MAX)))


def parse_backoff(text: str) -> Backoff:
    """Reads `5,10,20` (a table) or `exp:FIRST..CEILING[*FACTOR]`, then maybe `~JITTER`; or a preset's name. `str` writes it.

    >>> str(parse_backoff("exp:2..600*3~0.5")), str(parse_backoff("5,90")), str(parse_backoff("transfers"))
    ('exp:2s..10m*3.0~0.5', '5s,1m30s', 'exp:2s..10m')
    """
    if preset := PRESETS.get(text.strip()):
        return preset.backoff
    way, has_jitter, share = text.strip().partition("~")
    span, grows, times = way.partition("*")
    exponential = span.startswith("exp:")
    try:
        delays = tuple(map(parse_duration, span.removeprefix("exp:").split(".." if exponential else ",")))
        factor = float(times) if grows else FACTOR_DEFAULT
        jitter = float(share) if has_jitter else JITTER_DEFAULT if exponential else 0.0
    except ValueError:
        raise _not_understood(text) from None
    if exponential and len(delays) == 2:
        return Exponential(*delays, factor, jitter)
    if exponential or grows:
        raise _not_understood(text)
    return Table(delays, jitter)


PRESETS: dict[str, RetryPolicy] = {}
"""Policies that have a name: it may be given for a backoff, and brings its cap along."""


def _not_understood(text: str) -> ConfigError:
    return ConfigError(f"backoff {short(text)} is not understood; {_RIGHT}", backoff=text)


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}; it must be between {low:g} and {high:g}.")


RetryPolicy.WORKER = RetryPolicy.parse("5,10,20,40,80,160", max_attempts=6)
RetryPolicy.TRANSFERS = RetryPolicy.parse("exp:2s..10m", max_attempts=5)
PRESETS |= {"worker": RetryPolicy.WORKER, "transfers": RetryPolicy.TRANSFERS}
