"""The thread that reads: one librdkafka consumer, polled always, however long handling takes.

It alone speaks to librdkafka: joins the group, fetches records, commits what is done, and leaves. That it never stops
polling is why a slow handler costs no partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from postroom.clock import monotonic
from postroom.errors import PostroomError, TransportRefused, TransportUnavailable
from postroom.transports.kafka.decoding import read
from postroom.transports.kafka.offsets import Done, FetchedRecords
from postroom.transports.kafka.outcomes import NO_SUCH_TOPIC, away, is_hopeless, not_answered
from postroom.transports.kafka.subscription import Subscription
from postroom.transports.kafka.url import LOG

OPEN_SECONDS = 5.0
MISSING_SECONDS = 1.0
"""So long a topic must be missing before that is believed: a broker that just started does not know all of them yet."""
POLL_SECONDS = 0.1
AT_ONCE = 500
"""So many records at most are fetched between two looks at what else is to do."""
ROOM_SECONDS = 0.5
"""So long there may be too many records before fetching is paused, which throws away what librdkafka has fetched ahead."""
ROOM_PAUSE = 0.005
COMMIT_SECONDS = 0.2
PROBE_SECONDS = 1.0
PROBE_QUICK = 0.1
"""So long at most an answer takes, unless something is wrong."""
LEAVE_SECONDS = 15.0
LEAVE_SECONDS_AWAY = 1.0


class KafkaReceiver:
    """One consumer of a group, from joining to leaving. It is not used again: what ended is replaced."""

    def __init__(self, subscription: Subscription, fetched: FetchedRecords, tell: Callable[[], None]) -> None:
        self.ended: PostroomError | None = None
        """Why it reads no more, once it does not."""
        self.away: str | None = None
        """Why the brokers do not answer, while they do not."""
        self.refused: str | None = None
        """What a broker refused, until somebody was told."""
        self.is_joined = False
        """Has the group said which partitions are ours, be it none?"""
        self._subscription, self._fetched, self._tell = subscription, fetched, tell
        self._noted: deque[KafkaError] = deque(maxlen=16)
        self._stopping = Event()
        self._is_paused = False
        self._is_pausing_known = True
        self._commit_at = self._probe_at = 0.0
        self._asked_at: float | None = None
        self._thread = Thread(target=self._run, name="postroom-kafka-reader", daemon=True)

    @property
    def is_in_doubt(self) -> bool:
        """Is it doubtful that the brokers are there? What is handed out meanwhile comes again if they are away for long."""
        asked_at = self._asked_at
        return bool(self._noted) or (asked_at is not None and monotonic() - asked_at > PROBE_QUICK)

    def start(self) -> None:
        """Connect, and read until it is stopped."""
        self._thread.start()

    def stop(self) -> None:
        """Commit what is done, and leave the group. When nobody answers, it goes on trying by itself for a while."""
        self._stopping.set()
        self._thread.join(LEAVE_SECONDS if self.away is None else LEAVE_SECONDS_AWAY)

    # ── the thread ──

    def _run(self) -> None:
        consumer: Consumer | None = None
        try:
            told = {**self._subscription.consumer, "error_cb": self._noted.append, "on_commit": self._committed}
            consumer = Consumer({**told, "logger": LOG})
            self._look_for_topics(consumer)
            consumer.subscribe(
                list(self._subscription.topics), on_assign=self._gained, on_revoke=self._revoked, on_lost=self._lost
            )
            while not self._stopping.is_set():
                self._turn(consumer)
            self.ended = TransportUnavailable(f"The receiver of {self._subscription.shown} is closed; open it again.")
        except PostroomError as exc:
            self.ended = exc
        except Exception as exc:  # noqa: BLE001 - whoever receives must be told, whatever it was
            said = exc.args[0].str() if isinstance(exc, KafkaException) else repr(exc)
            self.ended = TransportUnavailable(f"Reading {self._subscription.shown} stopped: {said}; it begins again.")
        finally:
            self._leave(consumer)

    def _turn(self, consumer: Consumer) -> None:
        self._make_room(consumer)
        record, number = consumer.poll(POLL_SECONDS), 0
        while record is not None:
            error = record.error()
            if error is None:
                # Our own records have a topic, a partition and an offset; only those made by hand may not.
                self._fetched.add(record.topic() or "", record.partition() or 0, record.offset() or 0, read(record))
            elif error.fatal():
                raise KafkaException(error)
            else:
                self.refused = error.str()
            number += 1
            if number >= AT_ONCE or self._fetched.is_full():
                break
            record = consumer.poll(0)
        if number:
            self._tell()
        self._commit(consumer)
        self._look_around(consumer)

    def _make_room(self, consumer: Consumer) -> None:
        """Fetch nothing while too many records wait; but keep polling, or the group takes our partitions for abandoned."""
        if not self._is_pausing_known:
            self._pause(consumer, pause=self._is_paused)
        if self._is_paused:
            if self._fetched.has_room():
                self._pause(consumer, pause=False)
        elif self._stays_full():
            self._pause(consumer, pause=True)

    def _stays_full(self) -> bool:
        until = monotonic() + ROOM_SECONDS
        while self._fetched.is_full():
            if monotonic() >= until or self._stopping.wait(ROOM_PAUSE):
                return True
        return False

    def _pause(self, consumer: Consumer, *, pause: bool) -> None:
        partitions = consumer.assignment()
        if pause:
            consumer.pause(partitions)
        else:
            consumer.resume(partitions)
        self._is_paused, self._is_pausing_known = pause, True

    def _commit(self, consumer: Consumer) -> None:
        """Every now and then, what is done. What fails is told by `_committed`, and tried again."""
        now = monotonic()
        if now >= self._commit_at and self.away is None:
            self._commit_at = now + COMMIT_SECONDS
            if done := self._fetched.untold():
                try:
                    consumer.commit(offsets=_offsets(done), asynchronous=True)
                except KafkaException:
                    self._fetched.not_told((each.topic, each.partition) for each in done)

    def _committed(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        failed = [(each.topic, each.partition) for each in partitions if error is not None or each.error is not None]
        self._fetched.not_told(failed)

    def _look_around(self, consumer: Consumer) -> None:
        """Does anybody answer? Asked when a connection broke; and while there is work, since news of that then stands in line
        behind all that librdkafka has fetched ahead."""
        now = monotonic()
        is_news = bool(self._noted) and self.away is None
        if not is_news and (now < self._probe_at or not (self._noted or self._fetched.is_busy())):
            return
        self._asked_at = now
        try:
            consumer.list_topics(self._subscription.topics[0], timeout=PROBE_SECONDS)
        except KafkaException as exc:
            if not self._noted:  # what librdkafka noted by itself names the cause; this does not
                self._noted.append(exc.args[0])
            self.away = away(self._noted, self._subscription.shown).error
        else:
            self.away = None
            self._noted.clear()
        self._asked_at = None
        self._probe_at = monotonic() + PROBE_SECONDS
        self._tell()

    def _look_for_topics(self, consumer: Consumer) -> None:
        """Raises TransportRefused when one of the topics is not there, or we are not let in; TransportUnavailable when nobody
        answers."""
        until, believed_at = monotonic() + OPEN_SECONDS, monotonic() + MISSING_SECONDS
        shown = self._subscription.shown
        for topic in self._subscription.topics:
            while True:
                left = until - monotonic()
                try:
                    # In slices: it asks on, whatever it is told.
                    patience = min(max(left, 0.01), PROBE_SECONDS)
                    found = consumer.list_topics(topic, timeout=patience).topics[topic].error
                except KafkaException:
                    consumer.poll(0)  # what went wrong is told now, or never
                    if left > PROBE_SECONDS and not is_hopeless(self._noted):
                        continue
                    raise not_answered(self._noted, shown) from None
                if found is None or found.retriable():
                    break
                if found.code() not in NO_SUCH_TOPIC or monotonic() >= believed_at:
                    raise TransportRefused(
                        f"{shown} cannot be read: {found.str()} ({topic}); create the topic, or correct the URL."
                    )
                self._stopping.wait(POLL_SECONDS)

    # ── what the group says, while we poll ──

    def _gained(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:  # noqa: ARG002 - librdkafka's
        self._fetched.gain((each.topic, each.partition) for each in partitions)
        # Whether new partitions come paused is librdkafka's affair; all are made alike before the next fetch.
        self._is_pausing_known = False
        self.is_joined = True
        self._tell()

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """They go to others, who begin where we say. The group waits for us meanwhile."""
        done = self._fetched.lose((each.topic, each.partition) for each in partitions)
        if done and self.away is None:
            # What cannot be told comes again, elsewhere.
            with suppress(KafkaException):
                consumer.commit(offsets=_offsets(done), asynchronous=False)
        self._tell()

    def _lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:  # noqa: ARG002 - librdkafka's
        """Others have had them for a while: there is nothing to say about them any more."""
        self._fetched.lose((each.topic, each.partition) for each in partitions)
        self._tell()

    def _leave(self, consumer: Consumer | None) -> None:
        if consumer is not None:
            with suppress(KafkaException):
                consumer.close()  # which takes our partitions, by `_revoked`
        self._fetched.lose_all()
        self._tell()


def _offsets(done: Sequence[Done]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition, each.offset) for each in done]
