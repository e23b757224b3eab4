"""The trace that a message is written in goes along with it, and never costs the message."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from postroom.config.values import Limits
from postroom.message import Message
from postroom.telemetry.tracing import current, traced
from postroom.validation import check

LIMITS = Limits()
PAID = Message("order.paid", headers={"tenant": "a"})
OWN = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def span() -> Iterator[SpanContext]:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    with tracer.start_as_current_span("pay") as span:
        yield span.get_span_context()


@pytest.fixture
def bag(span: SpanContext) -> Iterator[None]:
    token = context.attach(baggage.set_baggage("user", "Zoë & co"))
    yield
    context.detach(token)


def one(message: Message, limits: Limits = LIMITS) -> Message:
    (message,) = traced([message], limits)
    check(message, limits)
    return message


def test_without_a_span_the_messages_are_the_same_objects() -> None:
    messages = [PAID]
    assert traced(messages, LIMITS) is messages


@pytest.mark.requirement("A7")
def test_the_current_span_goes_along(span: SpanContext) -> None:
    message = one(PAID)
    assert message.traceparent == f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    assert message.headers == {"tenant": "a"}
    assert message.id == PAID.id


def test_what_the_message_says_itself_stays(bag: None) -> None:
    assert one(PAID.replace(traceparent=OWN)) == PAID.replace(traceparent=OWN)


def test_baggage_goes_along_as_w3c_writes_it(bag: None) -> None:
    assert one(PAID).headers == {"tenant": "a", "baggage": "user=Zo%C3%AB+%26+co"}


def test_baggage_of_the_message_stays_however_it_is_spelled(bag: None) -> None:
    assert one(PAID.replace(headers={"Baggage": "mine=1"})).headers == {"Baggage": "mine=1"}


def test_tracestate_goes_along() -> None:
    state = TraceState([("vendor", "x")])
    remote = NonRecordingSpan(SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(0), trace_state=state))
    with trace.use_span(remote):
        message = one(PAID)
    assert message.traceparent == f"00-{1:032x}-{2:016x}-00"
    assert message.headers == {"tenant": "a", "tracestate": "vendor=x"}


@pytest.mark.parametrize("limits", [Limits(headers=1), Limits(headers_total=20), Limits(header_value=5)])
def test_baggage_that_would_break_a_limit_is_left_out(bag: None, limits: Limits) -> None:
    message = one(PAID, limits)
    assert message.headers == {"tenant": "a"}
    assert message.traceparent


def test_each_of_many_gets_it_and_the_given_ones_do_not_change(span: SpanContext) -> None:
    messages = [PAID, Message("order.sent", traceparent=OWN)]
    first, second = traced(messages, LIMITS)
    assert first.traceparent != second.traceparent == OWN
    assert PAID.traceparent is None


def test_an_invalid_span_is_none() -> None:
    with trace.use_span(trace.INVALID_SPAN):
        assert not current()


def test_nothing_is_imported_where_nobody_uses_opentelemetry() -> None:
    code = """if True:
        import sys
        from postroom.config.values import Limits
        from postroom.message import Message
        from postroom.telemetry.tracing import traced
        messages = [Message("order.paid")]
        assert traced(messages, Limits()) is messages
        assert not any(name.startswith("opentelemetry") for name in sys.modules)
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
