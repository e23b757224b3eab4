"""An AMQP URL says a server and where messages go; what it says wrongly is told in one sentence, without the password."""

from __future__ import annotations

import pytest
from yarl import URL

from postroom import open_publisher
from postroom.contracts.transport import ConsumerOptions
from postroom.errors import ConfigError
from postroom.transports import open_consumer
from postroom.transports.amqp import AmqpConsumer, AmqpPublisher
from postroom.transports.amqp.url import read

HOST = "amqp://app:s3cret@broker"


@pytest.mark.parametrize(
    ("url", "exchange", "queue", "routing_key", "bindings"),
    [
        (f"{HOST}", "", None, None, ()),
        (f"{HOST}/shop?exchange=orders", "orders", None, None, ()),
        (f"{HOST}/shop?exchange=orders&routing_key=a%26b+c", "orders", None, "a&b+c", ()),
        (f"{HOST}/shop?queue=orders", "", "orders", "orders", ()),
        (f"{HOST}/?exchange=orders&binding=order.*&binding=refund.%23", "orders", None, None, ("order.*", "refund.#")),
    ],
)
def test_what_a_url_says(
    url: str, exchange: str, queue: str | None, routing_key: str | None, bindings: tuple[str, ...]
) -> None:
    address = read(url)
    assert (address.exchange, address.queue, address.routing_key) == (exchange, queue, routing_key)
    assert address.bindings == bindings


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("AMQP://broker", "amqp://broker/?heartbeat=20&name=postroom"),
        (
            f"{HOST}:5673/shop?queue=orders&heartbeat=7",
            "amqp://app:s3cret@broker:5673/shop?heartbeat=7&name=postroom",
        ),
        ("amqp://a:p%2Fw@[::1]/%2Fshop", "amqp://a:p%2Fw@[::1]/%2Fshop?heartbeat=20&name=postroom"),
        ("amqps://broker/?cafile=/etc/ca.pem", "amqps://broker/?heartbeat=20&name=postroom&cafile=/etc/ca.pem"),
    ],
)
def test_the_server_is_what_every_client_of_rabbitmq_reads(url: str, server: str) -> None:
    assert URL(read(url).server) == URL(server)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("amqp://", "names no RabbitMQ; give it like amqp://user"),
        ("amqp:///shop", "names no RabbitMQ"),
        (f"{HOST}:port/", "names no RabbitMQ"),
        (f"{HOST}:99999/", "names no RabbitMQ"),
        (f"{HOST}/shop/orders", "names no RabbitMQ"),
        ("amqp://app:s3c/ret@broker/", "names no RabbitMQ"),
        (f"{HOST}/?exchange=orders#part", "names no RabbitMQ"),
        (f"{HOST}/?exchange=orders&queue=orders", "names an exchange and a queue"),
        (f"{HOST}/?routing_key=orders", "has a routing_key but no exchange"),
        (f"{HOST}/?exchange", "'exchange' in .* has no value"),
        (f"{HOST}/?exchange=a&exchange=b", "exchange is given twice in"),
        (f"{HOST}/?topic=orders", "no parameter 'topic'; there are exchange, queue"),
        (f"{HOST}/?queue={'x' * 256}", "longer than 255 bytes"),
        (f"{HOST}/?heartbeat=0", "heartbeat=0 is not a number of seconds"),
        (f"{HOST}/?heartbeat=soon", "heartbeat=soon is not a number of seconds"),
        (f"{HOST}/?management=broker:15672", "management in .* is not an HTTP URL"),
        (f"{HOST}/?cafile=/etc/ca.pem", "has cafile, but no TLS: say amqps"),
        (
            "amqps://app:s3cret@broker/?no_verify_ssl=1",
            "no_verify_ssl would give the password to any server that answers",
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence_without_the_password(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read(url)
    assert "s3c" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        (f"{HOST}/", {}, "names nothing to receive from"),
        (f"{HOST}/?queue=orders", {"group": "billing"}, "leave out the group"),
        (f"{HOST}/?queue=orders&binding=a", {}, "leave out the binding"),
        (f"{HOST}/?exchange=orders&routing_key=a", {}, "say binding=… instead"),
        (f"{HOST}/?exchange=orders", {"prefetch": 70_000}, "prefetch=70000 is not from 1 to 65535"),
        (f"{HOST}/?exchange=orders", {"prefetch": -1}, "prefetch=-1 is not from 1 to 65535"),
    ],
)
def test_a_receiver_refuses_what_it_cannot_honour(url: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AmqpConsumer(url, **options)  # type: ignore[arg-type]  # whatever the row says


def test_a_publisher_refuses_what_is_for_receivers_and_an_empty_source() -> None:
    with pytest.raises(ConfigError, match="has a binding, which is for receivers"):
        AmqpPublisher(f"{HOST}/?exchange=orders&binding=a")
    with pytest.raises(ConfigError, match="source is empty"):
        AmqpPublisher(HOST, source="")


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_both_sides_are_opened_by_their_scheme(scheme: str) -> None:
    url = f"{scheme}://broker/?exchange=orders"
    assert open_publisher(url).capabilities.name == "amqp"
    consumer = open_consumer(url, ConsumerOptions(group="billing", prefetch=10))
    assert consumer.capabilities.ordered


def test_a_queue_that_others_made_promises_less() -> None:
    ours, theirs = AmqpConsumer(f"{HOST}/?exchange=orders"), AmqpConsumer(f"{HOST}/?queue=orders")
    assert (ours.capabilities.shares, ours.capabilities.counts_redeliveries) == (False, True)
    assert (theirs.capabilities.shares, theirs.capabilities.counts_redeliveries) == (True, False)


def test_the_management_is_asked_as_the_same_user_unless_it_names_another() -> None:
    assert read(f"{HOST}/?management=http://broker:15672").management == "http://app:s3cret@broker:15672"
    assert read(f"{HOST}/?management=http://m:p@broker:15672").management == "http://m:p@broker:15672"
    assert "s3cret" not in repr(read(f"{HOST}/?management=http://broker:15672"))
