"""Apache Kafka: given, already here, or from Maven Central."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.servers import apt
from tests.servers.broker import ARTIFACTS, VERSION, Broker
from tests.servers.maven import jars
from tests.servers.model import Found, NotHere
from tests.servers.ports import LOOPBACK, listens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.model import Place, Source

USUAL_PORT = 9092


def environment(place: Place) -> Found:
    """The brokers at POSTROOM_TEST_KAFKA, as in kafka://127.0.0.1:9092."""
    url = os.environ.get("POSTROOM_TEST_KAFKA")
    if not url or "://" not in url:
        raise NotHere("POSTROOM_TEST_KAFKA is not set to a URL.")
    return _answering(url.partition("://")[2].strip("/"))


def local(place: Place) -> Found:
    """A broker on the usual port."""
    if not listens(USUAL_PORT):
        raise NotHere(f"Nothing listens on port {USUAL_PORT}.")
    return _answering(f"{LOOPBACK}:{USUAL_PORT}")


def maven(place: Place) -> Found:
    """A broker of our own, its jars fetched from Maven Central the first time."""
    return Broker(place).start()


def packaged(place: Place) -> Found:
    """The same, with the system's packages of Java and Maven installed now."""
    apt.install("default-jre-headless")
    apt.install("maven")
    return maven(place)


SOURCES: Mapping[str, Source] = {"environment": environment, "local": local, "maven": maven, "apt": packaged}


def fetch() -> None:
    """Have the jars here before a test's time begins to run. That they cannot be had is told by whoever needs them."""
    try:
        jars(f"kafka-{VERSION}", *ARTIFACTS)
    except (NotHere, OSError):
        return


def _answering(servers: str) -> Found:
    """A broker that we did not start. NotHere unless it answers and makes no topic by itself."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        cluster = admin.list_topics(timeout=5)
        node = ConfigResource(ResourceType.BROKER, str(cluster.controller_id))
        settings = admin.describe_configs([node], request_timeout=5)[node].result()
    except KafkaException as error:
        raise NotHere(f"It does not answer: {error}") from None
    if settings["auto.create.topics.enable"].value != "false":
        raise NotHere("It makes a topic whenever one is named; set auto.create.topics.enable=false.")
    return Found(f"kafka://{servers}", "unknown")  # a broker does not tell its version
