"""What an `amqp://` URL says: the server as every client of RabbitMQ reads it, and behind the `?` where messages go."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from postroom.errors import ConfigError
from postroom.urls import redact, split_scheme

EXAMPLE = "amqp://user:password@broker:5672/vhost?exchange=orders"
HEARTBEAT_DEFAULT = 20
"""Seconds. A receiver whose machine vanished holds its messages for twice as long."""
NAME_MAX = 255
"""Bytes in the name of anything in AMQP, and in a routing key."""

_TLS = ("cafile", "capath", "certfile", "keyfile")
_KNOWN = ("exchange", "queue", "routing_key", "binding", "heartbeat", "management", *_TLS)


@dataclass(frozen=True, slots=True)
class AmqpUrl:
    """A URL, read and found sound."""

    shown: str
    """The whole of it, for people."""
    server: str = field(repr=False)
    """The URL that aiormq connects to: the server, with the password."""
    exchange: str = ""
    """Empty: the default exchange, where a routing key is the name of a queue."""
    queue: str | None = None
    routing_key: str | None = None
    """Where a message goes that names no topic; with a queue, the queue."""
    bindings: tuple[str, ...] = ()
    """What a receiver's queue is bound by."""
    vhost: str = "/"
    management: str | None = field(default=None, repr=False)
    """Where the management answers over HTTP, for the doctor; with the user and password, which may be those of the server."""


def read(url: str) -> AmqpUrl:
    """The address in a URL, or ConfigError."""
    scheme, _ = split_scheme(url)
    parts = _parts(url)
    said = _parameters(parts.query, url)
    exchange, queue = _one(said, "exchange", url), _one(said, "queue", url)
    routing_key = _one(said, "routing_key", url)
    if exchange and queue:
        raise ConfigError(
            f"{redact(url)} names an exchange and a queue; messages go to the one or the other: name one."
        )
    if routing_key is not None and not exchange:
        raise ConfigError(
            f"{redact(url)} has a routing_key but no exchange; name the exchange, or say queue=… instead."
        )
    for name in ("exchange", "queue", "routing_key", "binding"):
        if any(len(value.encode()) > NAME_MAX for value in said.get(name, ())):
            raise ConfigError(
                f"The {name} in {redact(url)} is longer than {NAME_MAX} bytes; RabbitMQ does not allow such a name."
            )
    if scheme != "amqps" and (vain := [name for name in _TLS if name in said]):
        raise ConfigError(f"{redact(url)} has {vain[0]}, but no TLS: say amqps:// instead of amqp://.")
    return AmqpUrl(
        redact(url),
        _server(parts, said, url),
        exchange or "",
        queue,
        routing_key or queue,
        tuple(said.get("binding", ())),
        unquote(parts.path[1:]) or "/",
        _management(parts, _one(said, "management", url), url),
    )


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_sound = bool(parts.hostname) and parts.port != 0 and not parts.fragment and "/" not in parts.path[1:]
    except ValueError:
        is_sound = False
    else:
        if is_sound:
            return parts
    raise ConfigError(
        f"{redact(url)} names no RabbitMQ; give it like {EXAMPLE}, with %2F and the like for / : @ % # ? in a name or password."
    )


def _parameters(query: str, url: str) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for part in filter(None, query.split("&")):
        # Not parse_qsl: it reads + as a space.
        name, equals, value = part.partition("=")
        name = unquote(name)
        if name == "no_verify_ssl":
            raise ConfigError(
                "no_verify_ssl would give the password to any server that answers; name the authority: cafile=…."
            )
        if name not in _KNOWN:
            raise ConfigError(f"An AMQP URL has no parameter {name!r}; there are {', '.join(_KNOWN)}.", parameter=name)
        if not equals:
            raise ConfigError(f"The parameter {name!r} in {redact(url)} has no value; write {name}=….")
        said.setdefault(name, []).append(unquote(value))
    return said


def _one(said: dict[str, list[str]], name: str, url: str) -> str | None:
    values = said.get(name, [])
    if len(values) > 1:
        raise ConfigError(f"The parameter {name} is given twice in {redact(url)}; keep one of them.", parameter=name)
    return values[0] if values else None


def _server(parts: SplitResult, said: dict[str, list[str]], url: str) -> str:
    heartbeat = _one(said, "heartbeat", url) or str(HEARTBEAT_DEFAULT)
    if not heartbeat.isdecimal() or not 1 <= int(heartbeat) <= 3600:
        raise ConfigError(
            f"heartbeat={heartbeat[:20]} is not a number of seconds from 1 to 3600; leave it out: 20 is good."
        )
    vhost = quote(unquote(parts.path[1:]), safe="")
    tls = {name: value for name in _TLS if (value := _one(said, name, url)) is not None}
    # The name is what RabbitMQ's own list of connections shows.
    query = urlencode({"heartbeat": heartbeat, "name": "postroom", **tls}, quote_via=quote)
    return f"{parts.scheme.lower()}://{parts.netloc}/{vhost}?{query}"


def _management(parts: SplitResult, said: str | None, url: str) -> str | None:
    if said is None:
        return None
    if not said.startswith(("http://", "https://")):
        raise ConfigError(
            f"management in {redact(url)} is not an HTTP URL; give it like management=http://broker:15672."
        )
    scheme, rest = split_scheme(said)
    user, at, _ = parts.netloc.rpartition("@")
    return said if "@" in rest or not at else f"{scheme}://{user}@{rest}"
