"""What the state of a topic's partitions means for messages that nobody answered for. Pure.

librdkafka goes on trying by itself while a partition has no leader, or too few replicas, and tells nobody; when the time is up
there is just no answer. The cluster knows why: then it is no message's fault.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from postroom.contracts.transport import Unavailable

_BROKER = re.compile(r"/(\d+): ")
"""How librdkafka names a broker in what it says of one: host:port/id."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, as the cluster tells of it."""

    number: int
    leader: int
    """The broker that takes its messages; negative: none does."""
    replicas: int
    in_sync: int


def lost_brokers(said: Iterable[str]) -> set[int]:
    """The ids of the brokers that these errors of connections are about."""
    return {int(match[1]) for text in said if (match := _BROKER.search(text))}


def trouble_in(topic: str, partitions: Iterable[Partition], lost: Collection[int]) -> Unavailable | None:
    """Why messages to this topic may have had no answer, the brokers *lost* being out of reach; None: the cluster is well."""
    found: Unavailable | None = None
    for each in partitions:
        if each.leader < 0:
            return Unavailable("NO_LEADER", f"partition {each.number} of {topic!r} has no leader")
        if each.leader in lost:
            said = f"broker {each.leader}, the leader of partition {each.number} of {topic!r}, cannot be reached"
            return Unavailable("NO_LEADER", said)
        if each.in_sync < each.replicas:
            said = f"{each.in_sync} of {each.replicas} replicas of partition {each.number} of {topic!r} are in sync"
            found = found or Unavailable("NOT_ENOUGH_REPLICAS", said)
    return found
