"""One batch on its way: what is sent, in which order, and what came of each message. It runs in a thread, and blocks.

The order of a key is kept in three places. What can be refused before it is sent stops its key in `send`. What the broker
refuses stops the whole line (the gapless guarantee in settings.py). And when the time is up, all that is unanswered is purged
at once (`Line.finish`): never an earlier message while a later one stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Report

from postroom.clock import monotonic
from postroom.message import Message
from postroom.transport import KEY_STOPPED, NOT_STARTED, Envelope, Failed, Outcome, Rejected, Sent
from postroom.transports.kafka import answers
from postroom.transports.kafka.binding import headers_of
from postroom.transports.kafka.line import Line

ROOM_SECONDS = 0.05
Wrong = dict[str | None, Outcome]
"""What is to be said of messages to these topics, without trying."""


class Sending:
    """A batch, and its outcomes as far as they are known."""

    def __init__(self, batch: Sequence[Envelope], topic: str | None, source: tuple[str, str], until: float) -> None:
        self.outcomes: list[Outcome] = [NOT_STARTED] * len(batch)
        self._batch, self._topic, self._source, self._until = batch, topic, source, until
        self._topics = [envelope.topic or envelope.message.topic or topic for envelope in batch]
        self._produced = 0
        self._unsent = 0
        """How many were purged that librdkafka says it never sent."""
        self._refused: set[int] = set()

    def look(self, line: Line, shown: str) -> Wrong | None:
        """What is wrong with the batch's topics; None when nobody answers, and then the outcomes say so."""
        topics = dict.fromkeys(topic for topic in self._topics if topic is not None)
        now = monotonic()
        try:
            # Half of the time, so that there is as much left to send.
            wrong = line.look(topics, now + (self._until - now) / 2) if topics else {}
        except KafkaException:
            self.outcomes = [answers.away(line.noted, shown)] * len(self._batch)
            return None
        return {None: answers.NO_TOPIC, **{topic: self._outcome_of(error, topic) for topic, error in wrong.items()}}

    def send(self, line: Line, wrong: Wrong) -> None:
        """Everything at once. What is not taken stops its key."""
        outcomes = self.outcomes
        stopped: set[str] = set()
        for place, (envelope, topic) in enumerate(zip(self._batch, self._topics, strict=True)):
            message = envelope.message
            if message.key in stopped:
                outcomes[place] = KEY_STOPPED
                continue
            if monotonic() >= self._until:
                break
            failure = wrong.get(topic)
            if failure is None and topic is not None:
                outcomes[place] = answers.UNANSWERED
                failure = self._produce(line, place, topic, message)
            if failure is not None:
                outcomes[place] = failure
                if message.key is not None:
                    stopped.add(message.key)
        self._finish(line)

    def send_refused_alone(self, open_line: Callable[[], Line]) -> None:
        """A broker refuses many for one among them. Each goes again by itself: only then is a refusal its own."""
        if not self._refused or self._produced == 1:
            return
        line: Line | None = None
        stopped: set[str] = set()
        for place, envelope in enumerate(self._batch):
            key = envelope.message.key
            if place in self._refused:
                if key in stopped:
                    self.outcomes[place] = KEY_STOPPED
                elif monotonic() >= self._until:
                    self.outcomes[place] = NOT_STARTED
                else:
                    line = open_line() if line is None or line.is_spent else line
                    alone = Sending([envelope], self._topic, self._source, self._until)
                    alone.send(line, {})
                    self.outcomes[place] = alone.outcomes[0]
            if key is not None and not isinstance(self.outcomes[place], Sent):
                stopped.add(key)

    def _produce(self, line: Line, place: int, topic: str, message: Message) -> Outcome | None:
        """Hand a message to librdkafka; what is to be said of it when it is not taken."""
        headers = headers_of(message, self._source)
        while True:
            try:
                line.produce(topic, message.body, message.key, on_delivery=partial(self._told, place), headers=headers)
            except BufferError:
                # The queue is full: what is in it goes first. Nothing is dropped.
                line.serve(ROOM_SECONDS)
                if line.fatal is not None or monotonic() >= self._until:
                    return NOT_STARTED
            except KafkaException as exc:
                outcome = self._outcome_of(exc.args[0], topic)
                return NOT_STARTED if isinstance(outcome, Failed) else outcome
            except (ValueError, TypeError) as exc:
                return Rejected("INVALID_MESSAGE", f"it cannot be written as a record: {exc}")
            else:
                self._produced += 1
                return None

    def _told(self, place: int, error: KafkaError | None, report: Report) -> None:
        if error is None:
            self.outcomes[place] = Sent((report.topic(), report.partition(), report.offset()))
            return
        self.outcomes[place] = self._outcome_of(error, self._topics[place] or "")
        if error.code() in answers.REFUSED_IN_COMPANY:
            self._refused.add(place)
        self._unsent += error.code() == answers.PURGED_UNSENT

    def _finish(self, line: Line) -> None:
        purged = line.finish(self._until)
        # A young line may just have waited for its producer id; any other may have lost count of what the broker has.
        line.is_spent = line.fatal is not None or (
            purged > 0 and not (line.is_young and self._unsent == self._produced)
        )
        if line.fatal is not None:
            stopped = answers.stopped_by(line.fatal)
            self.outcomes = [stopped if outcome is answers.UNANSWERED else outcome for outcome in self.outcomes]

    def _outcome_of(self, error: KafkaError, topic: str) -> Outcome:
        return answers.outcome_of(error, topic, of_the_url=topic == self._topic)
