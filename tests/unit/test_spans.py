"""What a message goes through is a trace: create, send, receive and process, each linked to where it was put."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from sqlalchemy.ext.asyncio import create_async_engine
from tests.conformance.inbox.desks import sqlite_desk
from tests.unit.inbox.shops import QUICK, TOPIC, Shop, an_inbox

from postroom.contracts.transport import Envelope, Publisher
from postroom.errors import DuplicateMessage
from postroom.inbox import RejectMessage
from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.relay import Relay, Route
from postroom.stores import open_store
from postroom.stores.sqlite.url import path_of
from postroom.telemetry.spans import in_use
from postroom.telemetry.tracing import sending
from postroom.transports import open_publisher
from postroom.transports.local import LocalPublisher
from postroom.transports.memory import MemoryPublisher

OWN = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    """OpenTelemetry, set up for this test alone: its own function takes a provider once per process."""
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return provider


Spans = Callable[..., list[ReadableSpan]]


@pytest.fixture
def spans(provider: TracerProvider) -> Spans:
    """The spans that ended, of this operation."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def of(operation: str) -> list[ReadableSpan]:
        ended = exporter.get_finished_spans()
        return [span for span in ended if facts(span).get("messaging.operation.name") == operation]

    return of


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with sqlite_desk(tmp_path / "shop.db") as desk:
        yield Shop(desk)


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def traceparent(span: ReadableSpan) -> str:
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def ids(*spans: ReadableSpan) -> list[tuple[int, int]]:
    return [(span.context.trace_id, span.context.span_id) for span in spans]


def put(shop: Shop, *messages: Message) -> None:
    with closing(sqlite3.connect(path_of(shop.desk.url), isolation_level=None)) as connection:
        connection.execute("BEGIN")
        Outbox().put_many(connection, messages)
        connection.execute("COMMIT")


async def relay(shop: Shop, to: Publisher | None = None) -> None:
    async with open_store(shop.desk.url) as store:
        await Relay(store, [Route(to=to or MemoryPublisher(shop.broker, topic=TOPIC), retry=QUICK)]).drain()


@pytest.mark.requirement("A7", "B9")
async def test_put_publish_receive_and_handle_are_four_spans_of_one_way(shop: Shop, spans: Spans) -> None:
    inbox = an_inbox()
    inbox.on("*")(lambda message, tx: shop.insert(tx, message.data))
    message = Message("order.paid", data=7, correlation_id="cart-3")
    put(shop, message)
    await relay(shop)
    await shop.receive(inbox)
    (create,), (send,), (receive,), (process,) = map(spans, ("create", "send", "receive", "process"))
    assert [span.name for span in (create, send, receive, process)] == [
        *("create", "send orders", "receive orders", "process orders")
    ]
    assert [span.kind for span in (create, send, receive, process)] == [
        *(SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CLIENT, SpanKind.CONSUMER)
    ]
    assert linked(send) == linked(receive) == linked(process) == ids(create)
    assert process.parent is not None
    assert process.parent.span_id == create.context.span_id
    assert facts(process) == {
        "messaging.system": "memory",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": TOPIC,
        "messaging.message.id": message.id_text,
        "messaging.message.conversation_id": "cart-3",
    }
    (sent,) = shop.broker.topics[TOPIC]
    assert sent.traceparent == traceparent(create), "nobody on the way has changed it"
    assert list(await shop.desk.effects()) == ["7"]


async def test_what_is_put_together_has_one_span_and_one_link(
    shop: Shop, spans: Spans, provider: TracerProvider
) -> None:
    with provider.get_tracer("test").start_as_current_span("checkout") as checkout:
        # Of one key, so that they go in one batch.
        paid = Message("order.paid", key="a")
        put(shop, paid, Message("order.paid", key="a"), Message("order.paid", key="a", traceparent=OWN))
    await relay(shop)
    (create,), (send,) = spans("create"), spans("send")
    assert create.parent == checkout.get_span_context()
    assert facts(create)["messaging.batch.message_count"] == 2, "the third has a context of its own"
    assert facts(send)["messaging.batch.message_count"] == 3
    assert linked(send) == [*ids(create), (int("a" * 32, 16), int("b" * 16, 16))]
    assert "messaging.message.id" not in facts(send)


