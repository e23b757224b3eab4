"""What librdkafka's answer means for the message, and what the state of the cluster means where there is none. Pure.

librdkafka goes on trying by itself while a partition has no leader, or too few replicas, and tells nobody; when the time is up
there is just no answer. The cluster knows why: then it is no message's fault.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError

from postroom.contracts.transport import Failed, Outcome, Rejected, Unavailable
from postroom.errors import TransportError
from postroom.transports.refusals import not_opened

NO_TOPIC = Rejected("NO_TOPIC", "neither the message, nor its route, nor the URL names a topic")
UNANSWERED = Failed("TIMEOUT", "no answer in time", unknown=True)

_NO_SUCH_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own errors are public, and named so
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
_REFUSED = {
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
_NOT_ALLOWED = {KafkaError.TOPIC_AUTHORIZATION_FAILED}
_WE_ARE_NOT_ALLOWED = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
}
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._MSG_TIMED_OUT}  # noqa: SLF001
_OF_THE_CLUSTER = {
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
}
"""What the cluster says of itself: it passes, and no message is to blame. After an append it may have arrived."""
_ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - it says nothing of the cause: the others do
_WHY_AWAY = {
    KafkaError._AUTHENTICATION: "AUTHENTICATION_FAILED",  # noqa: SLF001
    KafkaError._SSL: "TLS_FAILED",  # noqa: SLF001
    KafkaError._RESOLVE: "DNS_FAILED",  # noqa: SLF001
}

_NO_TLS = "SSL handshake failed"
_BROKER = re.compile(r"/(\d+): ")
"""How librdkafka names a broker in what it says of one: host:port/id."""

REFUSED_IN_COMPANY = _TOO_LARGE | _REFUSED
"""What a broker says of a whole batch for one record in it: only alone is it the message's fault."""
OF_THE_TOPIC = _NO_SUCH_TOPIC | _NOT_ALLOWED
"""What is true of every message to that topic."""
REFUSED = REFUSED_IN_COMPANY | OF_THE_TOPIC
"""After any of these the gapless guarantee stops the producer."""
HELD_UP = {KafkaError._PURGE_QUEUE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER}  # noqa: SLF001
"""What is said of the messages behind one that was refused: they were not written."""
NO_SUCH_TOPIC = _NO_SUCH_TOPIC


def outcome_of(error: KafkaError, topic: str, *, of_the_url: bool) -> Outcome:
    """What became of a message that was not delivered, going to *topic*.

    Trouble with the topic that the URL names is trouble with the route: it says nothing of the message, so it waits."""
    code, said = error.code(), error.str()
    if code in _NO_SUCH_TOPIC:
        sentence = f"there is no topic {topic!r} ({said})"
        return Unavailable("UNROUTABLE", sentence) if of_the_url else Rejected("UNROUTABLE", sentence)
    if code in _NOT_ALLOWED:
        sentence = f"we may not write to {topic!r} ({said})"
        return Unavailable("NOT_AUTHORIZED", sentence) if of_the_url else Failed("NOT_AUTHORIZED", sentence)
    if code in _WE_ARE_NOT_ALLOWED:
        return Unavailable("NOT_AUTHORIZED", said)
    if code in _TOO_LARGE:
        return Rejected("PAYLOAD_TOO_LARGE", said)
    if code in _REFUSED:
        return Rejected(error.name(), said)
    if code in _PURGED:
        return UNANSWERED
    if code in _OF_THE_CLUSTER:
        return Unavailable(error.name().lstrip("_"), said)
    return Failed(error.name().lstrip("_"), said, unknown=True)


def away(noted: Iterable[KafkaError], shown: str) -> Unavailable:
    """Nobody answered; of what librdkafka noted meanwhile, the newest that names a cause is told."""
    errors = [error for error in reversed(list(noted)) if error.code() != _ALL_DOWN]
    for error in errors:
        if (why := _why(error)) is not None:
            return Unavailable(why, error.str())
    return Unavailable("CONNECT_FAILED", errors[0].str() if errors else f"no answer from {shown}")


def not_answered(noted: Iterable[KafkaError], shown: str) -> TransportError:
    """The error for brokers of which none answered: whose fault it is, and what to do."""
    found = away(noted, shown)
    return not_opened(found.code, f"No Kafka answers at {shown}: {found.error}; start it, or correct the URL.")


def is_hopeless(noted: Iterable[KafkaError]) -> bool:
    """Have all brokers been tried, and is it known why none will answer?"""
    errors = list(noted)
    return any(error.code() == _ALL_DOWN for error in errors) and any(map(_why, errors))


def _why(error: KafkaError) -> str | None:
    """The code of an error that names its cause."""
    # A listener without TLS hangs up on whoever speaks it: to librdkafka that is a broken connection like any other.
    return "TLS_FAILED" if _NO_TLS in error.str() else _WHY_AWAY.get(error.code())


def stopped_by(fatal: KafkaError) -> Outcome:
    """What is said of messages that were in a producer when librdkafka gave it up."""
    if fatal.code() in _WE_ARE_NOT_ALLOWED:
        # That is told before anything is sent.
        return Unavailable("NOT_AUTHORIZED", fatal.str())
    return Failed("PRODUCER_STOPPED", f"it was with others when sending had to stop: {fatal.str()}", unknown=True)


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
