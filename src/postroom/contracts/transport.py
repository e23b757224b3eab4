"""What a broker must do for Postroom: the contract of a transport, sending side and receiving side.

`publish` returns only when it knows, for each message, what the broker said. There is no "handed over, probably fine":
`Sent` means durably confirmed, and an answer that never came is `Failed` with `unknown=True`. What was received is there
until it is acknowledged: a receiver that dies without a word loses nothing.

Whose fault is it? The message's: `Rejected`, it is dead at once. The route's (a wrong password, a topic of the URL that is not
there): TransportRefused at the start, `Unavailable` later. The world's (away, full): TransportUnavailable, `Unavailable`.
Nobody knows: `Failed`, which alone spends an attempt.
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
    """Where a message goes that names no topic, and whose route names none; None: nowhere, or it has no topics."""


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
        """The same, asking for nothing but these."""
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
    """It will not come back by itself: the route is shut until a person starts the relay anew."""


Outcome: TypeAlias = Sent | Failed | Rejected | Unavailable

KEY_STOPPED = Unavailable("KEY_STOPPED", "an earlier message of its key was not sent")
NOT_STARTED = Unavailable("NOT_STARTED", "the time was up before its turn")
"""What `publish` says of messages that it did not try. That tells nothing of the broker."""


class Envelope(NamedTuple):
    """A message and where it goes, as the route decided. A tuple: there is one for every message sent."""

    message: Message
    topic: str | None = None


class Publisher(Protocol):
    """The sending side of a transport. Opened by `postroom.open_transport(url)`."""

    @property
    def capabilities(self) -> TransportCapabilities:
        """What this transport promises."""

    async def open(self) -> None:
        """Connect. Raises TransportUnavailable when the broker is away, which is waited for; TransportRefused when it does not
        let us in, or the URL names what is not there, and ConfigError when a setting is unsafe: those end a start."""

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        """Publish the batch and answer, in the same order, what became of each message; within *timeout*.

        One message's failure says nothing of another's, but for order: once a message of a key is not Sent, no later
        one of that key in the batch is sent (it is KEY_STOPPED). What was not begun when the time was up
        is NOT_STARTED. Never raises for what a broker does; a broken
        connection is an outcome. An empty batch is an empty answer."""

    async def close(self) -> None:
        """Let go. What was being published is answered first. Twice is fine."""


# ── the receiving side ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerCapabilities:
    """What the receiving side of a transport promises."""

    name: str
    durable: bool
    """What was published while nobody listened is received later; what was not acknowledged comes again, also after the
    broker's restart."""
    ordered: bool
    """Messages of one key are received in the order they were published, also what comes again after a receiver died:
    as long as there is one receiver, or the broker gives each of several its own keys."""
    shares: bool
    """Several receivers of one group share the messages among them."""
    counts_redeliveries: bool
    """The broker says how often a message was delivered before; else 0 and 1 are told apart, at best."""
    holds: bool = True
    """What is in hand stays so, however long it takes; else it is lost after a while, and comes again."""
    groups: bool = True
    """Every group of receivers has every message; else there is one line of messages, for whoever takes from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """What may be asked of a receiver beside its URL. One that cannot honour an option refuses it; None asks nothing."""

    group: str | None = None
    """Receivers of one group share the messages; every group has all of them. None: the transport's default, `postroom`."""
    prefetch: int | None = None
    """How many messages are in hand at once, received and not yet acknowledged. None: the transport's default."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """By which a webhook proves who sent it, newest first."""
    unsigned: bool = False
    """Take webhooks that prove nothing: whoever reaches the port may send. Without this, secrets are needed."""

    @property
    def asked(self) -> frozenset[str]:
        """The names of the options that ask for something."""
        return frozenset(each.name for each in fields(self) if getattr(self, each.name) != each.default)


class Identity(NamedTuple):
    """By what an inbox knows an event again. CloudEvents: an id is unique within its source, and only there."""

    source: str
    id: UUID


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """A message in hand. Two deliveries of one message are two things."""

    message: Message
    source: str
    """Who says it: CloudEvents' source."""
    topic: str
    """Where it came from, as the broker calls it."""
    redelivered: int = 0
    """How often it was delivered before, as far as the broker knows."""
    fault: str | None = None
    """Why it is none of ours and cannot be handled, in a sentence: no id, no type, broken headers. Its bytes are in the
    message all the same, and the id is then made up: nobody may tell two such apart by it."""
    token: Any = None
    """The transport's own: what an acknowledgement needs."""
    doubtful: bool = False
    """The broker does not count, and it may have been delivered before: a receiver that died can have had it in hand."""

    @property
    def identity(self) -> Identity:
        return Identity(self.source, self.message.id)


class Consumer(Protocol):
    """The receiving side of a transport. Opened by `postroom.open_consumer(url)`.

    Every delivery ends by exactly one of `ack`, `nack` and `terminate`. Until then it is this receiver's, however long that
    takes (where it `holds`): where the broker sets a time limit, the consumer prolongs it by itself. Acknowledging a delivery
    that is lost meanwhile (the connection broke, the partition moved) is no error: it comes again, somewhere."""

    @property
    def capabilities(self) -> ConsumerCapabilities:
        """What this transport promises."""

    async def open(self) -> None:
        """Connect. Raises TransportUnavailable when the broker is away, which is waited for; TransportRefused when it does not
        let us in, or what to read from is not there, and ConfigError when a setting is unsafe: those end a start."""

    async def receive(self, limit: int, *, wait: timedelta) -> Sequence[Delivery]:
        """Up to *limit* messages, as soon as there is one; none when *wait* is over, or the prefetch is used up.

        Messages of one key come in order. Raises TransportUnavailable while the broker is away; call it again, it
        connects anew. What was in hand before that is lost (it comes again), and `is_lost` says so."""

    def is_lost(self, delivery: Delivery) -> bool:
        """Is this delivery known not to be ours any more, so that handling it now is vain, or out of order?"""

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """These were handled: they are not delivered again. May be lost with the connection; then they come again."""

    async def nack(self, delivery: Delivery, *, delay: timedelta = timedelta(0)) -> None:
        """Not handled: deliver it again, to us or to others, after *delay* or sooner. Where `ordered`, no later message of
        its key is received before it again."""

    async def terminate(self, delivery: Delivery) -> None:
        """Never deliver it again: it was put aside elsewhere, or is nothing."""

    async def close(self) -> None:
        """Let go. What is in hand goes back at once, for others. Twice is fine."""
