"""What a span says: its attributes, its links, and the context that a message came with. This imports OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from postroom.telemetry.tracing.context import TRACEPARENT

if TYPE_CHECKING:
    from postroom.message import Message
    from postroom.telemetry.tracing import Carried

NAMED = {"sqs": "aws_sqs"}
"""Transports that the conventions know by another name."""
TRACES, BAGGAGE = TraceContextTextMapPropagator(), W3CBaggagePropagator()


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
