"""From `[[routes]]` in a file to routes in a relay: each setting arrives, and what is wrong is one sentence."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.config.load import load_settings
from postroom.config.values import RelayConfig, RouteConfig, Settings
from postroom.contracts.transport import TransportOptions
from postroom.errors import ConfigError
from postroom.relay import Route, relay_from, routes_from
from postroom.relay.routes import Routes
from postroom.retry import RetryPolicy
from postroom.transports import open_publisher
from postroom.transports.http import HttpPublisher
from postroom.transports.memory import MemoryPublisher

HOOKS = "https://shop.example/hooks"


def handler(message: object) -> None:
    """What local:// calls here."""


LOCAL = f"local://{__name__}:handler"


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "postroom.toml"


def read(toml: Path, text: str, **env: str) -> Settings:
    toml.write_text(text)
    return load_settings(env=env, toml=toml)


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def refused(toml: Path, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        read(toml, text)
    sentence = str(error.value)
    assert "\n" not in sentence
    return sentence


def test_every_key_of_a_route_arrives(toml: Path) -> None:
    private(toml.parent / "hooks.secrets", "whsec_bmV3\n\nwhsec_b2xk\n")
    settings = read(
        toml,
        """
        store = "sqlite:///shop.db"
        [relay]
        no_route = "wait"
        [[routes]]
        name = "orders"
        pattern = ["order.*", "basket.*"]
        to = "https://shop.example/hooks"
        topic = "orders"
        after_death = "skip"
        max_attempts = 7
        backoff = "exp:2s..10m"
        source = "https://billing.example"
        secrets_file = "hooks.secrets"
        public_only = true
        concurrency = 3
        [[routes]]
        to = "memory://"
        """,
    )
    assert settings.relay.no_route == "wait"
    assert settings.routes == (
        RouteConfig(
            name="orders",
            pattern=("order.*", "basket.*"),
            to=HOOKS,
            topic="orders",
            after_death="skip",
            max_attempts=7,
            backoff=RetryPolicy.TRANSFERS.backoff,
            source="https://billing.example",
            secrets=("whsec_bmV3", "whsec_b2xk"),
            public_only=True,
            concurrency=3,
        ),
        RouteConfig(name="route-2", to="memory://"),
    )
    orders, rest = routes_from(settings)
    assert orders == Route(
        to=orders.to,
        name="orders",
        pattern=("order.*", "basket.*"),
        topic="orders",
        retry=RetryPolicy(RetryPolicy.TRANSFERS.backoff, 7),
        park=False,
    )
    assert isinstance(orders.to, HttpPublisher)
    assert (orders.to._source, orders.to._concurrency, orders.to._public_only) == ("https://billing.example", 3, True)
    assert orders.to._keys == [b"new", b"old"]
    assert isinstance(rest.to, MemoryPublisher)
    assert (rest.name, rest.pattern, rest.retry, rest.park) == ("route-2", ("*",), RetryPolicy.WORKER, True)


def test_the_first_route_that_fits_takes_a_type_by_any_of_its_patterns() -> None:
    first = Route(to=open_publisher("memory://"), pattern=("order.*", "basket.left"), name="first")
    rest = Route(to=first.to, name="rest")
    routes = Routes([first, rest])
    named = {
        type_: route.name for type_ in ("order.paid", "basket.left", "basket.new") if (route := routes.route(type_))
    }
    assert named == {"order.paid": "first", "basket.left": "first", "basket.new": "rest"}


def test_a_route_without_its_own_retry_has_the_relays(toml: Path) -> None:
    text = '[relay]\nmax_attempts = 9\nbackoff = "1s"\n[[routes]]\nto = "memory://"\npattern = "{}"\n'
    (plain,) = routes_from(read(toml, text.format("a")))
    assert plain.retry == RetryPolicy.parse("1s", max_attempts=9)
    (capped,) = routes_from(read(toml, text.format("a") + "max_attempts = 2"))
    assert capped.retry == RetryPolicy.parse("1s", max_attempts=2)
    (slower,) = routes_from(read(toml, text.format("a") + 'backoff = "2s"'))
    assert slower.retry == RetryPolicy.parse("2s", max_attempts=9)


def test_a_preset_brings_its_cap_unless_one_is_given(toml: Path) -> None:
    text = '[[routes]]\nto = "memory://"\nbackoff = "transfers"\n'
    assert routes_from(read(toml, text))[0].retry == RetryPolicy.TRANSFERS
    assert routes_from(read(toml, text + "max_attempts = 2"))[0].retry.max_attempts == 2
    assert load_settings(env={"POSTROOM_BACKOFF": "transfers"}).relay.retry == RetryPolicy.TRANSFERS
    assert load_settings(env={}, backoff="transfers").relay.retry == RetryPolicy.TRANSFERS
    assert load_settings(env={"POSTROOM_MAX_ATTEMPTS": "3"}, backoff="transfers").relay.retry.max_attempts == 3
    assert load_settings(env={}, backoff="worker").relay == RelayConfig()
    assert RetryPolicy.parse("transfers") == RetryPolicy.TRANSFERS


def test_the_same_url_and_options_are_one_publisher(toml: Path) -> None:
    text = f"""
        [[routes]]
        pattern = "a"
        to = "{HOOKS}"
        [[routes]]
        pattern = "b"
        to = "{HOOKS}"
        topic = "b"
        [[routes]]
        pattern = "c"
        to = "{HOOKS}"
        source = "c"
        """
    a, b, c = routes_from(read(toml, text))
    assert a.to is b.to
    assert a.to is not c.to


def test_what_is_set_for_all_reaches_only_those_that_can_honour_it(toml: Path) -> None:
    file = private(toml.parent / "s", "whsec_bmV3")
    env = {"POSTROOM_SOURCE": "shop", "POSTROOM_SECRETS_FILE": str(file), "POSTROOM_PUBLIC_ONLY": "yes"}
    text = f'[[routes]]\npattern = "a"\nto = "{HOOKS}"\n[[routes]]\nto = "{LOCAL}"\n'
    hook, _ = routes_from(read(toml, text, **env))
    assert isinstance(hook.to, HttpPublisher)
    assert (hook.to._source, hook.to._keys, hook.to._public_only) == ("shop", [b"new"], True)
    own, _ = routes_from(read(toml, text.replace(f'"{HOOKS}"', f'"{HOOKS}"\npublic_only = false', 1), **env))
    assert isinstance(own.to, HttpPublisher)
    assert not own.to._public_only


def test_with_to_there_is_one_route_for_all_with_what_is_set_for_all(toml: Path) -> None:
    settings = read(toml, 'source = "shop"\n[[routes]]\nto = "memory://"', POSTROOM_TO=HOOKS)
    (only,) = routes_from(settings)
    assert isinstance(only.to, HttpPublisher)
    assert (only.pattern, only.to._source) == ("*", "shop")


@pytest.mark.parametrize(
    ("url", "options", "sentence"),
    [
        (
            LOCAL,
            TransportOptions(public_only=True),
            "cannot honour public_only: leave it out, or send to http://, http",
        ),
        ("memory://", TransportOptions(concurrency=2), "cannot honour concurrency: leave it out, or send to http://,"),
        (LOCAL, TransportOptions(source="x", secrets=("y",)), "cannot honour secrets and source: leave"),
    ],
)
def test_an_option_that_a_transport_cannot_honour_is_refused(
    url: str, options: TransportOptions, sentence: str
) -> None:
    with pytest.raises(ConfigError) as error:
        open_publisher(url, options)
    assert sentence in str(error.value)


def test_a_route_that_asks_for_what_its_transport_cannot_is_refused_by_name(toml: Path) -> None:
    settings = read(toml, f'[[routes]]\nname = "mail"\nto = "{LOCAL}"\npublic_only = true')
    with pytest.raises(ConfigError, match=r"^route 'mail': local://.* cannot honour public_only"):
        routes_from(settings)
    with pytest.raises(ConfigError, match="cannot honour public_only"):
        routes_from(Settings(to=LOCAL, public_only=True))


@pytest.mark.parametrize("url", ["gopher://x", "shop.example"])
def test_a_route_to_nowhere_that_is_known_is_refused_by_name(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^route 'mail': .*(knows no transport|is not a URL)"):
        routes_from(Settings(routes=(RouteConfig(name="mail", to=url),)))


ONE = '[[routes]]\nname = "a"\nto = "memory://"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[[routes]]\nname = "a"', "route 'a': it leads nowhere; write to = "),
        ("[[routes]]\npattern = 'a.*'", "route 'route-1': it leads nowhere"),
        (ONE + 'patern = "b"', "route 'a': patern is unknown; did you mean pattern?"),
        (ONE + "pattern = 5", "route 'a': pattern must be a pattern such as order.*, or a list of them, not a value"),
        (ONE + "pattern = [5]", "route 'a': pattern: [5] is not a pattern such as order.*"),
        (ONE + "pattern = []", "route 'a': pattern is empty; write one like order.*"),
        (ONE + 'pattern = ["a", ""]', "route 'a': pattern is empty"),
        (ONE + 'after_death = "cry"', "route 'a': after_death is 'cry'; it must be park or skip."),
        (ONE + "max_attempts = 0", "route 'a': max_attempts is 0; it must be a whole number from 1 to"),
        (ONE + 'max_attempts = "5"', "route 'a': max_attempts must be a whole number such as 32, not a value of type str"),
        (ONE + 'backoff = "soon"', "route 'a': backoff: backoff 'soon' is not understood"),
        (ONE + "public_only = 1", "route 'a': public_only must be true or false"),
        (ONE + "concurrency = 0", "route 'a': concurrency is 0; it must be a whole number from 1 to 1,000."),
        (ONE + 'secrets_file = "nowhere"', "nowhere cannot be read: No such file or directory."),
        (ONE + 'to_file = "x"', "route 'a': to and to_file are both given; keep one of them."),
        ("[[routes]]\nto_file = 5", "to_file must be the name of a file, not a value of type int."),
        ("[[routes]]\nto = 5", "route 'route-1': to must be text, not a value of type int."),
        ('[[routes]]\nname = ""\nto = "memory://"', "a route is called ''; give it a name that can be printed."),
        ("[routes]\na = 1", "routes must be tables, each written [[routes]]."),
        ("routes = 5", "routes must be tables, each written [[routes]]."),
        ("[[route]]\na = 1", "route is unknown; did you mean routes?"),
        ('[relay]\nno_route = "drop"', "no_route is 'drop'; it must be dead or wait."),
        (ONE.replace("memory", "x") + ONE.replace('"a"', '"b"'), "route 'b' can never be reached: 'a' before it takes all"),
        (ONE + 'pattern = "a.*"\n' + ONE, "two routes are called 'a'; give each its own name."),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_one_sentence(toml: Path, text: str, sentence: str) -> None:
    assert sentence in refused(toml, text)


@pytest.mark.parametrize(
    ("earlier", "later", "reached"),
    [
        ("order.*", "order.paid.*", False),
        ("order.*", "order.paid", False),
        ("order.*", "*", True),
        ("order.?", "order.*", True),
        ("order.[!x]*", "order.*", True),
        ("order.*", "order.*", False),
        ("*a*", "[ab]x", True),
        ("*.paid", "order.*", True),
    ],
)
def test_a_route_is_unreachable_only_when_that_is_sure(earlier: str, later: str, reached: bool) -> None:
    routes = (RouteConfig(name="a", pattern=(earlier,), to="x"), RouteConfig(name="b", pattern=(later,), to="y"))
    if reached:
        assert Settings(routes=routes).routes == routes
    else:
        with pytest.raises(ConfigError, match="can never be reached"):
            Settings(routes=routes)
    half = (routes[0], replace(routes[1], pattern=(later, "else")))
    assert Settings(routes=half).routes == half


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (Settings(), "A relay needs a store: set POSTROOM_STORE"),
        (Settings(to="null://"), "A relay needs a store: set POSTROOM_STORE"),
        (Settings(store="sqlite:///shop.db"), "A relay needs somewhere to go: set POSTROOM_TO"),
    ],
)
def test_a_relay_without_a_store_or_a_way_out_is_not_opened(settings: Settings, sentence: str) -> None:
    async def open_it() -> None:
        async with relay_from(settings):
            pytest.fail("it was opened")

    with pytest.raises(ConfigError, match=sentence):
        asyncio.run(open_it())


