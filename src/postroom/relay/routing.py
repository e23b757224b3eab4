"""From settings to routes: publishers opened once, options asked only of those that can honour them."""

from __future__ import annotations

from postroom.config.values import RouteConfig, Settings
from postroom.contracts.transport import Publisher, TransportOptions
from postroom.errors import ConfigError
from postroom.relay.routes import Route
from postroom.transports import honoured, open_publisher


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
