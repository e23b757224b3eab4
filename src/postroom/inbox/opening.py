"""From a broker's URL to the consumer that an inbox receives from."""

from __future__ import annotations

from postroom.inbox.inbox import Inbox
from postroom.transport import Consumer, ConsumerOptions
from postroom.transports import open_consumer, received


def consumer_for(
    inbox: Inbox,
    source: str,
    *,
    group: str | None = None,
    prefetch: int | None = None,
    secrets: tuple[str, ...] = (),
) -> Consumer:
    """The consumer by which this inbox receives from there, in a group of the inbox's name unless another is given.

    Raises ConfigError for a URL that nothing can be received from, and for an option that it cannot honour."""
    # A queue is one group by itself: there the inbox's name is no option.
    name = group or (inbox.name if "group" in received(source) else None)
    return open_consumer(source, ConsumerOptions(group=name, prefetch=prefetch, secrets=secrets))
