"""Which message is being handled: what is put meanwhile says that it was caused by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from postroom.message import Message

_cause: ContextVar[Message | None] = ContextVar("postroom_cause", default=None)


@contextmanager
def causing(message: Message | None) -> Iterator[None]:
    """Inside, this message is being handled; None: several at once, none of which is the cause."""
    token = _cause.set(message)
    try:
        yield
    finally:
        _cause.reset(token)


def caused(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, each with the causation and the correlation of the one being handled, where it says none itself."""
    cause = _cause.get()
    if cause is None:
        return messages
    correlation = cause.correlation_id or cause.id_text
    return [
        message.replace(
            causation_id=message.causation_id or cause.id_text, correlation_id=message.correlation_id or correlation
        )
        for message in messages
    ]
