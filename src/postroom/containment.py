"""Calling a stranger's code: a handler, a function, a publisher of the user's own. Whatever it raises is a result.

A task that ends quietly while it holds a lane or a key stops that lane or key for good. So what comes out of a stranger's
code is always an ordinary exception, which the caller answers. Two things are not the stranger's and pass as they are: a
cancellation that *we* asked for, and Ctrl-C.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from postroom.text import describe


class Escaped(Exception):
    """A stranger's code raised what is not an ordinary exception: SystemExit, a cancellation of its own, a BaseException.

    What it raised is the cause."""


@contextmanager
def contained() -> Iterator[None]:
    """Run a stranger's code inside. Exceptions come out as they are; anything else that it raises comes out as Escaped.

    Raises CancelledError only when the current task was asked to end, and KeyboardInterrupt only in the event loop's
    thread: in any other, Ctrl-C does not arrive, so it was raised by hand."""
    try:
        yield
    except Exception:
        raise
    except asyncio.CancelledError as exc:
        if _is_asked_to_end():
            raise
        raise Escaped("CancelledError: it awaited a task that other code cancelled") from exc
    except KeyboardInterrupt as exc:
        if _task() is not None:
            raise
        raise Escaped(describe(exc)) from exc
    except BaseException as exc:
        raise Escaped(describe(exc)) from exc


def _task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # in a thread without a loop
        return None


def _is_asked_to_end() -> bool:
    task = _task()
    return task is not None and task.cancelling() > 0
