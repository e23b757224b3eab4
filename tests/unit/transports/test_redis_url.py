"""A Redis URL says server, database, stream and what a confirmation is worth; what cannot be read is told in a sentence."""

from __future__ import annotations

import pytest

from postroom.errors import ConfigError
from postroom.transports import TRANSPORTS, open_consumer, open_publisher
from postroom.transports.redis_streams.url import HOLD_DEFAULT, read


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://server", ("server", 6379, 0, None)),
        ("redis://server/", ("server", 6379, 0, None)),
        ("redis://server:7000/2", ("server", 7000, 2, None)),
        ("redis://server/orders", ("server", 6379, 0, "orders")),
        ("redis://server/3/shop:orders", ("server", 6379, 3, "shop:orders")),
        ("redis://server/0/7", ("server", 6379, 0, "7")),
        ("redis://server/a%2Fb%3F", ("server", 6379, 0, "a/b?")),
        ("valkey://[::1]:6380/orders", ("::1", 6380, 0, "orders")),
    ],
)
def test_a_url_names_server_database_and_stream(url: str, where: tuple[str, int, int, str | None]) -> None:
    settings = read(url)
    assert (settings.host, settings.port, settings.database, settings.stream) == where


def test_by_itself_a_url_asks_for_no_more_than_the_servers_word_and_trims_nothing() -> None:
    settings = read("redis://server/orders")
    assert (settings.wait, settings.waitaof, settings.maxlen, settings.create) == (0, 0, None, True)
    assert (settings.hold, settings.name, settings.delete, settings.tls) == (HOLD_DEFAULT, None, False, None)


def test_every_setting_is_read() -> None:
    settings = read("redis://server/orders?wait=2&waitaof=1&maxlen=~1000&create=off&hold=2.5&name=pod-1&delete=on")
    assert (settings.wait, settings.waitaof, settings.maxlen, settings.roughly) == (2, 1, 1000, True)
    assert (settings.create, settings.hold, settings.name, settings.delete) == (False, 2.5, "pod-1", True)
    assert read("redis://server/orders?maxlen=7").roughly is False


def test_users_and_passwords_are_percent_decoded_and_a_plus_stays_a_plus() -> None:
    settings = read("redis://re%40lay:p+%2Fss%3A@server/orders")
    assert (settings.username, settings.password) == ("re@lay", "p+/ss:")
    assert read("redis://:secret@server").connection["password"] == "secret"
    assert "password" not in read("redis://server").connection


def test_tls_has_a_scheme_and_files() -> None:
    settings = read("rediss://server/orders?ssl_ca_certs=/etc/ca.pem&ssl_certfile=/etc/us.pem&ssl_keyfile=/etc/us.key")
    assert settings.connection["ssl_ca_certs"] == "/etc/ca.pem"
    assert read("valkeys://server").tls == {}


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis:///orders", "names no Redis server"),
        ("redis://server:99999/orders", "names no Redis server"),
        ("redis://one:6379,two:6379/orders", "names no Redis server"),
        ("redis://server/1/orders/eu", "write a / in a stream's name as %2F"),
        ("redis://relay:pa/ss@server/orders", "write / as %2F"),
        ("redis://relay:pa#ss@server/orders", "# as %23"),
        ("redis://server/orders?acks=all", "has the setting 'acks', which is not one of wait, waitaof"),
        ("redis://server/orders?wait", "has no value; write wait="),
        ("redis://server/orders?wait=many", "wait=many is not a number from 0 to 100"),
        ("redis://server/orders?waitaof=2", "waitaof=2 is not a number from 0 to 1"),
        ("redis://server/orders?maxlen=0", "maxlen=0 is not a length; write maxlen=1000, or maxlen=~1000"),
        ("redis://server/orders?create=no", "create=no is neither on nor off"),
        ("redis://server/orders?hold=0.2", "hold=0.2 is not a number of seconds, 1 or more"),
        ("redis://server/orders?wait=1&wait=2", "twice in the Redis URL; keep one"),
        ("redis://server/orders?db=2", "the database must be written before the stream"),
        ("redis://server/orders?ssl_ca_certs=/etc/ca.pem", "start it with rediss://"),
        ("rediss://server/orders?ssl_cert_reqs=none", "the server's certificate is always checked"),
        ("redis://server/orders?protocol=3", "RESP2"),
    ],
)
def test_a_url_that_cannot_be_read_says_why(url: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(url)
    assert why in str(caught.value)


@pytest.mark.parametrize("url", ["redis://relay:s3cret@server:port/orders", "redis://relay:s3/cret@server?wait=x"])
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(url)
    assert "cret" not in str(caught.value)


def test_nothing_that_is_shown_has_a_password_in_it() -> None:
    settings = read("redis://relay:s3cret@server/orders?wait=1")
    assert "s3cret" not in settings.shown + repr(settings)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_both_sides_are_opened_by_the_url(scheme: str) -> None:
    assert open_publisher(TRANSPORTS[scheme].example).capabilities.name == "redis"
    assert open_consumer(TRANSPORTS[scheme].example).capabilities.name == "redis"
