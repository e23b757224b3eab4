"""Which settings of a Kafka weaken what Postroom promises."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.admin._resource import ResourceType

from postroom.errors import TransportUnavailable
from postroom.transports.kafka.url import LOG, REFUSED_BY_BOTH, split

ASK_SECONDS = 5.0
REPLICAS = 3
IN_SYNC = 2
KEPT = timedelta(days=7)
"""So long a receiver may be away: over a weekend, and until somebody comes back from it."""


@dataclass(frozen=True, slots=True)
class Topic:
    """What the cluster says of a topic."""

    name: str
    replicas: int
    """Of the partition that has the fewest."""
    settings: Mapping[str, str]


async def weaknesses(url: str) -> list[str]:
    """A sentence for each setting of the cluster, and of the URL's topics, that makes a delivery less safe; with its remedy.

    Raises TransportUnavailable when nobody answers, or we may not ask, and ConfigError for a URL that cannot be read."""
    shown, servers, topics, chosen = split(url, REFUSED_BY_BOTH)
    told: dict[str, Any] = {**chosen, "bootstrap.servers": servers, "logger": LOG}
    admin = AdminClient(told)
    try:
        return await asyncio.to_thread(_ask, admin, [name for name in (topics or "").split(",") if name])
    except KafkaException as exc:
        said = exc.args[0].str()
        raise TransportUnavailable(f"{shown} cannot be examined: {said}; start it, or correct the URL.") from None


def _ask(admin: AdminClient, names: list[str]) -> list[str]:
    cluster = admin.list_topics(timeout=ASK_SECONDS)
    there = [name for name in names if name in cluster.topics]
    found = [f"There is no topic {name!r}: create it, or correct the URL." for name in names if name not in there]
    for name in there:
        found += weak_in_topic(Topic(name, _replicas(cluster, name), _settings(admin, ResourceType.TOPIC, name)))
    return found + weak_in_broker(_settings(admin, ResourceType.BROKER, str(cluster.controller_id)))


def weak_in_topic(topic: Topic) -> list[str]:
    """What is weak in a topic. Pure."""
    name, found = topic.name, list[str]()
    if topic.replicas < REPLICAS:
        found.append(
            f"{name} has {topic.replicas} of {REPLICAS} replicas: what was confirmed may be lost with a disk; "
            f"create it with a replication factor of {REPLICAS}."
        )
    if (in_sync := int(topic.settings.get("min.insync.replicas", "1"))) < IN_SYNC:
        found.append(
            f"{name} has min.insync.replicas={in_sync}: a message may be confirmed by one broker alone; set it to {IN_SYNC}."
        )
    if topic.settings.get("unclean.leader.election.enable") == "true":
        found.append(
            f"{name} has unclean.leader.election.enable=true: a broker that is behind may take over, and what was confirmed "
            "is gone; set it to false."
        )
    if "compact" in topic.settings.get("cleanup.policy", ""):
        found.append(
            f"{name} is compacted: only the last message of a key is kept for a late receiver; set cleanup.policy=delete."
        )
    if 0 <= (kept := int(topic.settings.get("retention.ms", "-1"))) < KEPT / timedelta(milliseconds=1):
        found.append(
            f"{name} deletes messages after {timedelta(milliseconds=kept)}, read or not: a receiver that is away for longer "
            f"loses them; set retention.ms to {KEPT.days} days or more."
        )
    if (size := int(topic.settings.get("retention.bytes", "-1"))) >= 0:
        found.append(f"{name} deletes messages above {size} bytes in a partition, read or not; set retention.bytes=-1.")
    return found


def weak_in_broker(settings: Mapping[str, str]) -> list[str]:
    """What is weak in a broker. Pure."""
    found: list[str] = []
    if settings.get("auto.create.topics.enable") == "true":
        found.append(
            "The brokers create every topic that is named: a misspelt one takes messages that have no reader; "
            "set auto.create.topics.enable=false."
        )
    if timedelta(minutes=int(settings.get("offsets.retention.minutes", "10080"))) < KEPT:
        found.append(
            f"The brokers forget how far a group is after {settings['offsets.retention.minutes']} minutes: a receiver that is "
            f"away for longer gets everything again; set offsets.retention.minutes to {KEPT // timedelta(minutes=1)} or more."
        )
    return found


def _replicas(cluster: ClusterMetadata, name: str) -> int:
    return min((len(each.replicas) for each in cluster.topics[name].partitions.values()), default=0)


def _settings(admin: AdminClient, kind: Any, name: str) -> dict[str, str]:
    asked = ConfigResource(kind, name)
    found = admin.describe_configs([asked], request_timeout=ASK_SECONDS)[asked].result()
    return {setting: entry.value for setting, entry in found.items() if entry.value is not None}
