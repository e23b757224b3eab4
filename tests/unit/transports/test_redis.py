"""Deliveries to a real server: refusals, replicas, disks, time-outs, passwords; and whatever happens, no key out of order."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.servers.plugin import own_redis
from tests.servers.ports import free_port
from tests.servers.redis_streams import client_of, entries_of, messages_in
from tests.servers.valkeyd import LARGEST, Valkey

from postroom.contracts.transport import (
    KEY_STOPPED,
    NOT_STARTED,
    Envelope,
    Failed,
    Outcome,
    Rejected,
    Sent,
    Unavailable,
)
from postroom.errors import ConfigError, TransportRefused, TransportUnavailable
from postroom.message import Message
from postroom.testing.waiting import until_async
from postroom.transports.redis_streams import RedisPublisher
from postroom.transports.redis_streams.connection import RedisConnection
from postroom.transports.redis_streams.server import Facts, check
from postroom.transports.redis_streams.url import read

LONG = timedelta(seconds=20)
SHORT = timedelta(seconds=1)


@pytest.fixture
def own() -> Iterator[Callable[..., Valkey]]:
    """Servers of this test's own, with settings."""
    with ExitStack() as ending:
        yield lambda **settings: own_redis(ending, **settings)


@asynccontextmanager
async def publishing(url: str, *, opened: bool = True) -> AsyncIterator[RedisPublisher]:
    publisher = RedisPublisher(url)
    try:
        await publisher.open()
    except (TransportRefused, TransportUnavailable):
        assert not opened
    try:
        yield publisher
    finally:
        await publisher.close()


def message(data: object, key: str | None = None, **more: Any) -> Message:
    return Message("order.paid", key=key, data=data, **more)


async def publish(publisher: RedisPublisher, *messages: Message, timeout: timedelta = LONG) -> Sequence[Outcome]:
    return await publisher.publish([Envelope(each) for each in messages], timeout=timeout)


async def do(url: str, *words: str | int) -> Any:
    """Say this to the server."""

    def say() -> Any:
        with client_of(url) as client:
            return client.execute_command(*words)  # type: ignore[no-untyped-call]

    return await asyncio.to_thread(say)


def data_in(url: str, stream: str) -> list[object]:
    return [each.data for each in messages_in(url, stream)]


def kinds(outcomes: Sequence[Outcome]) -> list[object]:
    return [type(outcome) if isinstance(outcome, Sent) else getattr(outcome, "code", None) for outcome in outcomes]


# ── an outcome for each message, and no key out of order ───────────────────────────────────────────────────────────────


async def test_what_is_no_stream_refuses_its_messages_alone_and_stops_their_keys(
    redis_url: str, redis_stream: str
) -> None:
    await do(redis_url, "SET", f"{redis_stream}:text", "no stream")
    async with publishing(f"{redis_url}/{redis_stream}") as publisher:
        outcomes = await publish(
            publisher,
            message(0, "a"),
            message(1, "a", topic=f"{redis_stream}:text"),
            message(2, "a"),
            message(3, "b"),
            message(4, topic=f"{redis_stream}:text"),
            message(5),
        )
    assert kinds(outcomes) == [Sent, "WRONG_TYPE", "KEY_STOPPED", Sent, "WRONG_TYPE", Sent]
    assert isinstance(outcomes[1], Rejected)
    assert data_in(redis_url, redis_stream) == [0, 3, 5]


async def test_a_key_that_failed_stays_stopped_in_the_chunks_behind(redis_url: str, redis_stream: str) -> None:
    await do(redis_url, "SET", f"{redis_stream}:text", "no stream")
    others = [message(number, f"k{number}") for number in range(2_500)]
    async with publishing(f"{redis_url}/{redis_stream}") as publisher:
        outcomes = await publish(
            publisher, message(-1, "a", topic=f"{redis_stream}:text"), *others, message(-2, "a"), message(-3)
        )
    assert kinds(outcomes) == ["WRONG_TYPE", *[Sent] * 2_500, "KEY_STOPPED", Sent]
    assert data_in(redis_url, redis_stream) == [*range(2_500), -3]


