"""What a broker must do for Postroom: the contract of a transport.

`publish` returns only when it knows, for each message, what the broker said. There is no "handed over, probably fine":
`Sent` means durably confirmed, and an answer that never came is `Failed` with `unknown=True`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeAlias

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


@dataclass(frozen=True, slots=True)
class Sent:
    """The broker confirmed it durably."""

    result: Any = None
    """What the broker said of it: partition and offset, a sequence, a handler's answer."""


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
    """The broker, not the message: nothing was tried, so no attempt is spent. The route pauses."""

    code: str = "UNAVAILABLE"
    error: str = ""
    retry_after: timedelta | None = None


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
        """Connect. Raises TransportUnavailable when the broker is away, ConfigError when a setting is unsafe."""

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        """Publish the batch and answer, in the same order, what became of each message; within *timeout*.

        One message's failure says nothing of another's, but for order: once a message of a key is not Sent, no later
        one of that key in the batch is sent (it is KEY_STOPPED). What was not begun when the time was up
        is NOT_STARTED. Never raises for what a broker does; a broken
        connection is an outcome. An empty batch is an empty answer."""

    async def close(self) -> None:
        """Let go. What was being published is answered first. Twice is fine."""
