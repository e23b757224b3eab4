"""What a broker must do for Postroom: the contract of a transport, sending side and receiving side.

`publish` returns only when it knows, for each message, what the broker said. There is no "handed over, probably fine":
`Sent` means durably confirmed, and an answer that never came is `Failed` with `unknown=True`. What was received is there
until it is acknowledged: a receiver that dies without a word loses nothing.

Whose fault is it? The message's: `Rejected`, it is dead at once. The route's (a wrong password, a topic of the URL that is not
there): TransportRefused at the start, `Unavailable` later. The world's (away, full): TransportUnavailable, `Unavailable`.
Unknown: `Failed`, which alone spends an attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from postroom.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportCapabilities:
    """What a transport promises. Tests, docs and the relay read the same declaration."""

    name: str
    durable: bool
    """Sent means written where it survives the broker's restart."""
    ordered: bool
    """Messages of one key, published one after the other, are received in that order."""
    batches: bool
    """Many messages cost one round trip."""
    largest: int | None = None
    """The largest body in bytes, where the transport itself knows one."""
    topic: str | None = None
    """Where a message goes when neither it nor its route names a topic; None: nowhere, or the transport has no topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """What may be asked of a transport beside its URL. One that cannot honour an option refuses it; None asks nothing."""

    source: str | None = None
    """CloudEvents' source: who says it. None: the transport's own default, `postroom`."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What webhooks are signed with, newest first."""
    public_only: bool = False
    """Refuse every address that is not of the public internet: for URLs that strangers give."""
    concurrency: int | None = None
    """How many messages are under way at once."""

    @property
    def asked(self) -> frozenset[str]:
        """The names of the options that ask for something."""
        return frozenset(each.name for each in fields(self) if getattr(self, each.name) != each.default)

    def only(self, names: Collection[str]) -> TransportOptions:
        """Return these options with only those in *names* set."""
        return TransportOptions(**{name: getattr(self, name) for name in self.asked if name in names})


@dataclass(frozen=True, slots=True)
class Sent:
    """The broker confirmed it durably."""

    result: Any = None
    """What the broker said of it, where it costs nothing to keep: a status, a handler's answer."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Not this time; it may work later."""

    code: str
    error: str = ""
    retry_after: timedelta | None = None
    unknown: bool = False
    """The answer never came: it may have been delivered. It is tried again all the same."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """It will never work: too large, no such topic, refused by the receiver."""

    code: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The broker or the route, not the message: it is away, or full, or wrongly addressed. So no attempt is spent, however
    often it says so, and the route pauses. Mostly nothing was tried; what was, and is not known to have arrived, goes again."""

    code: str = "UNAVAILABLE"
    error: str = ""
    retry_after: timedelta | None = None
    until_told: bool = False
    """It will not come back by itself: the route is shut until a person starts the relay again."""


Outcome: TypeAlias = Sent | Failed | Rejected | Unavailable

KEY_STOPPED = Unavailable("KEY_STOPPED", "an earlier message of its key was not sent")
NOT_STARTED = Unavailable("NOT_STARTED", "the time was up before its turn")
"""What `publish` says of messages that it did not try. That tells nothing of the broker."""


class Envelope(NamedTuple):
    """A message and where it goes, as the route decided. A tuple: there is one for every message sent."""

    message: Message
    topic: str | None = None


class Publisher(Protocol):
    """The sending side of a transport. Opened by `postroom.open_publisher(url)`."""

    @property
    def capabilities(self) -> TransportCapabilities:
        """What this transport promises."""

    async def open(self) -> None:
        """Connect. Raises TransportUnavailable while the broker is away: the caller waits. Raises TransportRefused when the
        broker does not let us in or lacks what the URL names, and ConfigError when a setting is unsafe: both end a start."""

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        """Publish the batch within *timeout*, and return an outcome for each message, in the order of the batch.

        The failure of one message says nothing about another, except for order: once a message of a key is not Sent, no
        later message of that key in the batch is sent (KEY_STOPPED). A message that was not begun in time is NOT_STARTED.
        Never raises for what a broker does: a broken connection is an outcome. Returns nothing for an empty batch."""

    async def close(self) -> None:
        """Close the connection, after every publish under way has its answer. May be called twice."""


