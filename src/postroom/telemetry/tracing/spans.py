"""The spans, by OpenTelemetry's conventions for messaging. This imports OpenTelemetry: only who knows it loaded may."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanKind, Status, StatusCode

from postroom.telemetry.tracing.context import traced
from postroom.telemetry.tracing.facts import common, facts_of, links_to, topic_of, with_baggage
from postroom.text import describe

if TYPE_CHECKING:
    from postroom.message import Message
    from postroom.telemetry.tracing import Carried, Failing, Written
    from postroom.validation import Limits

logger = logging.getLogger(__name__)
OUTBOX = "postroom"
"""The system of a `create` span: which broker it will be is decided by the relay."""
_complained: list[bool] = []


def in_use() -> Spans | None:
    """None where OpenTelemetry is loaded, but nobody has set it up: then no span would reach anybody."""
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) else _spans_of(provider)


@lru_cache(maxsize=1)
def _spans_of(provider: trace.TracerProvider) -> Spans:
    return Spans(provider)


class Spans:
    """Makes the spans of one provider."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer("postroom")

    def creating(self, messages: Sequence[Message], limits: Limits, write: Callable[..., Written]) -> Written:
        """One span for a call, not for a message: a thousand put together would push everything else out of the exporter."""
        new = [message for message in messages if not message.traceparent]
        if not new:
            return write(messages)
        facts = facts_of("create", OUTBOX, new, common(message.topic for message in new))
        span = self._start(facts, SpanKind.PRODUCER)
        with _current(trace.set_span_in_context(span)), _failing(span):
            written: Any = write(traced(messages, limits))
        if inspect.isawaitable(written):
            return _after(written, span)  # type: ignore[return-value] # an awaitable for an awaitable
        _end(span)
        return written  # type: ignore[no-any-return] # as it came

    @contextmanager
    def sending(self, system: str, batch: Collection[Carried], topic: str | None) -> Iterator[Failing]:
        facts = facts_of("send", system, [each.message for each in batch], topic_of(batch, topic))
        span = self._start(facts, SpanKind.CLIENT, links=links_to(batch))
        with _current(trace.set_span_in_context(span)), _failing(span):
            yield lambda code, error: _fail(span, code, error)
        _end(span)

    def received(self, system: str, batch: Collection[Carried], seconds: float) -> None:
        facts = facts_of("receive", system, [each.message for each in batch], topic_of(batch))
        begin = time.time_ns() - int(seconds * 1e9)
        _end(self._start(facts, SpanKind.CLIENT, links=links_to(batch), start_time=begin))

    @contextmanager
    def processing(self, system: str, batch: Sequence[Carried]) -> Iterator[None]:
        """A message by itself carries on the trace it came with; several have a trace of their own."""
        messages = [each.message for each in batch]
        context = with_baggage(messages[0]) if len(messages) == 1 else Context()
        facts = facts_of("process", system, messages, topic_of(batch))
        span = self._start(facts, SpanKind.CONSUMER, links=links_to(batch), context=context)
        with _current(trace.set_span_in_context(span, context)), _failing(span):
            yield
        _end(span)

    def _start(self, facts: Mapping[str, Any], kind: SpanKind, **options: Any) -> Span:
        operation, topic = facts["messaging.operation.name"], facts.get("messaging.destination.name")
        name = f"{operation} {topic}" if topic else operation
        try:
            return self._tracer.start_span(name, kind=kind, attributes=facts, **options)
        except Exception:  # noqa: BLE001 - tracing never costs a message
            _complain()
            # In its place the one above it, so that the trace goes on; ending this one ends nothing.
            return NonRecordingSpan(trace.get_current_span(options.get("context")).get_span_context())


# ── how a span ends ──


async def _after(written: Awaitable[Any], span: Span) -> Any:
    with _current(trace.set_span_in_context(span)), _failing(span):
        result = await written
    _end(span)
    return result


@contextmanager
def _current(context: Context) -> Iterator[None]:
    token = contexts.attach(context)
    try:
        yield
    finally:
        contexts.detach(token)


@contextmanager
def _failing(span: Span) -> Iterator[None]:
    """Ends the span if it fails inside, and says why."""
    try:
        yield
    except (Exception, SystemExit) as exc:
        span.record_exception(exc)
        _fail(span, type(exc).__qualname__, describe(exc))
        _end(span)
        raise
    except BaseException:
        _end(span)  # it was cut off, which is nobody's error
        raise


def _fail(span: Span, code: str, error: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR, error))


def _end(span: Span) -> None:
    try:
        span.end()
    except Exception:  # noqa: BLE001 - tracing never costs a message
        _complain()


def _complain() -> None:
    # Aloud only once: what fails at one span fails at each.
    level = logging.DEBUG if _complained else logging.ERROR
    _complained[:] = [True]
    logger.log(level, "A span is lost: a sampler or a span processor failed.", exc_info=True)
