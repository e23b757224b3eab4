"""The message: what is written in your transaction and delivered, byte for byte, with the same id every time."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final
from uuid import NAMESPACE_OID, UUID, SafeUUID, uuid5

from postroom import codec
from postroom.clock import unix_ns, utcnow
from postroom.errors import InvalidMessage
from postroom.text import is_storable, one_line


class _Unset:
    """`data=None` is the JSON value null; leaving data out means that there is none."""

    def __repr__(self) -> str:
        return "UNSET"


_VERSION_7 = 7 << 76 | 2 << 62
_RANDOM = (1 << 76) - 1 & ~(3 << 62)

UNSET: Final[Any] = _Unset()
NO_HEADERS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, init=False)
class Message:
    """One thing to tell the world.

    ```python
    Message("order.paid", key=order.id, data={"amount": 12})
    ```

    `data` is any JSON value and becomes the body at once, so changing it afterwards changes nothing; `body` gives the
    bytes instead, with their `content_type`. Messages with the same `key` are delivered in the order they were written;
    messages without one never wait for each other.
    """

    type: str
    """What happened: "order.paid". Routes choose by it."""
    key: str | None
    """The ordering key, usually the aggregate's id. Absent: no order is kept."""
    body: bytes | None
    content_type: str
    id: UUID
    """UUIDv7. The same through every retry: the receiver knows a repeated message by it."""
    time: datetime
    """When it happened."""
    aggregate: str | None
    """The kind of thing the key names: "order"."""
    topic: str | None
    """Where it goes; None: the route decides."""
    headers: Mapping[str, str]
    correlation_id: str | None
    causation_id: str | None
    traceparent: str | None
    """W3C trace context; taken from the current OpenTelemetry span by `put` when absent."""
    idempotency_key: str | None
    """A name for the effect that the receiver may honour. Unique in the outbox."""
    not_before: datetime | None
    expires_at: datetime | None
    """Past this moment it is not sent any more."""

    def __init__(
        self,
        type: str,
        *,
        key: object = None,
        data: Any = UNSET,
        body: bytes | None = None,
        content_type: str | None = None,
        id: UUID | str | None = None,
        time: datetime | None = None,
        aggregate: str | None = None,
        topic: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        traceparent: str | None = None,
        idempotency_key: str | None = None,
        not_before: datetime | None = None,
        expires_at: datetime | None = None,
    ) -> None:
        if data is not UNSET:
            if body is not None:
                raise InvalidMessage(f"Message {type!r} has both data and body; give one of them.", type=type)
            body = codec.encode(data)
        # Past the frozen __setattr__, all at once: a call for each field would take as long as the rest of `put`.
        self.__dict__.update(
            type=type,
            key=None if key is None else str(key),
            body=body,
            content_type=content_type or codec.JSON,
            id=uuid7() if id is None else as_uuid(id),
            time=utcnow() if time is None else time,
            aggregate=aggregate,
            topic=topic,
            headers=dict(headers) if headers is not NO_HEADERS and isinstance(headers, Mapping) else headers,
            correlation_id=correlation_id,
            causation_id=causation_id,
            traceparent=traceparent,
            idempotency_key=idempotency_key,
            not_before=not_before,
            expires_at=expires_at,
        )

    def __hash__(self) -> int:
        return hash(self.id)

    @cached_property
    def id_text(self) -> str:
        """The id as it travels."""
        return str(self.id)

    @cached_property
    def time_text(self) -> str:
        """The time as it travels: RFC 3339, in UTC."""
        return rfc3339(self.time)

    @property
    def data(self) -> Any:
        """Return the body as a JSON value. Raises InvalidMessage when it is not one."""
        if self.body is None:
            raise InvalidMessage(f"Message {self.id} has no body, so it has no data.", id=str(self.id))
        return codec.decode(self.body)

    def replace(self, **changes: Any) -> Message:
        """Return this message with other values for these fields. `data` replaces the body."""
        if "data" in changes:
            changes.setdefault("body", None)
        return dataclasses.replace(self, **changes)


class KeyedMessage(Message):
    """A message that has a key. Annotate a handler's argument with it where the handler needs the key: a message without one
    is then dead as CORRUPT_PAYLOAD, and the handler is not called."""

    key: str

    @classmethod
    def of(cls, message: Message) -> KeyedMessage:
        """Return the same message, as one that has a key. Raises InvalidMessage when it has none.

        >>> KeyedMessage.of(Message("order.paid", key=7)).key
        '7'
        """
        if message.key is None:
            raise InvalidMessage(f"Message {message.id} has no key, and its handler needs one.", id=str(message.id))
        keyed = cls.__new__(cls)
        keyed.__dict__.update(message.__dict__)
        return keyed