async def test_many_of_one_key_arrive_in_order_whatever_chunks_they_are_in(redis_url: str, redis_stream: str) -> None:
    large = [
        message("x" * 300_000, "a"),
        *(message(number, "a") for number in range(2_500)),
        message("y" * 900_000, "a"),
    ]
    async with publishing(f"{redis_url}/{redis_stream}") as publisher:
        outcomes = await publish(publisher, *large)
    assert set(map(type, outcomes)) == {Sent}
    assert data_in(redis_url, redis_stream) == [each.data for each in large]


async def test_a_server_whose_memory_is_full_is_unavailable_for_each_message(own: Callable[..., Valkey]) -> None:
    server = own()
    async with publishing(f"{server.url}/orders") as publisher:
        await do(server.url, "CONFIG", "SET", "maxmemory", 1)
        outcomes = await publish(publisher, message(0, "a"), message(1, "a"), message(2, "b"), message(3))
        assert kinds(outcomes) == ["OUT_OF_MEMORY", "KEY_STOPPED", "OUT_OF_MEMORY", "OUT_OF_MEMORY"]
        assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
        await do(server.url, "CONFIG", "SET", "maxmemory", 0)
        assert kinds(await publish(publisher, message(4, "a"))) == [Sent]
    assert data_in(server.url, "orders") == [4]


async def test_a_server_that_became_a_replica_is_unavailable(own: Callable[..., Valkey]) -> None:
    server = own()
    async with publishing(f"{server.url}/orders") as publisher:
        await do(server.url, "REPLICAOF", "127.0.0.1", free_port())
        outcomes = await publish(publisher, message(0, "a"), message(1))
        assert kinds(outcomes) == ["READONLY", "READONLY"]
        await do(server.url, "REPLICAOF", "NO", "ONE")
        assert kinds(await publish(publisher, message(2, "a"))) == [Sent]


async def test_a_server_that_cannot_write_to_its_disk_is_unavailable(own: Callable[..., Valkey]) -> None:
    server = own(appendonly="no", save="3600 1")
    async with publishing(f"{server.url}/orders") as publisher:
        await publish(publisher, message(0))
        server.home.chmod(0o500)
        await do(server.url, "BGSAVE")

        def has_failed() -> bool:
            with client_of(server.url) as client:
                return bool(client.info("persistence")["rdb_last_bgsave_status"] == "err")

        await until_async(has_failed)
        outcomes = await publish(publisher, message(1, "a"), message(2))
        server.home.chmod(0o700)
    assert kinds(outcomes) == ["MISCONF", "MISCONF"]
    assert data_in(server.url, "orders") == [0]


async def test_a_server_short_of_replicas_by_its_own_rule_is_unavailable(own: Callable[..., Valkey]) -> None:
    server = own(min_replicas_to_write="1")
    async with publishing(f"{server.url}/orders") as publisher:
        assert kinds(await publish(publisher, message(0))) == ["NOREPLICAS"]


async def test_a_forbidden_stream_refuses_its_messages_alone(own: Callable[..., Valkey]) -> None:
    server = own()
    user = ["+@all", "-config", "~orders*", "resetchannels"]
    await do(server.url, "ACL", "SETUSER", "relay", "on", ">pässw/rd", *user)
    url = server.url.replace("redis://", "redis://relay:p%C3%A4ssw%2Frd@")
    async with publishing(f"{url}/orders") as publisher:
        outcomes = await publish(
            publisher,
            message(0, "a"),
            message(1, "b", topic="secret"),
            message(2, "b"),
            message(3, "a", topic="orders:eu"),
            message(4),
        )
    assert kinds(outcomes) == [Sent, "NOT_AUTHORIZED", "KEY_STOPPED", Sent, Sent]
    assert isinstance(outcomes[1], Failed)
    assert data_in(server.url, "orders") == [0, 4]


