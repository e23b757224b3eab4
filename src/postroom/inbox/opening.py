"""From a broker's URL to the consumer that an inbox receives from."""

from __future__ import annotations

from postroom.contracts.transport import Consumer, ConsumerOptions
from postroom.inbox.inbox import Inbox
from postroom.transports import open_consumer, received


def consumer_for(
    inbox: Inbox,
    source: str,
    *,
    group: str | None = None,
    prefetch: int | None = None,
    secrets: tuple[str, ...] = (),
    unsigned: bool = False,
    known_secrets: tuple[str, ...] = (),
) -> Consumer:
    """The consumer by which this inbox receives from there, in a group of the inbox's name unless another is given.

    *known_secrets* are those of the settings: they count where none are given, and senders to *source* sign.
    Raises ConfigError for a URL that nothing can be received from, and for an option that it cannot honour."""
    honoured = received(source)
    # A queue is one group by itself, in SQS and where a URL of AMQP names one: there the inbox's name is no option.
    name = group or (inbox.name if "group" in honoured else None)
    if not secrets and not unsigned and "secrets" in honoured:
        secrets = known_secrets
    return open_consumer(source, ConsumerOptions(group=name, prefetch=prefetch, secrets=secrets, unsigned=unsigned))
