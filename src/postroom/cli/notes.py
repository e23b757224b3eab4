"""What is said on stderr: an error, a note, and the library's own warnings as notes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from postroom.cli.output import printable


def say(text: str) -> None:
    """Write one line on stderr, whatever is in the text."""
    sys.stderr.write(f"{printable(' '.join(text.split()))}\n")


def note(text: str) -> None:
    """Tell something that is no error."""
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