async def test_a_user_with_no_more_rights_than_it_needs_can_send(own: Callable[..., Valkey]) -> None:
    server = own()
    await do(server.url, "ACL", "SETUSER", "relay", "on", ">secret", "~orders", "+eval", "+evalsha", "+xadd")
    async with publishing(server.url.replace("redis://", "redis://relay:secret@") + "/orders") as publisher:
        assert kinds(await publish(publisher, message(0, "a"), message(1))) == [Sent, Sent]
        await asyncio.sleep(1.1)  # not fresh any more: it is asked whether it is there
        assert kinds(await publish(publisher, message(2, "a"))) == [Sent]


async def test_a_server_that_does_not_tell_its_limit_refuses_what_is_too_large_alone(
    own: Callable[..., Valkey],
) -> None:
    server = own()
    await do(server.url, "ACL", "SETUSER", "relay", "on", ">secret", "~*", "+@all", "-config")
    async with publishing(server.url.replace("redis://", "redis://relay:secret@") + "/orders") as publisher:
        large = message("x" * (LARGEST + 1), "a")
        first, *rest = await publish(publisher, message(0), large, message(1, "a"), message(2, "b"))
        again = await publish(publisher, message(3, "b"))
    assert isinstance(first, Sent)
    # It hangs up in the middle of it: whether its last word is read is a matter of luck.
    assert isinstance(rest[0], Rejected) or (isinstance(rest[0], Failed) and rest[0].unknown)
    assert rest[1] is KEY_STOPPED
    assert isinstance(again[0], Sent)


async def test_a_text_that_has_no_utf8_is_rejected_alone(redis_url: str, redis_stream: str) -> None:
    broken = message(1, "a", headers={"x-name": "\ud800"})
    async with publishing(f"{redis_url}/{redis_stream}") as publisher:
        outcomes = await publish(
            publisher, message(0, "a"), broken, message(2, "a"), broken.replace(key=None), message(3)
        )
    assert kinds(outcomes) == [Sent, "INVALID_MESSAGE", "KEY_STOPPED", "INVALID_MESSAGE", Sent]
    assert data_in(redis_url, redis_stream) == [0, 3]


async def test_what_cannot_be_sent_waits_for_the_verdict_on_those_before_it(redis_url: str, redis_stream: str) -> None:
    await do(redis_url, "SET", f"{redis_stream}:text", "no stream")
    large = "x" * (LARGEST + 1)
    async with publishing(f"{redis_url}/{redis_stream}") as publisher:
        outcomes = await publish(
            publisher,
            message(0, "a", topic=f"{redis_stream}:text"),
            message(large, "a"),
            message(1, "b"),
            message(large, "b"),
            message(2, "b"),
        )
    assert kinds(outcomes) == ["WRONG_TYPE", "KEY_STOPPED", Sent, "PAYLOAD_TOO_LARGE", "KEY_STOPPED"]
    assert data_in(redis_url, redis_stream) == [1]


async def test_too_many_fields_are_rejected_alone(redis_url: str, redis_stream: str) -> None:
    many = message(0, headers={f"x-{number}": "1" for number in range(5_000)})
    some = message(1, headers={f"x-{number}": "1" for number in range(1_900)})
    async with publishing(f"{redis_url}/{redis_stream}") as publisher:
        assert kinds(await publish(publisher, many, some)) == ["INVALID_MESSAGE", Sent]


async def test_a_message_for_no_stream_is_rejected(redis_url: str) -> None:
    async with publishing(redis_url) as publisher:
        assert kinds(await publish(publisher, message(0))) == ["NO_TOPIC"]