async def test_a_message_with_a_context_of_its_own_keeps_it_and_has_no_create_span(shop: Shop, spans: Spans) -> None:
    put(shop, Message("order.paid", traceparent=OWN))
    assert [message.traceparent for message in await shop.desk.put()] == [OWN]
    assert spans("create") == []


def check_refused(spans: Spans) -> None:
    well, refused = spans("create")
    assert well.status.status_code is StatusCode.UNSET
    assert refused.status.status_code is StatusCode.ERROR
    assert facts(refused)["error.type"] == "DuplicateMessage"


async def test_a_put_that_is_refused_is_a_failed_span(shop: Shop, spans: Spans) -> None:
    message = Message("order.paid")
    put(shop, message)
    with pytest.raises(DuplicateMessage):
        put(shop, message)
    check_refused(spans)


async def test_so_is_one_that_is_awaited(shop: Shop, spans: Spans) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path_of(shop.desk.url)}")
    message = Message("order.paid")
    async with engine.connect() as connection, connection.begin():
        await Outbox().put(connection, message)
        with pytest.raises(DuplicateMessage):
            await Outbox().put(connection, message)
    await engine.dispose()
    check_refused(spans)


async def test_what_a_broker_refuses_is_a_failed_send(shop: Shop, spans: Spans) -> None:
    shop.broker.known = frozenset({TOPIC})
    put(shop, Message("order.paid", topic="invoices"))
    await relay(shop)
    (send,) = spans("send")
    assert facts(send)["error.type"] == "UNROUTABLE"
    assert send.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_what_a_handler_puts_carries_on_the_trace_and_the_baggage(shop: Shop, spans: Spans, kind: str) -> None:
    inbox, seen = an_inbox(), list[object]()

    def answer(message: Message, tx: Any) -> None:
        seen.append(baggage.get_baggage("user"))
        Outbox().put(tx, Message("invoice.made"))

    async def answer_async(message: Message, tx: Any) -> None:
        answer(message, tx)

    inbox.on("*")(answer if kind == "sync" else answer_async)
    token = context.attach(baggage.set_baggage("user", "zoe"))
    put(shop, Message("order.paid"))
    context.detach(token)
    await relay(shop)
    await shop.receive(inbox)
    (first, second), (process,) = spans("create"), spans("process")
    assert second.parent is not None
    assert second.parent.span_id == process.context.span_id
    assert second.context.trace_id == first.context.trace_id
    assert seen == ["zoe"]
    made = next(each for each in await shop.desk.put() if each.type == "invoice.made")
    assert made.traceparent == traceparent(second)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_so_does_what_a_function_puts_that_the_relay_calls(shop: Shop, spans: Spans, kind: str) -> None:
    def answer(message: Message) -> None:
        if message.type == "order.paid":
            put(shop, Message("invoice.made"))

    async def answer_async(message: Message) -> None:
        answer(message)

    put(shop, Message("order.paid"))
    await relay(shop, LocalPublisher(answer if kind == "sync" else answer_async))
    (first, second), (process, _) = spans("create"), spans("process")
    assert linked(process) == ids(first)
    assert second.parent is not None
    assert ids(second) != ids(first)
    assert (second.context.trace_id, second.parent.span_id) == (first.context.trace_id, process.context.span_id)


