"""A message's way as OpenTelemetry spans, where the process uses OpenTelemetry; else each of these costs a look-up.

`create` is the span of a `put`, and its context goes with the message, unchanged forever; `send`, `receive` and `process`
link to it. Nothing that goes wrong with a span ever costs a message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from postroom import validation as rules
from postroom.errors import InvalidMessage

if TYPE_CHECKING:
    from postroom.message import Message
    from postroom.telemetry.spans import Carried, Spans
    from postroom.validation import Limits

Written = TypeVar("Written")
Failing = Callable[[str, str], None]
"""Tells a span that what it spans did not work: a code, and what was said."""
TRACEPARENT = "traceparent"
_NOTHING = nullcontext()


def creating(messages: Sequence[Message], limits: Limits, write: Callable[[Sequence[Message]], Written]) -> Written:
    """Write the messages, each with a trace context: its own, or that of the one `create` span of this call."""
    if not is_loaded():
        return write(messages)
    if (spans := _in_use()) is None:
        return write(traced(messages, limits))
    return spans.creating(messages, lambda: write(traced(messages, limits)))


def sending(system: str, batch: Collection[Carried], *, topic: str | None) -> AbstractContextManager[Failing | None]:
    """Inside, this batch is sent; *topic* is where what names none goes. What it gives, if any, is to be told of a failure."""
    spans = _in_use()
    return _NOTHING if spans is None else spans.sending(system, batch, topic)


def received(system: str, batch: Collection[Carried], seconds: float) -> None:
    """This batch was received, which took so long."""
    if (spans := _in_use()) is not None:
        spans.received(system, batch, seconds)


def processing(
    system: str, batch: Iterable[Carried], facts_of: Callable[[BaseException], Mapping[str, str | bool]] | None = None
) -> AbstractContextManager[object]:
    """Inside, these are handled, and what is put carries on the trace. *facts_of* an error go into the span of a failure."""
    spans = _in_use()
    return _NOTHING if spans is None else spans.processing(system, list(batch), facts_of)


# ── the current context on messages, as W3C headers ──


def traced(messages: Sequence[Message], limits: Limits) -> Sequence[Message]:
    """The messages, each without a traceparent now with the one of the current span, its tracestate and its baggage.

    What a message says itself stays. Tracestate and baggage are left out where they would break a limit: tracing
    never costs a message.
    """
    context = current()
    if TRACEPARENT not in context:
        return messages
    return [message if message.traceparent else _with(message, context, limits) for message in messages]


def current() -> Mapping[str, str]:
    """The current span and baggage as W3C headers; empty without a valid span, or where nobody uses OpenTelemetry."""
    if not is_loaded():
        return {}
    # It is loaded, so these come with it and read from the same context.
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(context)
    if context:
        W3CBaggagePropagator().inject(context)
    return context


def is_loaded() -> bool:
    """Has anybody in this process imported OpenTelemetry? Else nothing else is asked."""
    return "opentelemetry.trace" in sys.modules


def _in_use() -> Spans | None:
    if not is_loaded():
        return None
    from postroom.telemetry.spans import in_use

    return in_use()


def _with(message: Message, context: Mapping[str, str], limits: Limits) -> Message:
    message = message.replace(traceparent=context[TRACEPARENT])
    said = {name.lower() for name in message.headers}
    for name, value in context.items():
        if name == TRACEPARENT or name in said:
            continue
        richer = message.replace(headers={**message.headers, name: value})
        try:
            rules.check_headers(richer, limits)
        except InvalidMessage:
            continue
        message = richer
    return message