async def test_a_stream_is_not_made_when_the_url_forbids_it(redis_url: str, redis_stream: str) -> None:
    async with publishing(f"{redis_url}?create=off") as publisher:
        (outcome,) = await publish(publisher, message(0, topic=redis_stream))
    assert isinstance(outcome, Rejected)
    assert outcome.code == "UNROUTABLE"
    assert await do(redis_url, "EXISTS", redis_stream) == 0


# ── the connection ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_that_never_came_may_have_been_a_delivery(redis_server: Valkey) -> None:
    async with publishing(f"{redis_server.url}/orders") as publisher:
        await publish(publisher, message(0))
        with redis_server.silent():
            begin = time.monotonic()
            outcomes = await publish(publisher, message(1, "a"), message(2, "a"), timeout=SHORT)
            assert time.monotonic() - begin < SHORT.total_seconds()
        assert [(type(each), getattr(each, "unknown", None)) for each in outcomes] == [(Failed, True)] * 2
        assert kinds(await publish(publisher, message(3))) == [Sent]
    assert data_in(redis_server.url, "orders")[0] == 0


async def test_a_connection_lost_before_the_answer_is_unknown_and_nothing_is_sent_twice(redis_server: Valkey) -> None:
    many = [message(number) for number in range(2_500)]
    async with publishing(f"{redis_server.url}/orders") as publisher:
        await publish(publisher, message(-1))
        with suppress(ProcessLookupError), redis_server.silent():
            publishing_them = asyncio.create_task(publish(publisher, *many))
            await asyncio.sleep(0.2)
            redis_server.kill()
            outcomes = await publishing_them
        assert kinds(outcomes) == ["CONNECTION_LOST"] * 2_500
        assert [type(each) for each in outcomes] == [Failed] * 1_000 + [Unavailable] * 1_500
    redis_server.start_again()
    assert data_in(redis_server.url, "orders") == [-1]


async def test_nothing_is_begun_when_the_time_is_up(redis_url: str, redis_stream: str) -> None:
    async with publishing(f"{redis_url}/{redis_stream}") as publisher:
        outcomes = await publish(
            publisher, *(message(number) for number in range(50_000)), timeout=timedelta(seconds=0.3)
        )
    assert outcomes[-1] is NOT_STARTED
    sent = sum(isinstance(outcome, Sent) for outcome in outcomes)
    assert 0 < sent <= len(entries_of(redis_url, redis_stream)) < 50_000


async def test_a_script_that_the_server_forgot_is_told_again(redis_url: str, redis_stream: str) -> None:
    async with publishing(f"{redis_url}/{redis_stream}") as publisher:
        for number in range(3):
            await do(redis_url, "SCRIPT", "FLUSH")
            assert kinds(await publish(publisher, message(number, "a"))) == [Sent]
    assert data_in(redis_url, redis_stream) == [0, 1, 2]


async def test_batches_at_the_same_time_have_wires_of_their_own(redis_url: str, redis_stream: str) -> None:
    async with publishing(f"{redis_url}/{redis_stream}") as publisher:
        batches = [[message(number, f"k{batch}") for number in range(300)] for batch in range(8)]
        outcomes = await asyncio.gather(*(publish(publisher, *batch) for batch in batches))
    assert {type(each) for batch in outcomes for each in batch} == {Sent}
    for batch in range(8):
        assert [each.data for each in messages_in(redis_url, redis_stream) if each.key == f"k{batch}"] == list(
            range(300)
        )


async def test_a_server_that_is_not_there_is_told_in_one_sentence_and_waited_for() -> None:
    publisher = RedisPublisher(f"redis://relay:s3cret@127.0.0.1:{free_port()}/orders")
    with pytest.raises(TransportUnavailable, match="No Redis to write to at redis://relay:") as caught:
        await publisher.open()
    assert "s3cret" not in str(caught.value)
    assert kinds(await publish(publisher, message(0))) == ["CONNECT_FAILED"]
    await publisher.close()
    assert kinds(await publish(publisher, message(0))) == ["CLOSED"]


