"""What is said on stderr: an error, a note, the library's own warnings as notes, and the log of a service.

In the log the user's own lines stand beside Postroom's, each with the time where no terminal shows it. A user's module that
sets up logging keeps what it set up: nothing is added then. A driver's lines are left out, unless `--log-level debug` asks for
all: what they are about is told by Postroom.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from postroom.cli.output import printable

LEVELS = ("debug", "info", "warning", "error")
DRIVERS = frozenset(
    {
        *("aiobotocore", "aio_pika", "aiokafka", "aiormq", "asyncio", "asyncmy", "boto3", "botocore", "concurrent"),
        *("confluent_kafka", "h11", "httpcore", "httpx", "nats", "pamqp", "psycopg", "pymongo", "pymysql", "redis"),
        "urllib3",
    }
)
OF_DRIVERS = ("postroom.kafka",)
"""Loggers of ours that pass on a driver's lines: librdkafka's."""
AGAIN_SECONDS = 60.0
"""The same line of Postroom's is not said again for so long: a broker that is away is tried every few seconds."""
SAID_MAX = 1_000
EACH_TIME = ("postroom.inbox", "postroom.transports.local")
"""Who tells of single messages: each line is about another try."""
ON_TERMINAL, ELSEWHERE = "%(levelname)s: %(message)s", "%(asctime)s %(levelname)s %(name)s: %(message)s"

log_level = click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    metavar="LEVEL",
    help="How much is logged on stderr: debug (drivers too), info, warning or error. Default: info.",
)


def say(text: str) -> None:
    """Write one line on stderr, whatever is in the text."""
    sys.stderr.write(f"{printable(' '.join(text.split()))}\n")


def note(text: str) -> None:
    """Tell something that is not an error."""
    say(f"note: {text}")


@contextmanager
def showing_notes() -> Iterator[None]:
    """Show each warning of the library once, as a note, while this lasts."""
    handler, root = Notes(logging.WARNING), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class Notes(logging.Handler):
    """It stands at the root, so that a driver's or asyncio's log lines, tracebacks among them, are swallowed here: what
    they are about reaches the user as the error of the command."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        # `init` tells of the SQLite defect, where there is still a choice; to say it at each `list` would be noise.
        if record.name.partition(".")[0] != "postroom" or record.funcName == "warn_of_wal_reset_defect":
            return
        text = record.getMessage()
        if text not in self._shown:
            self._shown.add(text)
            note(text)


@contextmanager
def logging_lines(level: str, *, scrub: Callable[[str], str] = str) -> Iterator[None]:
    """Write log lines on stderr while this lasts, from this level on, unless the user's own logging handles them."""
    root, before = logging.getLogger(), logging.lastResort
    level_before = root.level
    notes = [handler for handler in root.handlers if isinstance(handler, Notes)]
    for handler in notes:
        root.removeHandler(handler)
    # Not a handler of the root: `logging.basicConfig` in a user's module would then do nothing.
    logging.lastResort = _Lines(level, scrub)
    root.setLevel(level.upper())
    try:
        yield
    finally:
        logging.lastResort = before
        root.setLevel(level_before)
        for handler in notes:
            root.addHandler(handler)


class _Lines(logging.StreamHandler[Any]):
    def __init__(self, level: str, scrub: Callable[[str], str]) -> None:
        super().__init__(sys.stderr)
        self.setLevel(level.upper())
        self.setFormatter(_Format(ON_TERMINAL if sys.stderr.isatty() else ELSEWHERE))
        self._all, self._scrub = level == "debug", scrub
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        part = record.name.partition(".")[0]
        # `init` tells of the SQLite defect, where there is still a choice; to say it at each start would be noise.
        if (part in DRIVERS or record.name in OF_DRIVERS) and not self._all:
            return False
        if record.funcName == "warn_of_wal_reset_defect":
            return False
        return part != "postroom" or self._is_new(record)

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        # A user's own lines are the user's, and may be many.
        return self._scrub(line) if record.exc_info or record.name.startswith("postroom") else line

    def _is_new(self, record: logging.LogRecord) -> bool:
        if record.name in EACH_TIME:
            return True
        text, now = record.getMessage(), time.monotonic()
        if now - self._said.get(text, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return False
        if len(self._said) >= SAID_MAX:
            self._said.clear()
        self._said[text] = now
        return True


class _Format(logging.Formatter):
    """An error's own words may have a newline or an escape in them: no line of a traceback looks like a line of the log."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        return "\n".join(f"    {printable(line)}" for line in super().formatException(ei).splitlines())
