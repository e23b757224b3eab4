"""A broker that is none: `null://` confirms every message and throws it away. For measuring everything but the broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from postroom.contracts.transport import Envelope, Outcome, Publisher, Sent, TransportCapabilities, TransportOptions

log = logging.getLogger(__name__)
SENT = Sent()


def open_publisher(url: str, options: TransportOptions) -> Publisher:  # noqa: ARG001 - there is nothing in it
    """See `postroom.transports.open_transport`."""
    return NullPublisher()


class NullPublisher:
    """See `postroom.contracts.transport` for what each method promises. Here nobody receives anything: it answers `Sent`
    and drops the message."""

    @property
    def capabilities(self) -> TransportCapabilities:
        # Ordered, as nothing arrives out of order; not durable, as nothing arrives.
        return TransportCapabilities(name="null", durable=False, ordered=True, batches=True)

    async def open(self) -> None:
        log.warning("null:// throws messages away: they will be marked as published, but no receiver gets them.")

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:  # noqa: ARG002 - it never waits
        return [SENT] * len(batch)

    async def close(self) -> None:
        return None