async def test_a_wrong_password_is_told_and_costs_no_attempt(own: Callable[..., Valkey]) -> None:
    server = own()
    await do(server.url, "ACL", "SETUSER", "relay", "on", ">right", "~*", "+@all")
    async with publishing(server.url.replace("redis://", "redis://relay:wrong@"), opened=False) as publisher:
        (outcome,) = await publish(publisher, message(0, topic="orders"))
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "AUTHENTICATION_FAILED"


async def test_the_protocol_is_pinned_and_its_replies_are_lists(redis_url: str, redis_stream: str) -> None:
    line = RedisConnection(read(redis_url))
    await line.connect(5)
    added, consumers, read_back, hello = await line.ask(
        ["XADD", redis_stream, "1-1", "a", "b"],
        ["XGROUP", "CREATE", redis_stream, "g", "0"],
        ["XREADGROUP", "GROUP", "g", "me", "STREAMS", redis_stream, ">"],
        ["HELLO"],
        seconds=5,
    )
    assert (added, consumers) == (b"1-1", b"OK")
    assert read_back == [[redis_stream.encode(), [[b"1-1", [b"a", b"b"]]]]]
    assert hello[hello.index(b"proto") + 1] == 2
    await line.close()


async def test_a_server_behind_tls_is_reached_and_its_certificate_checked(
    redis_url: str, redis_stream: str, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    async with behind_tls(int(redis_url.rpartition(":")[2]), certificate, key) as port:
        url = f"rediss://localhost:{port}/{redis_stream}"
        async with publishing(f"{url}?ssl_ca_certs={certificate}") as publisher:
            assert kinds(await publish(publisher, message(0))) == [Sent]
        with pytest.raises(TransportRefused, match="certificate"):
            await RedisPublisher(url).open()
        with pytest.raises(TransportUnavailable):
            await RedisPublisher(f"rediss://localhost:{redis_url.rpartition(':')[2]}/{redis_stream}").open()
    assert data_in(redis_url, redis_stream) == [0]


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """One for localhost, which vouches for itself."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("There is no openssl to make a certificate with.")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -out {certificate} -keyout {key}"
    subprocess.run(
        [openssl, *words.split(), "-addext", "subjectAltName=DNS:localhost"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return certificate, key


@asynccontextmanager
async def behind_tls(port: int, certificate: Path, key: Path) -> AsyncIterator[int]:
    """A port at which TLS ends, and the server begins."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while some := await reader.read(65_536):
            writer.write(some)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)
        with suppress(OSError):
            await asyncio.gather(carry(reader, ours), carry(theirs, writer))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(serve, "localhost", 0, ssl=context, family=socket.AF_INET)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


# ── how much a confirmation is worth ───────────────────────────────────────────────────────────────────────────────────


async def test_without_the_replicas_that_the_url_wants_nothing_is_written(redis_url: str, redis_stream: str) -> None:
    async with publishing(f"{redis_url}/{redis_stream}?wait=1", opened=False) as publisher:
        (outcome,) = await publish(publisher, message(0))
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "NOT_REPLICATED"
    assert entries_of(redis_url, redis_stream) == []


async def test_a_replica_that_was_lost_makes_the_answer_unknown_and_then_nothing_more_is_written(
    own: Callable[..., Valkey],
) -> None:
    server, replica = own(), own()
    await do(replica.url, "REPLICAOF", "127.0.0.1", server.port)
    async with publishing(f"{server.url}/orders?wait=1", opened=False) as publisher:

        def is_linked() -> bool:
            with client_of(replica.url) as client:
                return bool(client.info("replication")["master_link_status"] == "up")

        await until_async(is_linked)
        assert kinds(await publish(publisher, message(0, "a"))) == [Sent]
        assert data_in(replica.url, "orders") == [0]
        with replica.silent():
            # Long enough that the server's answer comes before our own patience ends, on a busy machine too.
            outcomes = await publish(publisher, message(1, "a"), message(2, "a"), timeout=timedelta(seconds=5))
            assert kinds(outcomes) == ["NOT_REPLICATED"] * 2
            assert all(isinstance(each, Failed) and each.unknown for each in outcomes)
            for _ in range(3):
                (outcome,) = await publish(publisher, message(1, "a"), timeout=SHORT)
                assert isinstance(outcome, Unavailable)
        assert kinds(await publish(publisher, message(3, "a"))) == [Sent]
    assert data_in(server.url, "orders") == [0, 1, 2, 3]


