"""Where a message goes: by its type, the first route that fits. And the routes that settings describe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from postroom.config.values import RouteConfig, Settings
from postroom.contracts.transport import Publisher, TransportOptions
from postroom.errors import ConfigError
from postroom.retry import RetryPolicy
from postroom.transports import honoured, open_publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Messages whose type fits the pattern go to this publisher."""

    to: Publisher
    pattern: str | tuple[str, ...] = "*"
    """`order.*` fits order.paid; `*` fits all. With several patterns, one must fit."""
    topic: str | None = None
    """Where at the broker; None: the message's own topic, or the transport's default."""
    retry: RetryPolicy = field(default=RetryPolicy.WORKER)
    park: bool = True
    """Whether the key of a dead message waits for a person; else later messages pass it by."""
    name: str = "default"

    def fits(self, type_: str) -> bool:
        """Return whether it takes messages of this type."""
        patterns = (self.pattern,) if isinstance(self.pattern, str) else self.pattern
        return any(fnmatchcase(type_, pattern) for pattern in patterns)


class Routes:
    """The routes of a relay, in order. A type is looked up once."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = tuple(routes)
        self._known: dict[str, Route | None] = {}

    def __len__(self) -> int:
        return len(self._routes)

    def route(self, type_: str) -> Route | None:
        """The first route whose pattern fits this type."""
        try:
            return self._known[type_]
        except KeyError:
            fitting = (route for route in self._routes if route.fits(type_))
            return self._known.setdefault(type_, next(fitting, None))

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    @property
    def first(self) -> Route:
        """The rule of the first route stands for messages that no relay could judge."""
        return self._routes[0]


def routes_from(settings: Settings) -> list[Route]:
    """The routes that these settings describe, in order; with `to`, the one route for all. Nothing connects yet.

    Routes with the same URL and options share a publisher. ConfigError, in one sentence, names the route that is wrong."""
    if settings.to:
        publisher = open_publisher(settings.to, _for_all(settings))
        return [Route(to=publisher, retry=settings.relay.retry)]
    publishers: dict[tuple[str, TransportOptions], Publisher] = {}
    return [_route(config, settings, publishers) for config in settings.routes]


def _route(config: RouteConfig, settings: Settings, publishers: dict[tuple[str, TransportOptions], Publisher]) -> Route:
    try:
        wanted = config.to, _options(config, settings)
        publisher = publishers.get(wanted) or publishers.setdefault(wanted, open_publisher(*wanted))
    except ConfigError as exc:
        raise ConfigError(f"route {config.name!r}: {exc}", **exc.facts) from exc
    return Route(
        to=publisher,
        name=config.name,
        pattern=config.pattern,
        topic=config.topic,
        retry=config.retry(settings.relay.retry),
        park=config.after_death == "park",
    )


def _options(config: RouteConfig, settings: Settings) -> TransportOptions:
    """What the route asks for itself; and of what is set for all, what its transport can honour: a secret for webhooks
    must not forbid a function beside them."""
    default = _for_all(settings).only(honoured(config.to))
    return TransportOptions(
        source=config.source or default.source,
        secrets=config.secrets or default.secrets,
        public_only=default.public_only if config.public_only is None else config.public_only,
        concurrency=config.concurrency,
    )


def _for_all(settings: Settings) -> TransportOptions:
    return TransportOptions(source=settings.source, secrets=settings.secrets, public_only=settings.public_only)
