"""What a `kafka://` URL says: brokers, topic, and settings of librdkafka, of which the unsafe ones are refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from confluent_kafka import KafkaException, Producer

from postroom.errors import ConfigError
from postroom.text import one_line
from postroom.urls import redact, split_scheme

EXAMPLE = "kafka://broker:9092/orders"
HANDBOOK = "docs/how-to/send-to-kafka.md and receive-from-kafka.md say which ones there are"


class Log:
    """Where librdkafka's own lines go: to the logger `postroom.kafka`, as information, whatever it thinks of them.

    What they are about is in the outcomes; a broker that is away would fill a log with warnings, several a second."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("postroom.kafka")

    def log(self, level: int, text: str, *facts: object) -> None:
        """As `logging.Logger.log`, which librdkafka's wrapper calls."""
        self._logger.log(min(level, logging.INFO), "%s", one_line(text % facts if facts else text))


LOG = Log()

OWN: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    # After a message that the broker refused, nothing behind it is sent: the producer stops instead, and is replaced.
    "enable.gapless.guarantee": True,
    # Time is kept by the batch, which purges all of itself at once. Message by message, a later one could outlive an earlier.
    "message.timeout.ms": 0,
    # What is not reported when nothing is left was delivered. A report for each costs more than sending it.
    "delivery.report.only.error": True,
    # A batch is flushed as soon as it is handed over, which does not wait for this; until then nothing goes in small pieces.
    "linger.ms": 100,
}
FREE: dict[str, Any] = {
    # The one that Java's clients use: a key lands in the same partition whoever writes.
    "partitioner": "murmur2_random",
    "log.connection.close": False,
}
"""What the URL may say otherwise."""

_SERVERS = "the brokers are written before the topic: " + EXAMPLE
_DURABLE = "without it Sent would not mean that the message is safe"
_ORDER = "the order of a key rests on it"
_TIME = "the relay's --send-timeout decides how long a send may take"
_SHOWN = "a key in a URL would be shown; give the file's name, as in ssl.key.location=/run/secrets/key.pem"
OURS = "Postroom needs to set it itself"
REFUSED_BY_BOTH = {
    **dict.fromkeys(("bootstrap.servers", "metadata.broker.list"), _SERVERS),
    **dict.fromkeys(("ssl.key.pem", "sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.config"), _SHOWN),
    **dict.fromkeys(("log.queue", "opaque", "plugin.library.paths", "test.mock.num.brokers", "enabled_events"), OURS),
}
"""What has no place in a URL, whether one sends or receives."""
REFUSED = {
    **REFUSED_BY_BOTH,
    **dict.fromkeys(("acks", "request.required.acks"), _DURABLE),
    **dict.fromkeys(("enable.idempotence", "enable.gapless.guarantee"), _ORDER),
    **dict.fromkeys(("max.in.flight", "max.in.flight.requests.per.connection"), _ORDER),
    **dict.fromkeys(("retries", "message.send.max.retries", "queuing.strategy"), _ORDER),
    **dict.fromkeys(("message.timeout.ms", "delivery.timeout.ms", "transaction.timeout.ms"), _TIME),
    **dict.fromkeys(("linger.ms", "queue.buffering.max.ms"), "every batch is sent at once"),
    **dict.fromkeys(("transactional.id", "delivery.report.only.error"), OURS),
}
_CALLBACK = re.compile(r"(?:^|[._])(?:cb|logger|partitioner_cb|on_delivery|on_commit|on_assign|on_revoke|on_lost)$")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """A URL, read and found safe for sending."""

    shown: str
    """Brokers and topic, for people."""
    topic: str | None
    producer: dict[str, Any] = field(repr=False)
    """All that librdkafka is told."""

    def alone(self) -> dict[str, Any]:
        """The same for messages sent one by one: no gap can arise, so one refused is no reason to stop."""
        return {**self.producer, "enable.gapless.guarantee": False}


class KafkaUrl(NamedTuple):
    """What stands in a URL, whoever reads it."""

    shown: str
    servers: str
    topic: str | None
    chosen: dict[str, str]
    """The settings behind the topic. A password may be among them."""

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def read(url: str) -> KafkaSettings:
    """The settings in a URL to send to, or ConfigError."""
    shown, servers, topic, chosen = split(url, REFUSED)
    producer = {**FREE, **chosen, **OWN, "bootstrap.servers": servers}
    try_out(Producer, producer)
    return KafkaSettings(shown, topic, producer)


def split(url: str, refused: Mapping[str, str]) -> KafkaUrl:
    """The parts of a URL; ConfigError where there are none, or a setting is one of the refused, which say why."""
    where, _, query = split_scheme(url)[1].partition("?")
    servers, _, topic = where.partition("/")
    if "@" in servers:
        raise ConfigError(
            f"{redact(url)} has a user in it; say ?sasl.username=…&sasl.password=… behind the topic instead."
        )
    if not servers.strip(",") or "/" in topic or "#" in url:
        raise ConfigError(f"{redact(url)} names no Kafka brokers and topic; give them like {EXAMPLE}.")
    return KafkaUrl(f"kafka://{where}", servers, unquote(topic) or None, _parameters(query, url, refused))


def _parameters(query: str, url: str, refused: Mapping[str, str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        # Not parse_qsl: it reads + as a space, and passwords have them.
        name, equals, value = part.partition("=")
        name = unquote(name)
        if not equals:
            raise ConfigError(f"The setting {name!r} in {redact(url)} has no value; write {name}=….")
        if reason := "it is a function, not a setting" if _CALLBACK.search(name) else refused.get(name):
            raise ConfigError(f"The setting {name} cannot be used in a Kafka URL: {reason}.", setting=name)
        if name in chosen:
            raise ConfigError(f"The setting {name} is given twice in the Kafka URL; keep one of them.", setting=name)
        chosen[name] = unquote(value)
    return chosen


def try_out(make: Callable[[dict[str, Any]], Any], told: dict[str, Any]) -> None:
    """Let librdkafka judge the settings, with no broker to connect to."""
    try:
        make({**told, "bootstrap.servers": "", "logger": LOG})
    except KafkaException as exc:
        said = " ".join(exc.args[0].str().split()).rstrip(".")
        raise ConfigError(f"librdkafka does not take the settings of the Kafka URL: {said}; {HANDBOOK}.") from exc