def test_the_url_of_a_route_may_come_from_a_file(toml: Path) -> None:
    private(toml.parent / "url", "https://app:s3cr3t@shop.example\n")
    assert read(toml, '[[routes]]\nto_file = "url"').routes[0].to == "https://app:s3cr3t@shop.example"


@pytest.mark.parametrize("key", ["to_file", "secrets_file"])
def test_a_file_of_secrets_that_everybody_can_read_is_refused(toml: Path, key: str) -> None:
    private(toml.parent / "open", "whsec_s3cr3t").chmod(0o644)
    to = "" if key == "to_file" else 'to = "memory://"\n'
    sentence = refused(toml, f'[[routes]]\n{to}{key} = "open"')
    assert "can be read by everybody; run: chmod o-r" in sentence
    assert "s3cr3t" not in sentence


def test_nothing_that_can_be_shown_shows_a_url_or_a_secret() -> None:
    route = RouteConfig(to="https://app:s3cr3t@shop.example", secrets=("s3cr3t",))
    options: Any = TransportOptions(secrets=("s3cr3t",))
    for shown in (route, Settings(routes=(route,), secrets=("s3cr3t",)), options):
        assert "s3cr3t" not in repr(shown)


def test_a_route_says_what_it_fits_and_how_it_retries() -> None:
    route = RouteConfig(to="memory://", pattern=("a.*", "b"), max_attempts=2)
    assert [route.fits(type_) for type_ in ("a.x", "b", "b.x")] == [True, True, False]
    assert route.retry(RetryPolicy.WORKER) == RetryPolicy(RetryPolicy.WORKER.backoff, 2)
    assert RetryPolicy.WORKER.backoff.delay(1) == timedelta(seconds=5)
