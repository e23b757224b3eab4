"""A NATS URL says where and how; one that cannot be right is refused in a sentence, and no password is shown."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.errors import ConfigError
from postroom.transports import open_consumer, open_publisher
from postroom.transports.nats import NatsConsumer, NatsPublisher
from postroom.transports.nats.url import covers, group_name, is_filter, is_subject, read


def test_a_url_names_servers_stream_subject_and_who_we_are() -> None:
    found = read("nats://relay:p%40ss@a:4222,b,[::1]:7/ORDERS?subject=orders.paid&ack_wait=1m&sync=always")
    assert found.servers == ("nats://a:4222", "nats://b:4222", "nats://[::1]:7")
    assert (found.stream, found.subject, found.ack_wait) == ("ORDERS", "orders.paid", timedelta(minutes=1))
    assert (found.user, found.password, found.token) == ("relay", "p@ss", None)
    assert (found.is_synced, found.must_encrypt) == (True, False)
    assert found.shown == "nats://a:4222,b,[::1]:7/ORDERS"
    assert "p@ss" not in repr(found)


def test_what_stands_alone_before_the_at_is_a_token() -> None:
    found = read("tls://t0k%2Fen@broker/ORDERS")
    assert (found.user, found.password, found.token, found.must_encrypt) == (None, None, "t0k/en", True)
    assert "t0k" not in found.shown + repr(found)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("nats://", "names no NATS server and stream"),
        ("nats://broker:4222", "names no NATS server and stream"),
        ("nats:///ORDERS", "names no NATS server and stream"),
        ("nats://broker/OR.DERS", "names no NATS server and stream"),
        ("nats://broker/a/b", "names no NATS server and stream"),
        ("nats://broker/ORDERS#x", "names no NATS server and stream"),
        ("nats://broker:99999/ORDERS", "names no NATS server and stream"),
        ("nats://bro ker/ORDERS", "names no NATS server and stream"),
        ("nats://a,,b/ORDERS", "names no NATS server and stream"),
        ("nats://broker/ORDERS?subjet=x", "'subjet', which is not a setting"),
        ("nats://broker/ORDERS?subject=", "must have one value"),
        ("nats://broker/ORDERS?subject=a&subject=b", "must have one value"),
        ("nats://broker/ORDERS?subject=two words", "not a NATS subject"),
        ("nats://broker/ORDERS?subject=a..b", "not a NATS subject"),
        ("nats://broker/ORDERS?subject=a.>.b", "not a NATS subject"),
        ("nats://broker/ORDERS?ack_wait=soon", "is not a valid duration"),
        ("nats://broker/ORDERS?ack_wait=10ms", "1s or more"),
        ("nats://broker/ORDERS?sync=never", "sync=always"),
        ("nats://broker/ORDERS?tls_ca=/ca.pem", "begin it with tls://"),
        ("tls://broker/ORDERS?tls_key=/key.pem", "give both"),
    ],
)
def test_a_url_that_cannot_be_right_is_refused_in_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as raised:
        read(url.replace("://", "://user:s3cret@"))
    assert "s3cret" not in str(raised.value)


def test_files_that_are_not_there_are_told() -> None:
    with pytest.raises(ConfigError, match="TLS files"):
        read("tls://broker/ORDERS?tls_ca=/nowhere/ca.pem").tls()
    with pytest.raises(ConfigError, match="cannot be used"):
        read("tls://broker/ORDERS?tls_cert=/nowhere/cert.pem&tls_key=/nowhere/key.pem").tls()
    assert read("nats://broker/ORDERS").tls() is None
    assert read("tls://broker/ORDERS").tls() is not None


def test_a_wildcard_is_for_reading_only() -> None:
    NatsConsumer("nats://broker/ORDERS?subject=orders.*")
    with pytest.raises(ConfigError, match="wildcard"):
        NatsPublisher("nats://broker/ORDERS?subject=orders.*")


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_both_sides_are_opened_by_the_scheme(scheme: str) -> None:
    url = f"{scheme}://broker:4222/ORDERS?subject=orders.paid"
    assert open_publisher(url).capabilities.name == "nats"
    promises = open_consumer(url).capabilities
    assert (promises.ordered, promises.shares, promises.durable) == (True, False, True)


@pytest.mark.parametrize("group", ["", "a.b", "a b", "a*", "a>", "a/b", "a\\b", "a\n", "x" * 256])
def test_a_group_that_cannot_be_a_name_is_refused(group: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a NATS consumer's name"):
        group_name(group)


def test_a_prefetch_of_nothing_and_an_empty_source_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 or more"):
        NatsConsumer("nats://broker/ORDERS", prefetch=0)
    with pytest.raises(ConfigError, match="source is empty"):
        NatsPublisher("nats://broker/ORDERS", source="")


@pytest.mark.parametrize(
    ("pattern", "subject", "does"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*.c", "a.b.c", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*", "a.b", False),
        ("A", "a", False),
    ],
)
def test_a_pattern_covers_what_the_server_says_it_covers(pattern: str, subject: str, does: bool) -> None:
    assert covers([pattern], subject) is does
    assert covers([], subject) is False


def test_subjects() -> None:
    assert is_subject("orders.paid.é")
    assert not any(map(is_subject, ["", ".", "a.", "a b", "a\r\nb", "a.*", ">", "a" * 1_001, "\x00"]))
    assert all(map(is_filter, ["a", "*", ">", "a.*.b", "a.>"]))
    assert not any(map(is_filter, ["", "a.>.b", "a.b*", "a b"]))
