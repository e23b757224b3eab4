"""A connection to send by: one librdkafka producer, used by one batch at a time, and empty between two of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from time import sleep
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin._metadata import ClusterMetadata, PartitionMetadata

from postroom.clock import monotonic
from postroom.contracts.transport import Unavailable
from postroom.transports.kafka.outcomes import NO_SUCH_TOPIC, Partition, is_hopeless, lost_brokers, trouble_in
from postroom.transports.kafka.url import LOG

FRESH_SECONDS = 1.0
"""So long after a delivery the broker is taken to be there: a busy producer is not held up by looking."""
MISSING_SECONDS = 1.0
"""So long a topic must be missing before that is believed: a broker that just started does not know all of them yet."""
MISSING_PAUSE = 0.1
ASK_SECONDS = 0.5
PURGE_SECONDS = 0.5
SLICE_SECONDS = 0.2
"""So long at most is waited at a stretch: a fatal error may be told only at its end."""


class ProducerConnection:
    """One producer. Not for two threads at once."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.noted: deque[KafkaError] = deque(maxlen=16)
        """What went wrong with its connections since a broker last answered."""
        self.fatal: KafkaError | None = None
        """Why librdkafka gave it up."""
        self.is_spent = False
        """Something was purged from it: it is not used again, lest librdkafka has lost count."""
        self.is_young = True
        """Nothing was delivered by it yet; librdkafka may still be asking for its producer id."""
        self._producer = Producer({**settings, "error_cb": self.noted.append, "logger": LOG})
        self.produce = self._producer.produce
        self._known: set[str] = set()
        self._partitions: dict[str, list[Partition]] = {}
        """What the cluster last said of each topic."""
        self._missing_since: dict[str, float] = {}
        self._delivered_at = float("-inf")

    def is_ready(self, topics: Iterable[str]) -> bool:
        """Was something delivered just now, nothing went wrong since, and all of these topics are known?"""
        self.serve(0)
        return not self.noted and monotonic() - self._delivered_at <= FRESH_SECONDS and self._known.issuperset(topics)

    def look(self, topics: Iterable[str], until: float) -> dict[str, KafkaError]:
        """Ask the broker for these topics; what is wrong with which. Raises KafkaException when nobody answers.

        The first one is asked for each time, to see that somebody is there; the others until they were seen once."""
        must_ask = not self.is_ready(())
        wrong: dict[str, KafkaError] = {}
        for topic in topics:
            if must_ask or topic not in self._known:
                must_ask = False
                if error := self._look_for(topic, until):
                    wrong[topic] = error
        return wrong

    def look_around(self, until: float) -> None:
        """Is anybody there? Raises KafkaException when nobody answers."""
        self._ask(None, until)

    def serve(self, seconds: float) -> int:
        """Wait up to so long for answers, and hand them out; how many are still missing."""
        try:
            return self._producer.flush(min(max(seconds, 0), SLICE_SECONDS))
        except (KafkaException, SystemError) as exc:
            self.fatal = _fatal_in(exc)
            return len(self._producer)

    def finish(self, until: float) -> bool:
        """Wait for the answers until then, and purge what is left; whether there was something left.

        What was purged is not in librdkafka any more: it is never sent, or sent again. What is on its way stays so."""
        while self.serve(until - monotonic()):
            if monotonic() >= until:
                self._producer.purge()
                purging = monotonic() + PURGE_SECONDS
                while self.serve(purging - monotonic()) and monotonic() < purging:
                    pass
                return True
            if self.fatal is not None:
                # Nothing more leaves it. What is on its way is still answered, and then its fate is known.
                self._producer.purge(in_flight=False)
        if self.fatal is None:
            self.is_young = False
            self._delivered_at = monotonic()
        return False

    def blame(self, topics: Iterable[str], until: float) -> dict[str, Unavailable]:
        """Of which of these topics the cluster itself says why nobody answered, and what: by what it says now, or if it takes
        too long, by what it said last."""
        lost = lost_brokers(error.str() for error in self.noted)
        found: dict[str, Unavailable] = {}
        for topic in topics:
            with suppress(KafkaException):
                self._ask(topic, until)
            if trouble := trouble_in(topic, self._partitions.get(topic, ()), lost):
                found[topic] = trouble
        return found

    @property
    def is_empty(self) -> bool:
        """Nothing is in it, and no answer waits to be handed out: all that went wrong has been told."""
        return len(self._producer) == 0

    def _ask(self, topic: str | None, until: float) -> ClusterMetadata:
        while True:
            left = until - monotonic()
            try:
                # Never 0 or less, which librdkafka reads as "forever". In slices: it asks on, whatever it is told.
                found: ClusterMetadata = self._producer.list_topics(topic, timeout=min(max(left, 0.01), ASK_SECONDS))
            except KafkaException:
                self.serve(0)  # what went wrong is told now, or never
                if left <= ASK_SECONDS or is_hopeless(self.noted):
                    raise
            else:
                self.noted.clear()
                for name, each in found.topics.items():
                    self._partitions[name] = [_partition(there) for there in each.partitions.values()]
                return found

    def _look_for(self, topic: str, until: float) -> KafkaError | None:
        while True:
            found = self._ask(topic, until).topics[topic].error
            error: KafkaError | None = None if found is None or found.retriable() else found
            if error is None:
                self._known.add(topic)
                self._missing_since.pop(topic, None)
                return None
            self._known.discard(topic)
            now = monotonic()
            believed_at = self._missing_since.setdefault(topic, now) + MISSING_SECONDS
            if error.code() not in NO_SUCH_TOPIC or now >= min(believed_at, until):
                return error
            sleep(MISSING_PAUSE)


def _partition(there: PartitionMetadata) -> Partition:
    return Partition(there.id, there.leader, len(there.replicas), len(there.isrs))


def _fatal_in(exc: BaseException) -> KafkaError:
    """A fatal error is raised while answers are handed out; on the way Python wraps it, or loses it."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, KafkaException):
            error: KafkaError = cause.args[0]
            return error
        cause = cause.__cause__
    return KafkaError(KafkaError._FATAL, "librdkafka gave the producer up")  # noqa: SLF001 - public, and named so
