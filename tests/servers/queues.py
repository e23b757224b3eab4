"""Queues of an SQS, seen from a test: made, looked into, and deleted."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botocore.session import get_session

from postroom.transports.sqs import url as address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOLD = 3
"""Seconds a received message is hidden, unless that is prolonged: no test should wait longer for a dead receiver."""


def with_queue(url: str, queue: str) -> str:
    """The URL of an SQS with this queue in it."""
    where, question, query = url.partition("?")
    return f"{where.rstrip('/')}/{queue}{question}{query}"


def client_of(url: str) -> Any:
    """The library's own client for it, which waits."""
    read = address.read(url)
    return get_session().create_client("sqs", region_name=read.region, endpoint_url=read.endpoint)


def queue_url(url: str, queue: str) -> str:
    """What SQS calls it."""
    return str(client_of(url).get_queue_url(QueueName=queue)["QueueUrl"])


@contextmanager
def fresh_queue(url: str, attributes: Mapping[str, object] | None = None, *, fifo: bool = True) -> Iterator[str]:
    """The name of a new queue, deleted afterwards."""
    name = f"test-{secrets.token_hex(6)}{'.fifo' if fifo else ''}"
    settings = {"VisibilityTimeout": HOLD, **({"FifoQueue": "true"} if fifo else {}), **(attributes or {})}
    client = client_of(url)
    made = client.create_queue(QueueName=name, Attributes={key: str(value) for key, value in settings.items()})
    try:
        yield name
    finally:
        client.delete_queue(QueueUrl=made["QueueUrl"])


def everything_in(url: str, queue: str) -> list[dict[str, Any]]:
    """Every message of the queue that nobody has in hand, as SQS tells of it; they are taken out."""
    client, found = client_of(url), list[dict[str, Any]]()
    place = client.get_queue_url(QueueName=queue)["QueueUrl"]
    while True:
        answer = client.receive_message(
            QueueUrl=place, MaxNumberOfMessages=10, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
        )
        if not (some := answer.get("Messages", [])):
            return found
        found += some
        entries = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(some)]
        client.delete_message_batch(QueueUrl=place, Entries=entries)
