"""The current OpenTelemetry context on messages, as W3C headers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from postroom import validation as rules
from postroom.errors import InvalidMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroom.message import Message
    from postroom.validation import Limits

TRACEPARENT = "traceparent"


def is_loaded() -> bool:
    """Has anybody in this process imported OpenTelemetry? Else nothing else is asked."""
    return "opentelemetry.trace" in sys.modules


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
