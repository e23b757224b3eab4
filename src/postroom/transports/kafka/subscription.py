"""What a `kafka://` URL says to whoever receives: brokers, topics, and settings of librdkafka."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer

from postroom.errors import ConfigError
from postroom.transports.kafka.url import EXAMPLE, OURS, REFUSED_BY_BOTH, split, try_out

OWN: dict[str, Any] = {
    # What was done is committed by us, and nothing else is.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A group that is new, or whose place was deleted, begins with the oldest there is: nothing is skipped.
    "auto.offset.reset": "earliest",
    # Only what must move is taken away; what stays is worked on meanwhile.
    "partition.assignment.strategy": "cooperative-sticky",
    "allow.auto.create.topics": False,
    "enable.partition.eof": False,
}
FREE: dict[str, Any] = {
    "check.crcs": True,
    # A topic just made is found soon after, not only five minutes later.
    "topic.metadata.refresh.interval.ms": 30_000,
    # A broker that comes back is found soon.
    "reconnect.backoff.max.ms": 2_000,
}
"""What the URL may say otherwise."""

_COMMIT = "Postroom commits what was handled, and only that"
_SKIP = "with anything but 'earliest' messages could be skipped"
_STATIC = "a receiver that stops would keep its partitions from the others"
_PROTOCOL = "Postroom's order and offsets rest on the protocol it chose"
REFUSED = {
    **REFUSED_BY_BOTH,
    "group.id": "name the group in the options, as ConsumerOptions(group=…)",
    **dict.fromkeys(("enable.auto.commit", "auto.commit.enable", "auto.commit.interval.ms"), _COMMIT),
    **dict.fromkeys(("enable.auto.offset.store", "offset.store.method", "offset.store.path"), _COMMIT),
    "auto.offset.reset": _SKIP,
    "isolation.level": "what a transaction took back would be received",
    "group.instance.id": _STATIC,
    **dict.fromkeys(("group.protocol", "group.remote.assignor", "partition.assignment.strategy"), _PROTOCOL),
    **dict.fromkeys(("enable.partition.eof", "consume.callback.max.messages"), OURS),
    "allow.auto.create.topics": "a topic misspelt must be told, not made",
}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A URL, read and found safe for receiving."""

    shown: str
    """Brokers and topics, for people."""
    topics: tuple[str, ...]
    consumer: dict[str, Any] = field(repr=False)
    """All that librdkafka is told."""


def read(url: str, group: str) -> Subscription:
    """What to receive, and how; or ConfigError."""
    shown, servers, topic, chosen = split(url, REFUSED)
    topics = tuple(dict.fromkeys(filter(None, (topic or "").split(","))))
    if not topics or not all(_NAME.fullmatch(each) for each in topics):
        raise ConfigError(f"{shown} names no topic to receive from; give one, or several with commas: {EXAMPLE}.")
    if not group:
        raise ConfigError("The group of a Kafka receiver is empty; give it a name, like 'billing'.")
    consumer = {**FREE, **chosen, **OWN, "bootstrap.servers": servers, "group.id": group}
    try_out(Consumer, consumer)
    return Subscription(shown, topics, consumer)
