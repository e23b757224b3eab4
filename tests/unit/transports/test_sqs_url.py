"""An SQS URL names region, account and queue; what it cannot mean is refused with a sentence, and nothing secret is shown."""

from __future__ import annotations

import pytest

from postroom.contracts.transport import ConsumerOptions
from postroom.errors import ConfigError
from postroom.transports import open_consumer, open_publisher
from postroom.transports.sqs.url import read


def test_a_url_names_region_queue_and_endpoint() -> None:
    address = read("sqs://eu-central-1/orders.fifo?endpoint=http://127.0.0.1:5000&profile=shop")
    assert (address.region, address.account, address.queue) == ("eu-central-1", None, "orders.fifo")
    assert (address.endpoint, address.profile) == ("http://127.0.0.1:5000", "shop")


def test_a_url_may_name_the_account_whose_queue_it_is() -> None:
    address = read("sqs://us-gov-west-1/123456789012/orders")
    assert (address.account, address.queue, address.endpoint) == ("123456789012", "orders", None)


@pytest.mark.parametrize("url", ["sqs://eu-central-1", "sqs://eu-central-1/", "sqs://eu-central-1/123456789012/"])
def test_a_url_may_name_no_queue(url: str) -> None:
    assert read(url).queue is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqs://", "names no AWS region"),
        ("sqs:///orders", "names no AWS region"),
        ("sqs://127.0.0.1:5000/orders", "names no AWS region"),
        ("sqs://eu-central-1/orders#1", "names no AWS region"),
        ("sqs://AKIA:s3cret@eu-central-1/orders", "credentials come from AWS's own chain"),
        ("sqs://eu-central-1/12345/orders", "an account has 12 digits"),
        ("sqs://eu-central-1/a/123456789012/orders", "an account has 12 digits"),
        ("sqs://eu-central-1/123456789012/a/orders", "an account has 12 digits"),
        ("sqs://eu-central-1/orders.paid", "is not a queue name"),
        ("sqs://eu-central-1/" + "x" * 81, "is not a queue name"),
        ("sqs://eu-central-1/orders?endpoint=127.0.0.1", "is not the address of an SQS service"),
        ("sqs://eu-central-1/orders?endpoint=http://u:s3cret@h", "is not the address of an SQS service"),
        ("sqs://eu-central-1/orders?secret_key=s3cret", "says nothing to SQS"),
        ("sqs://eu-central-1/orders?endpoint=", "each with a value"),
        ("sqs://eu-central-1/orders?profile=a&profile=b", "twice"),
    ],
)
def test_a_bad_url_is_refused_with_one_sentence_that_shows_no_secret(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read(url)
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fifo_queue_is_declared_ordered_and_a_standard_one_is_not() -> None:
    assert open_publisher("sqs://eu-central-1/orders.fifo").capabilities.ordered
    assert not open_publisher("sqs://eu-central-1/orders").capabilities.ordered
    assert open_consumer("sqs://eu-central-1/orders.fifo").capabilities.ordered
    assert not open_consumer("sqs://eu-central-1/orders").capabilities.ordered


def test_a_receiver_needs_a_queue_and_knows_no_groups() -> None:
    with pytest.raises(ConfigError, match="names no queue to receive from"):
        open_consumer("sqs://eu-central-1")
    with pytest.raises(ConfigError, match="cannot honour group"):
        open_consumer("sqs://eu-central-1/orders", ConsumerOptions(group="billing"))
