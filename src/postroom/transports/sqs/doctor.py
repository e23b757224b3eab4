"""Which settings of a queue weaken what Postroom promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

from postroom.durations import format_duration
from postroom.transports.sqs.connection import Queue, SqsConnection
from postroom.transports.sqs.url import read

RETENTION_MIN = timedelta(days=4)
"""SQS's own default: a receiver may be away over a long weekend."""
HOLD_MIN = timedelta(seconds=10)
HOLD_MAX = timedelta(hours=1)
RECEIVES_MIN = 5


async def weaknesses(url: str) -> list[str]:
    """What is weak about the queue of this URL, a sentence each with its remedy; nothing when it is fine.

    Raises ConfigError when it is not there, TransportUnavailable when SQS is away."""
    client = SqsConnection(read(url), connections=1)
    try:
        queue = await (await client.open()).look()
    finally:
        await client.close()
    return [] if queue is None else list(_of(queue))


def _of(queue: Queue) -> Iterator[str]:
    name, settings = queue.name, queue.settings
    if not queue.is_fifo:
        yield (
            f"{name} is a standard queue: it keeps no order and may deliver a message twice; where the order of a key "
            f"matters, create {name}.fifo and send there."
        )
    if not settings:
        yield f"The settings of {name} may not be read by us, so nothing is known of them: allow sqs:GetQueueAttributes."
        return
    yield from _of_times(name, settings)
    yield from _of_redrive(name, settings.get("RedrivePolicy"))


def _of_times(name: str, settings: dict[str, str]) -> Iterator[str]:
    retention = timedelta(seconds=int(settings.get("MessageRetentionPeriod", RETENTION_MIN.total_seconds())))
    hold = timedelta(seconds=int(settings.get("VisibilityTimeout", HOLD_MIN.total_seconds())))
    if retention < RETENTION_MIN:
        yield (
            f"{name} deletes unreceived messages after {format_duration(retention)}: receivers that are away so long lose "
            "messages; set MessageRetentionPeriod to 1209600, which is 14 days."
        )
    if hold < HOLD_MIN:
        yield (
            f"{name} gives a message to another receiver after {format_duration(hold)}: a receiver whose network "
            "or host stops for so long loses what it has in flight; set VisibilityTimeout to 30 or more."
        )
    if hold > HOLD_MAX:
        yield (
            f"{name} hides for {format_duration(hold)} what a dead receiver had in flight; set VisibilityTimeout to 30: "
            "receivers of Postroom prolong it while they work."
        )


def _of_redrive(name: str, policy: str | None) -> Iterator[str]:
    if not policy:
        yield (
            f"{name} has no redrive policy: what no receiver can take comes again until its retention is over, and is then "
            "deleted; set a RedrivePolicy with a dead-letter queue."
        )
        return
    most = int(json.loads(policy).get("maxReceiveCount", RECEIVES_MIN))
    if most < RECEIVES_MIN:
        yield (
            f"{name} puts a message aside when it was received {most} times, also when it only went back untried because a "
            "receiver stopped; set maxReceiveCount to 10."
        )