async def test_a_try_that_fails_is_a_failed_span_and_the_next_one_is_another(shop: Shop, spans: Spans) -> None:
    inbox, tries = an_inbox(), list[int]()

    @inbox.on("*")
    def charge(message: Message, tx: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("the bank is closed")

    shop.send(Message("order.paid", traceparent=OWN))
    await shop.receive(inbox)
    failed, well = spans("process")
    assert facts(failed)["error.type"] == "OSError"
    assert facts(failed)["postroom.error.code"] == "HANDLER_ERROR"
    assert facts(failed)["postroom.error.business"] is False
    assert [event.name for event in failed.events] == ["exception"]
    assert well.status.status_code is StatusCode.UNSET
    assert linked(failed) == linked(well) == [(int("a" * 32, 16), int("b" * 16, 16))]


async def test_the_span_of_a_message_that_was_rejected_says_that_it_is_a_business_error(
    shop: Shop, spans: Spans
) -> None:
    inbox = an_inbox()

    @inbox.on("*")
    async def charge(message: Message, tx: Any) -> None:
        raise RejectMessage("a negative amount", code="NEGATIVE")

    shop.send(Message("order.paid"))
    await shop.receive(inbox)
    (failed,) = spans("process")
    assert facts(failed)["error.type"] == "RejectMessage"
    assert facts(failed)["postroom.error.code"] == "NEGATIVE"
    assert facts(failed)["postroom.error.business"] is True


async def test_a_batch_is_handled_in_a_trace_of_its_own_that_links_to_each(shop: Shop, spans: Spans) -> None:
    inbox = an_inbox()

    @inbox.on("*", batch=10)
    async def charge(messages: Sequence[Message], tx: Any) -> None:
        Outbox().put(tx, Message("report.made"))

    other = f"00-{'c' * 32}-{'d' * 16}-01"
    shop.send(Message("order.paid", traceparent=OWN), Message("order.paid", traceparent=other), Message("order.paid"))
    await shop.receive(inbox)
    (process,), (create,) = spans("process"), spans("create")
    assert process.parent is None
    assert [f"{span:x}" for _, span in linked(process)] == ["b" * 16, "d" * 16]
    assert facts(process)["messaging.batch.message_count"] == 3
    assert create.context.trace_id == process.context.trace_id


@pytest.mark.parametrize(
    "url",
    [
        "memory://shop/orders",
        "kafka://broker:9092/orders",
        "sqs://eu-central-1/orders",
        "nats://broker:4222/ORDERS?subject=orders",
    ],
)
def test_a_transport_declares_where_a_message_goes_that_names_no_topic(url: str) -> None:
    assert open_publisher(url).capabilities.topic == "orders"


async def test_a_batch_of_sqs_is_told_by_the_name_that_the_conventions_know(spans: Spans) -> None:
    with sending("sqs", [Envelope(Message("order.paid"), "a"), Envelope(Message("order.paid"), "b")], topic=None):
        pass
    (send,) = spans("send")
    assert (send.name, facts(send)["messaging.system"]) == ("send", "aws_sqs"), "two topics are no name"


class Broken(SpanProcessor):
    """Fails at every span."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("no room")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("no room")


@pytest.mark.parametrize("hook", ["on_start", "on_end"])
async def test_a_tracer_that_fails_costs_no_message(
    shop: Shop, provider: TracerProvider, hook: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("postroom.telemetry.spans._complained", [])
    monkeypatch.delattr(Broken, hook)
    provider.add_span_processor(Broken())
    inbox = an_inbox()
    inbox.on("*")(lambda message, tx: shop.insert(tx, message.data))
    put(shop, Message("order.paid", data=7))
    await relay(shop)
    await shop.receive(inbox)
    assert list(await shop.desk.effects()) == ["7"]
    assert [record.levelname for record in caplog.records if "A span is lost" in record.message] == ["ERROR"]


async def test_loaded_but_not_set_up_no_span_is_made(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    assert in_use() is None, "links to a thousand messages would be made for nobody"
    inbox, seen = an_inbox(), list[trace.Span]()
    inbox.on("*")(lambda message, tx: seen.append(trace.get_current_span()))
    put(shop, Message("order.paid"))
    await relay(shop)
    await shop.receive(inbox)
    assert [message.traceparent for message in shop.broker.topics[TOPIC]] == [None]
    assert seen == [trace.INVALID_SPAN]


def test_nothing_is_imported_from_put_to_handle_where_nobody_uses_opentelemetry(tmp_path: Path) -> None:
    code = """if True:
        import asyncio, sqlite3, sys
        from datetime import timedelta
        from postroom import Inbox, Message, Outbox, InboxWorker, Relay, Route
        from postroom import open_consumer, open_store, open_publisher

        async def main():
            inbox, seen = Inbox("billing"), []
            inbox.on("*")(lambda message, tx: seen.append(message.traceparent))
            async with open_store("sqlite:///shop.db") as store:
                await store.schema.migrate()
                with sqlite3.connect("shop.db", isolation_level=None) as connection:
                    connection.execute("BEGIN")
                    Outbox().put(connection, Message("order.paid"))
                    connection.execute("COMMIT")
                await Relay(store, [Route(to=open_publisher("memory://shop/orders"))]).drain()
            async with open_store("sqlite:///shop.db") as store:
                reception = InboxWorker(inbox, store, open_consumer("memory://shop/orders"))
                await reception.run(until_idle=timedelta(milliseconds=1))
            assert seen == [None]

        asyncio.run(main())
        assert not any(name.startswith("opentelemetry") for name in sys.modules)
        assert "postroom.telemetry.spans" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
