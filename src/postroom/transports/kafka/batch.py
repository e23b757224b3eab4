"""One batch on its way: what is sent, in which order, and what came of each message. It runs in a thread, and blocks.

The order of a key is kept in three places. What can be refused before it is sent stops its key in `send`. What the broker
refuses stops the whole producer (the gapless guarantee in url.py), and what was only in its company goes again, on another.
And when the time is up, all that is unanswered is purged at once (`ProducerConnection.finish`): never an earlier message of
a key alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Report

from postroom.clock import monotonic
from postroom.contracts.transport import KEY_STOPPED, NOT_STARTED, Envelope, Failed, Outcome, Rejected, Sent
from postroom.message import Message
from postroom.transports.kafka.connection import ProducerConnection
from postroom.transports.kafka.encoding import Headers
from postroom.transports.kafka.outcomes import (
    HELD_UP,
    NO_TOPIC,
    OF_THE_TOPIC,
    REFUSED,
    REFUSED_IN_COMPANY,
    UNANSWERED,
    away,
    outcome_of,
    stopped_by,
)
from postroom.transports.ordering import by_key

ROOM_SECONDS = 0.05
LOOK_EVERY = 64
"""So many messages are handed over, in less than a millisecond, between two looks at the clock."""

BLAME_SECONDS = 0.2
"""So long the cluster may take to say why nobody answered; there is a little more than that left of the time."""

SENT = Sent()


class Batch:
    """A batch, and its outcomes as far as they are known."""

    def __init__(
        self, batch: Sequence[Envelope], topic: str | None, headers_of: Callable[[Message], Headers], until: float
    ) -> None:
        self.outcomes: list[Outcome] = [NOT_STARTED] * len(batch)
        self._batch, self._topic, self._headers_of, self._until = batch, topic, headers_of, until
        self._topics = [routed or message.topic or topic for message, routed in batch]
        self.topics = [each for each in dict.fromkeys(self._topics) if each is not None]
        self._wrong: dict[str | None, Outcome] = {None: NO_TOPIC}
        """What is to be said of messages to these topics, without trying."""
        self._reports: dict[int, KafkaError] = {}
        """What went wrong, by place; nothing is told of those that were delivered."""
        self._produced = 0
        self._refused: set[int] = set()
        """In company, so perhaps for another's fault."""
        self._held_up: set[int] = set()
        """Not sent, because a refusal stopped the producer."""

    def look(self, producer: ProducerConnection, shown: str) -> bool:
        """Return whether a broker answers. If none does, the outcomes say so."""
        now = monotonic()
        try:
            # Half of the time, so that there is as much left to send.
            wrong = producer.look(self.topics, now + (self._until - now) / 2) if self.topics else {}
        except KafkaException:
            self.outcomes = [away(producer.noted, shown)] * len(self._batch)
            return False
        self._wrong.update({topic: self._outcome_of(error, topic) for topic, error in wrong.items()})
        return True

    def send(self, producer: ProducerConnection, places: Collection[int]) -> None:
        """These at once, in their order."""
        self.hand_over(producer, places)
        self.finish(producer, places)

    def hand_over(self, producer: ProducerConnection, places: Collection[int]) -> None:
        """Give these to librdkafka, in their order. What is not taken stops its key."""
        outcomes, batch, topics, wrong = self.outcomes, self._batch, self._topics, self._wrong
        produce, told, headers_of, until = producer.produce, self._told, self._headers_of, self._until
        stopped: set[str] = set()
        produced = 0
        for place in places:
            message, topic = batch[place][0], topics[place]
            key = message.key
            if key in stopped:
                outcomes[place] = KEY_STOPPED
                continue
            if not produced % LOOK_EVERY and monotonic() >= until:
                break
            failure = wrong.get(topic)
            if failure is None and topic is not None:
                outcomes[place] = UNANSWERED
                try:
                    produce(topic, message.body, key, on_delivery=partial(told, place), headers=headers_of(message))
                except Exception as exc:  # noqa: BLE001 - sorted out where it costs the others nothing
                    failure = self._not_taken(exc, producer, place)
                produced += failure is None
            if failure is not None:
                outcomes[place] = failure
                if key is not None:
                    stopped.add(key)
        self._produced = produced

    def go_again(self, open_producer: Callable[[bool], ProducerConnection]) -> None:
        """What was refused in company goes again by itself: a broker refuses many for one among them. Then, together, what
        was held up by that. *open_producer* is told whether messages go alone."""
        if not self._refused and not self._held_up:
            return
        _, following = by_key([message.key for message, _ in self._batch])
        before = {later: earlier for earlier, later in following.items()}
        while (self._refused or self._held_up) and monotonic() < self._until:
            pending = sorted(self._refused | self._held_up)
            held_up, together = self._held_up, dict[int, None]()
            self._refused, self._held_up = set(), set()
            alone: ProducerConnection | None = None
            for place in pending:
                earlier = before.get(place)
                if earlier is not None and earlier not in together and not isinstance(self.outcomes[earlier], Sent):
                    self.outcomes[place] = KEY_STOPPED
                elif place in held_up or earlier in together:
                    together[place] = None
                else:
                    alone = open_producer(True) if alone is None or alone.is_spent else alone
                    self.send(alone, [place])
            if together:
                self.send(open_producer(False), together)

    def _not_taken(self, exc: Exception, producer: ProducerConnection, place: int) -> Outcome | None:
        """What is to be said of a message that librdkafka did not take; None when it took it after all."""
        message, topic = self._batch[place].message, self._topics[place] or ""
        while isinstance(exc, BufferError):
            # The queue is full: what is in it goes first. Nothing is dropped.
            producer.serve(ROOM_SECONDS)
            if producer.fatal is not None or monotonic() >= self._until:
                return NOT_STARTED
            try:
                headers = self._headers_of(message)
                producer.produce(
                    topic, message.body, message.key, on_delivery=partial(self._told, place), headers=headers
                )
            except Exception as again:  # noqa: BLE001 - looked at below
                exc = again
            else:
                return None
        if isinstance(exc, KafkaException):
            outcome = self._outcome_of(exc.args[0], topic)
            return NOT_STARTED if isinstance(outcome, Failed) else outcome
        if isinstance(exc, (ValueError, TypeError)):
            return Rejected("INVALID_MESSAGE", f"it cannot be written as a record: {exc}")
        raise exc

    def _told(self, place: int, error: KafkaError, report: Report) -> None:  # noqa: ARG002 - librdkafka's signature
        # Nothing is called here: the first answers after a fatal error come while Python holds an exception.
        self._reports[place] = error

    def finish(self, producer: ProducerConnection, places: Collection[int]) -> None:
        """Wait for the answers to what was handed over, and read them."""
        is_late = producer.finish(self._until)
        outcomes, is_alone = self.outcomes, len(places) == 1
        reports, self._reports = self._reports, {}
        if producer.is_empty:
            for place in places:
                if outcomes[place] is UNANSWERED:
                    outcomes[place] = SENT
        held_up: list[int] = []
        was_refused = False
        for place, error in sorted(reports.items()):
            code = error.code()
            outcomes[place] = self._outcome_of(error, self._topics[place] or "")
            was_refused |= code in REFUSED
            if code in REFUSED_IN_COMPANY and not is_alone:
                outcomes[place] = NOT_STARTED
                self._refused.add(place)
            elif code in OF_THE_TOPIC:
                self._wrong[self._topics[place]] = outcomes[place]
            elif code in HELD_UP:
                held_up.append(place)
        if producer.fatal is not None:
            self._stop(producer.fatal, held_up, was_refused=was_refused)
        if is_late or producer.fatal is not None:
            self._find_whose_fault(producer, places)
        # A young one may just have waited for its producer id; any other may have lost count of what the broker has.
        is_untouched = producer.is_young and len(held_up) == self._produced
        producer.is_spent = producer.fatal is not None or (is_late and not is_untouched)

    def _find_whose_fault(self, producer: ProducerConnection, places: Collection[int]) -> None:
        """Some have no answer. If a leader is gone, or replicas are missing, that is the cluster's fault and no message's: they
        go again, and spend no attempt. They may have arrived all the same."""
        outcomes, topics = self.outcomes, self._topics
        silent = [place for place in places if isinstance(each := outcomes[place], Failed) and each.unknown]
        wanted = dict.fromkeys(topic for place in silent if (topic := topics[place]) is not None)
        blamed = producer.blame(wanted, self._until + BLAME_SECONDS)
        for place in silent:
            outcomes[place] = blamed.get(topics[place] or "", outcomes[place])

    def _stop(self, fatal: KafkaError, held_up: Collection[int], *, was_refused: bool) -> None:
        """The producer gave up: by a refusal, and then what it held up can go again; or nobody knows why."""
        if was_refused:
            self._held_up.update(held_up)
        outcome = NOT_STARTED if was_refused else stopped_by(fatal)
        for place in held_up:
            self.outcomes[place] = outcome

    def _outcome_of(self, error: KafkaError, topic: str) -> Outcome:
        return outcome_of(error, topic, of_the_url=topic == self._topic)
