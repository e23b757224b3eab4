"""A secret in a URL, wherever it stands, shows in no repr, no error, no route and no output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from postroom import open_publisher, open_store
from postroom.config.values import RouteConfig, Settings
from postroom.contracts.transport import TransportOptions
from postroom.errors import PostroomError
from postroom.relay import routes_from
from postroom.transports import open_consumer
from postroom.urls import redact, secrets_in

PLANTED = "Zq7XZq7XZq7X"
PUBLISHERS = [
    f"https://hooks.example/services/T0/{PLANTED}",
    f"https://hooks.example/{PLANTED}/send?x=1",
    f"https://hooks.example/hooks?key={PLANTED}",
    f"https://hooks.example/hooks?{PLANTED}",
    f"https://app:{PLANTED}@hooks.example/hooks",
    f"https://{PLANTED}@hooks.example/hooks",
    f"kafka://broker/orders?security.protocol=SASL_SSL&sasl.mechanisms=PLAIN&sasl.username=a&sasl.password={PLANTED}",
    f"kafka://broker/orders?ssl.key.password={PLANTED}",
    f"amqp://app:{PLANTED}@broker/?exchange=orders",
    f"amqp://broker/?exchange=orders&management=http://app:{PLANTED}@broker:15672",
    f"nats://app:{PLANTED}@broker:4222/ORDERS?subject=orders.paid",
    f"nats://{PLANTED}@broker:4222/ORDERS?subject=orders.paid",
    f"redis://app:{PLANTED}@server:6379/orders",
    f"redis://:{PLANTED}@server:6379/orders",
]
CONSUMERS = [url for url in PUBLISHERS if not url.startswith("https")]
STORES = [
    f"postgresql://app:{PLANTED}@db/shop",
    f"postgresql://app@db/shop?sslpassword={PLANTED}",
    f"host=db user=app password={PLANTED} dbname=shop",
    f"mysql://app:{PLANTED}@db/shop",
    f"mariadb://app:{PLANTED}@db/shop",
    f"mongodb://app:{PLANTED}@db/shop?replicaSet=rs0",
    f"mongodb://db/shop?replicaSet=rs0&authMechanismProperties=AWS_SESSION_TOKEN:{PLANTED}",
]
BROKEN = ["#broken", "&nonsense=1&nonsense=2", "?nonsense", "/a/b/c", "\x00"]


def parts_of(thing: object, depth: int = 4) -> Iterator[object]:
    """The thing, and what it holds of ours: where a debugger or a log would look."""
    yield thing
    if depth and type(thing).__module__.startswith("postroom"):
        held = (
            [getattr(thing, each.name) for each in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else []
        )
        for part in [*held, *getattr(thing, "__dict__", {}).values()]:
            if type(part).__module__.startswith("postroom"):
                yield from parts_of(part, depth - 1)


def assert_hidden(thing: object) -> None:
    for part in parts_of(thing):
        assert PLANTED not in repr(part), type(part)
        assert PLANTED not in str(part), type(part)


@pytest.mark.parametrize("url", PUBLISHERS)
@pytest.mark.requirement("B10")
def test_no_publisher_and_no_route_shows_it(url: str) -> None:
    assert_hidden(open_publisher(url))
    settings = Settings(to=url)
    assert_hidden(settings)
    assert_hidden(RouteConfig(to=url))
    for route in routes_from(settings):
        assert_hidden(route)


@pytest.mark.parametrize("url", CONSUMERS)
def test_no_consumer_shows_it(url: str) -> None:
    assert_hidden(open_consumer(url))


@pytest.mark.parametrize("url", STORES)
@pytest.mark.requirement("B10")
def test_no_store_shows_it(url: str) -> None:
    if "://" in url:
        assert_hidden(open_store(url))
    assert_hidden(redact(url))


def error_of(opened: Callable[[str], Any], url: str) -> PostroomError | None:
    try:
        opened(url)
    except PostroomError as error:
        return error
    return None


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize(
    ("opened", "url"),
    [*((open_publisher, url) for url in PUBLISHERS), *((open_store, url) for url in STORES)],
)
@pytest.mark.requirement("B10")
def test_no_error_about_a_url_shows_it_nor_does_what_caused_the_error(
    opened: Callable[[str], Any], url: str, broken: str
) -> None:
    """A traceback has all the errors of the chain in it, and goes to a log."""
    cause: BaseException | None = error_of(opened, url + broken)
    while cause is not None:
        assert PLANTED not in str(cause), type(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


@pytest.mark.parametrize("url", [*PUBLISHERS, *STORES])
def test_what_is_hidden_is_known_so_that_it_can_be_looked_for(url: str) -> None:
    assert PLANTED in "".join(secrets_in(url))


def test_what_webhooks_are_signed_with_shows_in_no_repr() -> None:
    assert_hidden(TransportOptions(secrets=(PLANTED,)))
