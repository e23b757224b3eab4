"""The spans, by OpenTelemetry's conventions for messaging. This imports OpenTelemetry: only who knows it loaded may."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from postroom.clock import unix_ns
from postroom.text import describe

if TYPE_CHECKING:
    from postroom.message import Message

logger = logging.getLogger(__name__)
Written = TypeVar("Written")
FactsOfError = Callable[[BaseException], Mapping[str, str | bool]]
OUTBOX = "postroom"
"""The system of a `create` span: which broker it will be is decided by the relay."""
TRACEPARENT = "traceparent"
NAMED = {"sqs": "aws_sqs"}
"""Transports that the conventions know by another name."""
TRACES, BAGGAGE = TraceContextTextMapPropagator(), W3CBaggagePropagator()
_complained: list[bool] = []


class Carried(Protocol):
    """A message on its way: an Envelope, a Delivery."""

    @property
    def message(self) -> Message: ...
    @property
    def topic(self) -> str | None: ...


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

    def creating(self, messages: Sequence[Message], write: Callable[[], Written]) -> Written:
        """One span for a call, not for a message: a thousand put together would push everything else out of the exporter."""
        new = [message for message in messages if not message.traceparent]
        if not new:
            return write()
        facts = facts_of("create", OUTBOX, new, common(message.topic for message in new))
        span = self._start(facts, SpanKind.PRODUCER)
        with _current(trace.set_span_in_context(span)), _failing(span):
            written: Any = write()
        if inspect.isawaitable(written):
            return _after(written, span)  # type: ignore[return-value] # an awaitable for an awaitable
        _end(span)
        return written  # type: ignore[no-any-return] # as it came

    @contextmanager
    def sending(
        self, system: str, batch: Collection[Carried], topic: str | None
    ) -> Iterator[Callable[[str, str], None]]:
        facts = facts_of("send", system, [each.message for each in batch], topic_of(batch, topic))
        span = self._start(facts, SpanKind.CLIENT, links=links_to(batch))
        with _current(trace.set_span_in_context(span)), _failing(span):
            yield lambda code, error: _fail(span, code, error)
        _end(span)

    def received(self, system: str, batch: Collection[Carried], seconds: float) -> None:
        facts = facts_of("receive", system, [each.message for each in batch], topic_of(batch))
        begin = unix_ns() - int(seconds * 1e9)
        _end(self._start(facts, SpanKind.CLIENT, links=links_to(batch), start_time=begin))

    @contextmanager
    def processing(self, system: str, batch: Sequence[Carried], of_error: FactsOfError | None) -> Iterator[None]:
        """A message by itself carries on the trace it came with; several have a trace of their own."""
        messages = [each.message for each in batch]
        context = with_baggage(messages[0]) if len(messages) == 1 else Context()
        facts = facts_of("process", system, messages, topic_of(batch))
        span = self._start(facts, SpanKind.CONSUMER, links=links_to(batch), context=context)
        with _current(trace.set_span_in_context(span, context)), _failing(span, of_error):
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
def _failing(span: Span, of_error: FactsOfError | None = None) -> Iterator[None]:
    """Ends the span if it fails inside, and says why."""
    try:
        yield
    except (Exception, SystemExit) as exc:
        span.record_exception(exc)
        if of_error is not None:
            span.set_attributes(of_error(exc))
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


# ── what a span says: its attributes, its links, and the context that a message came with ──


def facts_of(operation: str, system: str, messages: Sequence[Message], topic: str | None) -> dict[str, Any]:
    """The attributes, by the names of the conventions."""
    facts: dict[str, Any] = {
        "messaging.system": NAMED.get(system, system),
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    if topic is not None:
        facts["messaging.destination.name"] = topic
    if len(messages) != 1:
        return facts | {"messaging.batch.message_count": len(messages)}
    facts["messaging.message.id"] = messages[0].id_text
    if messages[0].correlation_id is not None:
        facts["messaging.message.conversation_id"] = messages[0].correlation_id
    return facts


def topic_of(batch: Iterable[Carried], default: str | None = None) -> str | None:
    """Where all of these go; None where they part."""
    return common(each.topic or each.message.topic or default for each in batch)


def common(values: Iterable[str | None]) -> str | None:
    """The one value that all have."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def links_to(batch: Iterable[Carried]) -> list[Link]:
    """One to each creation context: what was put together has one in common."""
    by_parent = {each.message.traceparent: each.message for each in batch if each.message.traceparent}
    found = (trace.get_current_span(creation_of(message)).get_span_context() for message in by_parent.values())
    return [Link(creation) for creation in found if creation.is_valid]


def with_baggage(message: Message) -> Context:
    """The context in which a message was put, with the baggage it brings."""
    return BAGGAGE.extract(_lowered(message.headers), creation_of(message))


def creation_of(message: Message) -> Context:
    """The context in which a message was put, and nothing of ours."""
    if not message.traceparent:
        return Context()
    return TRACES.extract({**_lowered(message.headers), TRACEPARENT: message.traceparent}, Context())


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