class _FromText:
    """A field of a message that a store read as text, made when it is asked for: most messages are only passed on, and
    a UUID and a datetime for each of them would be a fifth of what that costs."""

    def __init__(self, name: str, text: str, read: Callable[[str], object]) -> None:
        self._name, self._text, self._read = name, text, read

    def __get__(self, message: Message | None, owner: type[Message]) -> object:
        if message is None:
            return self
        made = message.__dict__[self._name] = self._read(message.__dict__[self._text])
        return made


def id_of(text: str) -> UUID:
    """The id in this text. What a stranger wrote there that is none stands for one that is always the same."""
    try:
        return UUID(text)
    except ValueError:
        return uuid5(NAMESPACE_OID, text)


# Set behind the dataclass, which would take them for defaults. A message's own value comes before them.
setattr(Message, "id", _FromText("id", "id_text", id_of))  # noqa: B010 - the type checker knows it as a UUID
setattr(Message, "time", _FromText("time", "time_text", datetime.fromisoformat))  # noqa: B010


def cloudevent(message: Message, source: str) -> dict[str, str]:
    """The CloudEvents 1.0 attributes of a message, without `data`: each transport writes them in its own binding.

    Extension names follow the CloudEvents rule (lower-case letters and digits).
    """
    attributes = {
        "specversion": "1.0",
        "id": message.id_text,
        "source": source,
        "type": message.type,
        "time": message.time_text,
        "datacontenttype": message.content_type,
        "subject": message.key,
        "partitionkey": message.key,
        "aggregate": message.aggregate,
        "correlationid": message.correlation_id,
        "causationid": message.causation_id,
        "traceparent": message.traceparent,
        "idempotencykey": message.idempotency_key,
        "expirytime": None if message.expires_at is None else rfc3339(message.expires_at),
    }
    return {name: value for name, value in attributes.items() if value is not None}


def from_cloudevent(
    attributes: Mapping[str, str], body: bytes | None, headers: Mapping[str, str] = NO_HEADERS
) -> Message:
    """The message that these CloudEvents attributes and this body are; the inverse of `cloudevent`, but for the source.

    An id that is not a UUID stands for one that is made of it and of its source, always the same. A time that cannot be read is
    left to now. InvalidMessage without an id or a type, or with a name that no database can keep: then it is not an event.

    >>> from_cloudevent({"specversion": "1.0", "id": "7", "source": "shop", "type": "order.paid"}, b"1").type
    'order.paid'
    """
    if not attributes.get("id") or not attributes.get("type"):
        what = " and ".join(name for name in ("id", "type") if not attributes.get(name))
        raise InvalidMessage(f"It has no CloudEvents {what}: send it with Postroom, or with these attributes.")
    _check_storable(attributes, headers)
    return Message(
        attributes["type"],
        key=attributes.get("partitionkey") or attributes.get("subject"),
        body=body,
        content_type=attributes.get("datacontenttype"),
        id=_event_id(attributes["id"], attributes.get("source", "")),
        time=_moment(attributes.get("time")),
        aggregate=attributes.get("aggregate"),
        headers=headers,
        correlation_id=attributes.get("correlationid"),
        causation_id=attributes.get("causationid"),
        traceparent=attributes.get("traceparent"),
        idempotency_key=attributes.get("idempotencykey"),
        expires_at=_moment(attributes.get("expirytime")),
    )


def _check_storable(attributes: Mapping[str, str], headers: Mapping[str, str]) -> None:
    """Raise InvalidMessage, with the name of what it is about, unless every database can keep all of these."""
    # All of them in one look: this stands in the way of everything that is received.
    if is_storable("".join([*attributes.values(), *headers, *headers.values()])):
        return
    name = next((name for name, value in attributes.items() if not is_storable(value)), None)
    where = "headers" if name is None else f"CloudEvents {one_line(name)}"
    raise InvalidMessage(
        f"Its {where} hold NUL, or half of a surrogate pair: send text that is whole UTF-8, without NUL."
    )


def _event_id(text: str, source: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return uuid5(NAMESPACE_OID, f"{source}\n{text}")


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def rfc3339(moment: datetime) -> str:
    """The moment in UTC as CloudEvents and JSON readers expect it: 2026-11-15T09:30:00.250000Z."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def uuid7() -> UUID:
    """A UUID version 7 (RFC 9562): milliseconds first, so that new rows land side by side in an index; 74 random bits."""
    value = (unix_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10)) & _RANDOM | _VERSION_7
    # As UUID(int=value) does it, without the checks for the other ways to make one: it stands in every put.
    made = object.__new__(UUID)
    object.__setattr__(made, "int", value)
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made


def as_uuid(value: UUID | str) -> UUID:
    """The id as a UUID, or InvalidMessage."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidMessage(
            f"Message id {value!r} is not a UUID; give one like 018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11, or leave it out.",
            id=value,
        ) from None
