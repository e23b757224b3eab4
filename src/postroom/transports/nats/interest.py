"""Does anybody read what a stream is given that keeps messages by interest?

Such a stream confirms a message that no consumer wants, and drops it at once: its word means nothing then. Nothing in the
confirmation tells the two apart, so the consumers are asked for before each batch. Streams that keep by limits or as a work
queue are not asked: they keep what nobody has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from nats.errors import Error
from nats.js.api import ConsumerInfo, RetentionPolicy, StreamConfig

from postroom.clock import monotonic
from postroom.contracts.transport import Outcome, Rejected, Unavailable
from postroom.transports.nats import streams
from postroom.transports.nats.connection import CONNECT_SECONDS, Connection
from postroom.transports.nats.url import NatsUrl, covers

BELIEVED_SECONDS = 30.0
"""So long it is believed by what a stream keeps messages: that can be changed under us."""
PAGE = 256
"""So many consumers the server tells of at once."""
LOOK_SECONDS = 2.0

Filters = Sequence[Sequence[str]]
"""What each consumer reads: subjects, with wildcards; none: all of them."""


def is_by_interest(config: StreamConfig) -> bool:
    """Does the stream keep a message only for the consumers that are there when it comes?"""
    return config.retention == RetentionPolicy.INTEREST


async def filters_of(connection: Connection, stream: str) -> Filters:
    """What the consumers of a stream read. Raises what the library raises."""
    js, found = connection.client.jetstream(timeout=CONNECT_SECONDS), list[ConsumerInfo]()
    while True:
        page = await js.consumers_info(stream, offset=len(found))
        found += page
        if len(page) < PAGE:
            return [_filter_of(each) for each in found]


def _filter_of(consumer: ConsumerInfo) -> list[str]:
    config = consumer.config
    return [each for each in (config.filter_subject, *(config.filter_subjects or ())) if each]


def is_read(filters: Filters, subject: str) -> bool:
    """Does one of these consumers read this subject?"""
    return any(not each or covers(each, subject) for each in filters)


def unread(config: StreamConfig, filters: Filters, settings: NatsUrl) -> list[str]:
    """What is lost at once, in a sentence with the remedy: for whoever starts, and for the doctor."""
    if not is_by_interest(config) or (filters and (settings.subject is None or is_read(filters, settings.subject))):
        return []
    what = f"the subject {settings.subject!r}" if filters else "it"
    lost = f"{settings.shown} keeps messages by interest, and no consumer reads {what}: the server would confirm and drop them"
    first = "First start each receiver once, which makes its consumer, then send"
    return [f"{lost}, so the relay waits. {first}; or use retention limits."]


async def unread_at(connection: Connection, config: StreamConfig, settings: NatsUrl) -> list[str]:
    """The same, asking the server; nothing where it does not tell, or is away by now."""
    if not is_by_interest(config):
        return []
    try:
        return unread(config, await filters_of(connection, settings.stream), settings)
    except (TimeoutError, OSError, Error) as exc:
        who = f"{settings.shown} keeps messages by interest, and whether anybody reads them cannot be asked ({exc})"
        return [f"{who}; allow $JS.API.CONSUMER.LIST.{settings.stream}."]


class Interest:
    """What a publisher knows of its stream's consumers."""

    def __init__(self, settings: NatsUrl) -> None:
        self._settings = settings
        self._is_asked_for = False
        self._known_until = float("-inf")

    def learn(self, config: StreamConfig) -> None:
        """The stream is set so now."""
        self._is_asked_for, self._known_until = is_by_interest(config), monotonic() + BELIEVED_SECONDS

    async def refused(
        self, connection: Connection, subjects: Callable[[], Collection[str]], until: float
    ) -> dict[str, Outcome]:
        """What to say of messages to these subjects, instead of sending them; nothing of those that somebody reads."""
        if not self._is_asked_for and monotonic() < self._known_until:
            return {}
        stream = self._settings.stream
        try:
            async with asyncio.timeout(max(min(LOOK_SECONDS, until - monotonic()), 0.05)):
                if monotonic() >= self._known_until:
                    self.learn(await streams.info_of(connection, stream))
                if not self._is_asked_for:
                    return {}
                filters = await filters_of(connection, stream)
        except (TimeoutError, OSError, Error) as exc:
            if not self._is_asked_for:
                return {}  # whatever it is, who sends learns of it, and says it better
            said = f"whether anybody reads {stream!r} cannot be asked ({exc}); allow $JS.API.CONSUMER.LIST.{stream}"
            return dict.fromkeys(subjects(), Unavailable("UNROUTABLE", said))
        return dict(self._judged(filters, subjects()))

    def _judged(self, filters: Filters, subjects: Iterable[str]) -> Iterable[tuple[str, Outcome]]:
        stream = self._settings.stream
        for subject in subjects:
            if is_read(filters, subject):
                continue
            said = f"the stream {stream!r} keeps by interest, and no consumer reads {subject!r}: it would be dropped"
            # Nobody at all, or nobody for what the URL says: that is the route's trouble, and can be fixed.
            is_the_routes = not filters or subject == self._settings.subject
            yield subject, Unavailable("UNROUTABLE", said) if is_the_routes else Rejected("UNROUTABLE", said)