# ── the receiving side ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerCapabilities:
    """What the receiving side of a transport promises."""

    name: str
    durable: bool
    """What was published without a listener is received later; what was not acknowledged comes again, also after the
    broker's restart."""
    ordered: bool
    """Messages of one key are received in the order they were published, also what comes again after a receiver died:
    as long as there is one receiver, or the broker gives each of several its own keys."""
    shares: bool
    """Several receivers of one group share the messages among them."""
    counts_redeliveries: bool
    """The broker says how often a message was delivered before; else 0 and 1 are told apart, at best."""
    holds: bool = True
    """What is in flight stays so, however long it takes; else the broker takes it back after a while, and delivers it again."""
    groups: bool = True
    """Every group of receivers has every message; else all receivers share the messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """What may be asked of a receiver beside its URL. One that cannot honour an option refuses it; None asks nothing."""

    group: str | None = None
    """Receivers of one group share the messages; every group has all of them. None: the transport's default, `postroom`."""
    prefetch: int | None = None
    """How many messages are in flight at once, received and not yet acknowledged. None: the transport's default."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The secrets by which a webhook proves who sent it, newest first."""
    unsigned: bool = False
    """Take webhooks without a signature: anyone who reaches the port may send. Without this, secrets are needed."""

    @property
    def asked(self) -> frozenset[str]:
        """The names of the options that ask for something."""
        return frozenset(each.name for each in fields(self) if getattr(self, each.name) != each.default)


class Identity(NamedTuple):
    """What an inbox recognises an event by. CloudEvents: an id is unique within its source, and only there."""

    source: str
    id: UUID


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """A message in flight. Two deliveries of one message are two objects."""

    message: Message
    source: str
    """Who says it: CloudEvents' source."""
    topic: str
    """Where it came from, as the broker calls it."""
    redelivered: int = 0
    """How often it was delivered before, as far as the broker knows."""
    fault: str | None = None
    """Why it is not an event and cannot be handled, in a sentence: no id, no type, broken headers. Its bytes are in the
    message all the same, and the id is made up: do not compare two such messages by it."""
    token: Any = None
    """What the transport needs for an acknowledgement."""
    doubtful: bool = False
    """The broker does not count, and it may have been delivered before: a receiver that died may have had it in flight."""

    @property
    def identity(self) -> Identity:
        return Identity(self.source, self.message.id)


class Consumer(Protocol):
    """The receiving side of a transport. Opened by `postroom.open_consumer(url)`.

    Every delivery ends by exactly one of `ack`, `nack` and `terminate`. Until then it is this receiver's, however long that
    takes (where it `holds`): where the broker sets a time limit, the consumer prolongs it by itself. Acknowledging a delivery
    that is lost meanwhile (the connection broke, the partition moved) is not an error: it is delivered again."""

    @property
    def capabilities(self) -> ConsumerCapabilities:
        """What this transport promises."""

    async def open(self) -> None:
        """Connect. Raises TransportUnavailable while the broker is away: the caller waits. Raises TransportRefused when the
        broker does not let us in or lacks what the URL names, and ConfigError when a setting is unsafe: both end a start."""

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        """Return up to *limit* messages, as soon as there is one; none when *wait* is over, or the prefetch is used up.

        Messages of one key come in order. Raises TransportUnavailable while the broker is away; the next call connects
        again. What was in flight before is lost (the broker delivers it again), and `is_lost` says so."""

    def is_lost(self, delivery: Delivery) -> bool:
        """Return True if the broker has given this delivery to another receiver, or will. Then do not handle it: that would
        be a duplicate, or out of order."""

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge what was handled: it is not delivered again. If the connection breaks first, it is."""

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        """Give back what was not handled: the broker delivers it again, to any receiver, after *delay* or sooner. Where
        `ordered`, no later message of its key is received before it."""

    async def terminate(self, delivery: Delivery) -> None:
        """Tell the broker never to deliver it again: it was put aside elsewhere, or is not a message."""

    async def close(self) -> None:
        """Close the connection. What is in flight goes back at once, to other receivers. May be called twice."""
