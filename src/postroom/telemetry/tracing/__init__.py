"""A message's way as OpenTelemetry spans, where the process uses OpenTelemetry; else each of these costs a look-up.

`create` is the span of a `put`, and its context goes with the message, unchanged for ever; `send`, `receive` and `process`
link to it. Nothing that goes wrong with a span ever costs a message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol, TypeVar

from postroom.telemetry.tracing.context import current, is_loaded, traced

if TYPE_CHECKING:
    from postroom.message import Message
    from postroom.telemetry.tracing.spans import Spans
    from postroom.validation import Limits

__all__ = ["Carried", "Failing", "creating", "current", "processing", "received", "sending", "traced"]

Written = TypeVar("Written")
Failing = Callable[[str, str], None]
"""Tells a span that what it spans did not work: a code, and what was said."""


class Carried(Protocol):
    """A message on its way: an Envelope, a Delivery."""

    @property
    def message(self) -> Message: ...
    @property
    def topic(self) -> str | None: ...


def creating(messages: Sequence[Message], limits: Limits, write: Callable[[Sequence[Message]], Written]) -> Written:
    """Write the messages, each with a trace context: its own, or that of the one `create` span of this call."""
    if not is_loaded():
        return write(messages)
    if (spans := _in_use()) is None:
        return write(traced(messages, limits))
    return spans.creating(messages, limits, write)


def sending(system: str, batch: Collection[Carried], *, topic: str | None) -> AbstractContextManager[Failing | None]:
    """Inside, this batch is sent; *topic* is where what names none goes. What it gives, if any, is to be told of a failure."""
    spans = _in_use()
    return _NOTHING if spans is None else spans.sending(system, batch, topic)


def received(system: str, batch: Collection[Carried], seconds: float) -> None:
    """This batch was received, which took so long."""
    if (spans := _in_use()) is not None:
        spans.received(system, batch, seconds)


def processing(system: str, batch: Iterable[Carried]) -> AbstractContextManager[object]:
    """Inside, these are handled, and what is put carries on the trace."""
    spans = _in_use()
    return _NOTHING if spans is None else spans.processing(system, list(batch))


def _in_use() -> Spans | None:
    if not is_loaded():
        return None
    from postroom.telemetry.tracing.spans import in_use

    return in_use()


_NOTHING = nullcontext()