async def test_the_disk_that_the_url_wants_must_be_there(own: Callable[..., Valkey]) -> None:
    forgetful = own(appendonly="no")
    with pytest.raises(ConfigError, match="keeps no append-only file"):
        await RedisPublisher(f"{forgetful.url}/orders?waitaof=1").open()


async def test_a_message_that_did_not_reach_the_disk_is_not_confirmed(own: Callable[..., Valkey]) -> None:
    server = own()
    async with publishing(f"{server.url}/orders?waitaof=1") as publisher:
        assert kinds(await publish(publisher, message(0, "a"))) == [Sent]
        await do(server.url, "CONFIG", "SET", "appendonly", "no")
        (outcome,) = await publish(publisher, message(1, "a"))
        assert isinstance(outcome, Failed)
        assert (outcome.code, outcome.unknown) == ("NOT_ON_DISK", True)
        (outcome,) = await publish(publisher, message(1, "a"))
        assert isinstance(outcome, Unavailable)
    assert data_in(server.url, "orders") == [0, 1]


async def test_what_a_server_without_a_file_confirms_is_not_called_durable(own: Callable[..., Valkey]) -> None:
    forgetful = own(appendonly="no")
    async with publishing(f"{forgetful.url}/orders") as publisher:
        assert not publisher.capabilities.durable


async def test_entries_are_trimmed_only_when_the_url_says_so_and_that_is_warned_of(
    redis_url: str, redis_stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    many = [message(number) for number in range(3_000)]
    with caplog.at_level(logging.WARNING, "postroom.redis"):
        async with publishing(f"{redis_url}/{redis_stream}") as publisher:
            await publish(publisher, *many)
        assert len(entries_of(redis_url, redis_stream)) == 3_000
        assert caplog.messages == []
        async with publishing(f"{redis_url}/{redis_stream}?maxlen=~100") as publisher:
            await publish(publisher, message(0))
        assert 100 <= len(entries_of(redis_url, redis_stream)) < 400
        async with publishing(f"{redis_url}/{redis_stream}?maxlen=10") as publisher:
            await publish(publisher, message(0))
    assert len(entries_of(redis_url, redis_stream)) == 10
    assert len(caplog.messages) == 2
    assert "are lost, whether they were read or not" in caplog.text


async def test_a_node_of_a_cluster_and_a_server_too_old_are_refused(own: Callable[..., Valkey]) -> None:
    node = own(cluster_enabled="yes", cluster_port=str(free_port()))
    with pytest.raises(ConfigError, match="is a node of a cluster"):
        await RedisPublisher(f"{node.url}/orders").open()
    with pytest.raises(ConfigError, match=r"is Redis 6\.2; Postroom needs Redis 7"):
        check(Facts(version=(6, 2)), read("redis://server/orders"))
    check(Facts(version=(7, 0)), read("redis://server/orders"))


async def test_a_url_whose_stream_is_none_is_told_at_the_start(redis_url: str, redis_stream: str) -> None:
    with pytest.raises(ConfigError, match="there is no such stream, and create=off"):
        await RedisPublisher(f"{redis_url}/{redis_stream}?create=off").open()
    await do(redis_url, "SET", redis_stream, "text")
    with pytest.raises(ConfigError, match="it is a string; it must be a stream"):
        await RedisPublisher(f"{redis_url}/{redis_stream}").open()
