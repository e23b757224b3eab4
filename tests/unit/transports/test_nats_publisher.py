"""What a NATS server does that a publisher must not be fooled by, each with a real one."""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType
from tests.servers.nats_server import LARGEST, NatsServer, nats_of_my_own
from tests.servers.streams import at_once, create, everything_in, fresh_stream

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
from postroom.transports.nats import NatsPublisher
from postroom.transports.nats.connection import QUIET_SECONDS, Connection

TIMEOUT = timedelta(seconds=5)


@pytest.fixture
def stream(nats_url: str) -> Iterator[str]:
    with fresh_stream(nats_url) as name:
        yield name


@asynccontextmanager
async def publisher_to(url: str) -> AsyncIterator[NatsPublisher]:
    publisher = NatsPublisher(url)
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()


def numbered(count: int, *, key: str | None = None, size: int = 10) -> list[Message]:
    return [Message("order.paid", key=key, body=b"%08d" % number + b"x" * size) for number in range(count)]


def to(topic: str | None, *messages: Message) -> Sequence[Envelope]:
    return [Envelope(message, topic) for message in messages]


async def test_what_no_stream_takes_is_never_sent_although_plain_nats_would_take_it(nats_url: str, stream: str) -> None:
    async with publisher_to(f"{nats_url}/{stream}") as publisher:
        (outcome,) = await publisher.publish(to("nowhere.at.all", *numbered(1)), timeout=TIMEOUT)
    assert isinstance(outcome, Rejected)
    assert outcome.code == "UNROUTABLE"


async def test_a_subject_of_another_stream_is_refused_and_not_stored_there(nats_url: str, stream: str) -> None:
    with fresh_stream(nats_url) as other:
        async with publisher_to(f"{nats_url}/{stream}") as publisher:
            (outcome,) = await publisher.publish(to(f"{other}.paid", *numbered(1)), timeout=TIMEOUT)
        assert isinstance(outcome, Rejected)
        assert outcome.code == "UNROUTABLE"
        assert everything_in(nats_url, other) == []


async def test_a_stream_that_vanished_is_waited_for(nats_url: str, stream: str) -> None:
    async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
        await asyncio.to_thread(at_once, nats_url, lambda js: js.delete_stream(stream))
        outcomes = await publisher.publish(to(None, *numbered(3)), timeout=TIMEOUT)
        assert {(type(each), getattr(each, "code", "")) for each in outcomes} == {(Unavailable, "NO_STREAM")}
        await asyncio.to_thread(create, nats_url, stream)
        outcomes = await publisher.publish(to(None, *numbered(3)), timeout=TIMEOUT)
        assert [type(each) for each in outcomes] == [Sent] * 3


async def test_a_subject_of_the_url_that_the_stream_gave_up_is_the_routes_trouble(nats_url: str, stream: str) -> None:
    async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
        await asyncio.to_thread(
            at_once, nats_url, lambda js: js.update_stream(name=stream, subjects=[f"{stream}.other"])
        )
        (outcome,) = await publisher.publish(to(None, *numbered(1)), timeout=TIMEOUT)
        assert isinstance(outcome, Unavailable)
        assert outcome.code == "UNROUTABLE"


async def test_the_same_message_again_is_sent_and_stands_there_once(nats_url: str, stream: str) -> None:
    messages = numbered(5, key="a")
    async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
        for _ in range(2):
            outcomes = await publisher.publish(to(None, *messages), timeout=TIMEOUT)
            assert [type(each) for each in outcomes] == [Sent] * 5
    assert len(everything_in(nats_url, stream)) == 5


async def test_the_same_message_to_two_subjects_of_a_stream_stands_in_both(nats_url: str, stream: str) -> None:
    (message,) = numbered(1)
    async with publisher_to(f"{nats_url}/{stream}") as publisher:
        for subject in (f"{stream}.paid", f"{stream}.booked"):
            (outcome,) = await publisher.publish(to(subject, message), timeout=TIMEOUT)
            assert isinstance(outcome, Sent)
    assert [each.subject for each in everything_in(nats_url, stream)] == [f"{stream}.paid", f"{stream}.booked"]


async def test_headers_that_make_it_too_large_do_not_end_the_connection_for_others(nats_url: str, stream: str) -> None:
    just = Message("order.paid", key="a", body=b"x" * (LARGEST - 100))  # alone it would fit
    wordy = Message("order.paid", key="b", body=b"x" * (LARGEST - 5_000), headers={"x-note": "é" * 2_500})
    small = numbered(50)
    async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
        outcomes = await publisher.publish(to(None, *small[:25], just, wordy, *small[25:]), timeout=TIMEOUT)
    assert [type(each) for each in outcomes] == [Sent] * 25 + [Rejected] * 2 + [Sent] * 25
    assert len(everything_in(nats_url, stream)) == 50


async def test_what_is_too_large_for_the_stream_is_rejected_alone(nats_url: str) -> None:
    with fresh_stream(nats_url, max_msg_size=2_000) as stream:
        large, behind, other = (
            Message("order.paid", key="a", body=b"x" * 3_000),
            *numbered(1, key="a"),
            *numbered(1, key="b"),
        )
        async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
            outcomes = await publisher.publish(to(None, large, behind, other), timeout=TIMEOUT)
        assert isinstance(outcomes[0], Rejected)
        assert outcomes[0].code == "PAYLOAD_TOO_LARGE"
        assert outcomes[1] == KEY_STOPPED
        assert isinstance(outcomes[2], Sent)
        assert len(everything_in(nats_url, stream)) == 1


async def test_a_message_that_is_larger_than_its_whole_stream_is_rejected_and_takes_no_other_with_it(
    nats_url: str,
) -> None:
    """It would wait for room for ever, and all others with it."""
    with fresh_stream(nats_url, max_bytes=6_000, discard=DiscardPolicy.NEW) as stream:
        large, other = Message("order.paid", key="a", body=b"x" * 8_000), numbered(1, key="b")[0]
        async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
            refused, sent = await publisher.publish(to(None, large, other), timeout=TIMEOUT)
        assert isinstance(refused, Rejected)
        assert refused.code == "PAYLOAD_TOO_LARGE"
        assert isinstance(sent, Sent)


async def test_a_full_stream_is_said_at_once_and_nothing_overtakes_it(nats_url: str) -> None:
    with fresh_stream(nats_url, max_bytes=6_000, discard=DiscardPolicy.NEW) as stream:
        first, large, small = (
            Message("order.paid", key="b", body=b"x" * 3_000),
            Message("order.paid", key="a", body=b"x" * 4_000),
            numbered(1, key="a")[0],
        )
        async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
            assert isinstance((await publisher.publish(to(None, first), timeout=TIMEOUT))[0], Sent)
            begin = time.monotonic()
            outcomes = await publisher.publish(to(None, large, small), timeout=TIMEOUT)
        assert time.monotonic() - begin < 2, "the answer was there, and was waited for"
        assert isinstance(outcomes[0], Unavailable)
        assert outcomes[0].code == "STREAM_FULL"
        assert outcomes[1] == KEY_STOPPED
        assert len(everything_in(nats_url, stream)) == 1


async def test_somebody_who_answers_in_the_streams_place_is_not_believed(nats_url: str, stream: str) -> None:
    client = await nats.connect(nats_url)
    answered = asyncio.Event()

    async def lie(request: Any) -> None:
        await client.publish(request.reply, b'{"stream": "mine", "seq": 7}')
        await client.publish(request.reply, b"+OK")
        answered.set()

    await client.subscribe(f"{stream}.paid", cb=lie)
    await client.subscribe("outside", cb=lie)
    await client.flush()
    try:
        async with publisher_to(f"{nats_url}/{stream}") as publisher:
            (stored,) = await publisher.publish(to(f"{stream}.paid", *numbered(1)), timeout=TIMEOUT)
            assert isinstance(stored, Sent)
            assert stored.result == 1
            (outside,) = await publisher.publish(to("outside", *numbered(1)), timeout=timedelta(seconds=1))
            assert isinstance(outside, Failed)
            assert outside.unknown
        assert answered.is_set()
    finally:
        await client.close()


async def test_a_server_killed_under_a_batch_leaves_what_was_on_its_way_unknown(nats_server: NatsServer) -> None:
    with fresh_stream(nats_server.url) as stream:
        async with publisher_to(f"{nats_server.url}/{stream}?subject={stream}.paid") as publisher:
            nats_server.freeze()
            publishing = asyncio.ensure_future(
                publisher.publish(to(None, *numbered(20), *numbered(3, key="a")), timeout=TIMEOUT)
            )
            await asyncio.sleep(0.3)
            await asyncio.to_thread(nats_server.kill)
            outcomes = await publishing
            assert [type(each) for each in outcomes[:21]] == [Failed] * 21
            assert all(each.unknown for each in outcomes[:21] if isinstance(each, Failed))
            assert list(outcomes[21:]) == [KEY_STOPPED] * 2
            (away,) = await publisher.publish(to(None, *numbered(1)), timeout=TIMEOUT)
            assert isinstance(away, Unavailable), "nothing was tried"


async def test_a_server_that_stands_still_is_answered_for_in_time(nats_server: NatsServer) -> None:
    with fresh_stream(nats_server.url) as stream:
        async with publisher_to(f"{nats_server.url}/{stream}?subject={stream}.paid") as publisher:
            with nats_server.silent():
                begin = time.monotonic()
                # More than a socket holds: the library waits for room, and swallows whoever calls it away from there.
                large = numbered(40, size=500_000)
                outcomes = await publisher.publish(to(None, *large), timeout=timedelta(seconds=2))
                assert time.monotonic() - begin < 2
                assert {type(each) for each in outcomes} <= {Failed, Unavailable}
                assert NOT_STARTED in outcomes
            await asyncio.sleep(QUIET_SECONDS)
            with nats_server.silent():
                (away,) = await publisher.publish(to(None, *numbered(1)), timeout=timedelta(seconds=2))
                assert isinstance(away, Unavailable), "it was not there before anything was tried"
            (sent,) = await publisher.publish(to(None, *numbered(1)), timeout=TIMEOUT)
            assert isinstance(sent, Sent)


async def test_many_batches_at_once_are_answered_each_for_itself(nats_url: str, stream: str) -> None:
    async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
        batches = [to(None, *numbered(number + 1, key=f"k{number}")) for number in range(8)]
        answers = await asyncio.gather(*(publisher.publish(batch, timeout=TIMEOUT) for batch in batches))
    assert [[type(each) for each in answer] for answer in answers] == [[Sent] * (n + 1) for n in range(8)]


async def test_a_message_that_cannot_be_written_is_rejected_alone(nats_url: str, stream: str) -> None:
    odd = [
        Message("order.paid", headers={"x-note": "a\r\nNats-Rollup: all"}),
        Message("order.paid", headers={"x note": "a"}),
        Message("order.paid", headers={"x-note": "\ud800"}),
    ]
    async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
        outcomes = await publisher.publish(to(None, *odd, *numbered(1)), timeout=TIMEOUT)
        assert [type(each) for each in outcomes] == [Rejected] * 3 + [Sent]
        for subject in ("two words", f"{stream}.*", f"{stream}..x", "x" * 2_000, f"{stream}.a\r\nPUB b 0"):
            (outcome,) = await publisher.publish(to(subject, *numbered(1)), timeout=TIMEOUT)
            assert isinstance(outcome, Rejected)
        (outcome,) = await publisher.publish(to(None, *numbered(1)), timeout=TIMEOUT)
        assert isinstance(outcome, Sent)


async def test_no_subject_at_all_is_a_rejection(nats_url: str, stream: str) -> None:
    async with publisher_to(f"{nats_url}/{stream}") as publisher:
        (outcome,) = await publisher.publish(to(None, *numbered(1)), timeout=TIMEOUT)
    assert isinstance(outcome, Rejected)
    assert outcome.code == "NO_TOPIC"


async def test_a_messages_headers_are_no_orders_to_the_server(nats_url: str, stream: str) -> None:
    orders = {"Nats-Rollup": "all", "nats-expected-last-sequence": "99", "Nats-Msg-Id": "mine", "x-tenant": "acme"}
    async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
        first, second = numbered(1)[0], numbered(1)[0].replace(headers=orders)
        outcomes = await publisher.publish(to(None, first, second), timeout=TIMEOUT)
    assert [type(each) for each in outcomes] == [Sent, Sent]
    assert len(everything_in(nats_url, stream)) == 2


@pytest.mark.parametrize(
    ("settings", "subject", "sentence"),
    [
        ({"no_ack": True}, "paid", "confirms nothing"),
        ({}, "elsewhere", "does not take the subject"),
        (None, "paid", "There is no stream"),
    ],
    ids=["no-ack", "subject", "missing"],
)
async def test_a_stream_that_cannot_do_is_told_when_it_is_opened(
    nats_url: str, settings: dict[str, Any] | None, subject: str, sentence: str
) -> None:
    with fresh_stream(nats_url, **(settings or {})) as stream:
        name = stream if settings is not None else f"{stream}-not"
        full = f"{stream}.{subject}" if subject == "paid" else subject
        publisher = NatsPublisher(f"{nats_url}/{name}?subject={full}")
        with pytest.raises(ConfigError, match=sentence):
            await publisher.open()
        await publisher.close()


async def test_a_stream_that_forgets_is_warned_of_when_it_is_opened(
    nats_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fresh_stream(nats_url, max_msgs=1_000, storage=StorageType.MEMORY) as stream, caplog.at_level(logging.WARNING):
        async with publisher_to(f"{nats_url}/{stream}"):
            pass
    warned = " ".join(record.message for record in caplog.records if record.name == "postroom.nats")
    for phrase in ("kept in memory", "1 replica", "more than 1,000 messages"):
        assert phrase in warned


async def test_a_server_without_jetstream_is_told_in_one_sentence() -> None:
    with nats_of_my_own('accounts { plain { users: [{user: "plain", password: "x"}] } }') as server:
        publisher = NatsPublisher(f"{server.url.replace('://', '://plain:x@')}/ORDERS")
        with pytest.raises(ConfigError, match="has no JetStream"):
            await publisher.open()
        await publisher.close()


@pytest.mark.parametrize("user", ["", "locked:wrong@"], ids=["nobody", "wrong"])
async def test_a_wrong_password_is_unavailable_and_not_shown(user: str) -> None:
    with nats_of_my_own('authorization { user: "locked", password: "right" }') as server:
        publisher = NatsPublisher(f"{server.url.replace('://', f'://{user}')}/ORDERS?subject=a")
        with pytest.raises(TransportRefused, match="asks for a user and password") as raised:
            await publisher.open()
        assert "wrong" not in str(raised.value)
        (outcome,) = await publisher.publish(to(None, *numbered(1)), timeout=TIMEOUT)
        assert isinstance(outcome, Unavailable)
        await publisher.close()


async def test_a_subject_we_may_not_publish_to_fails_at_once_and_alone() -> None:
    rights = '{ publish: ["$JS.API.STREAM.INFO.S", "S.ours"], subscribe: ["_INBOX.>"] }'
    config = f"""accounts {{ shop {{ jetstream: enabled, users: [
        {{user: "root", password: "r"}}, {{user: "relay", password: "x", permissions: {rights}}} ] }} }}"""
    with nats_of_my_own(config) as server:
        create(server.url.replace("://", "://root:r@"), "S", subjects=["S.>"])
        async with publisher_to(f"{server.url.replace('://', '://relay:x@')}/S?subject=S.ours") as publisher:
            begin = time.monotonic()
            theirs, behind, ours = [Message("t", key=key) for key in ("a", "a", "b")]
            batch = [Envelope(theirs, "S.theirs"), Envelope(behind, "S.ours"), Envelope(ours, "S.ours")]
            outcomes = await publisher.publish(batch, timeout=TIMEOUT)
            assert time.monotonic() - begin < 2
    assert isinstance(outcomes[0], Failed)
    assert outcomes[0].code == "NOT_AUTHORIZED"
    assert outcomes[1] == KEY_STOPPED
    assert isinstance(outcomes[2], Sent)


async def test_tls_is_not_given_up_where_a_server_does_not_offer_it(nats_url: str) -> None:
    publisher = NatsPublisher(f"{nats_url.replace('nats://', 'tls://user:secret@')}/ORDERS")
    with pytest.raises(TransportRefused, match="offers no TLS"):
        await publisher.open()
    await publisher.close()


@pytest.fixture
def certificate() -> Iterator[Path]:
    """One for this machine, signed by itself; its key is beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("There is no openssl to make a certificate with.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server runs as another user
        made, key = folder / "cert.pem", folder / "key.pem"
        command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=broker -keyout {key} -out {made}"
        subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        key.chmod(0o644)
        yield made


async def test_a_certificate_is_checked_and_its_authority_can_be_named(certificate: Path) -> None:
    key = certificate.with_name("key.pem")
    with nats_of_my_own(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}') as server:
        url = f"{server.url.replace('nats://', 'tls://')}/ORDERS?subject=orders.paid"
        for unsafe in (url, url.replace("tls://", "nats://")):
            publisher = NatsPublisher(unsafe)
            with pytest.raises(TransportRefused, match="certificate verify failed"):
                await publisher.open()
            await publisher.close()
        publisher = NatsPublisher(f"{url}&tls_ca={certificate}")
        with pytest.raises(ConfigError, match="There is no stream"):  # so it was asked
            await publisher.open()
        (outcome,) = await publisher.publish(to(None, *numbered(1)), timeout=TIMEOUT)
        assert isinstance(outcome, Unavailable)
        assert outcome.code == "NO_STREAM"
        await publisher.close()


async def test_whoever_gives_up_waiting_leaves_nothing_behind(nats_server: NatsServer) -> None:
    with fresh_stream(nats_server.url) as stream:
        async with publisher_to(f"{nats_server.url}/{stream}?subject={stream}.paid") as publisher:
            with nats_server.silent():
                publishing = asyncio.ensure_future(publisher.publish(to(None, *numbered(3, key="a")), timeout=TIMEOUT))
                await asyncio.sleep(0.2)
                publishing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await publishing
            outcomes = await publisher.publish(to(None, *numbered(2, key="a")), timeout=TIMEOUT)
            assert [type(each) for each in outcomes] == [Sent, Sent]


async def test_whoever_gives_up_is_let_go_though_the_client_swallows_it(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_: Connection, seconds: float) -> bool:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        return True

    with fresh_stream(nats_server.url) as stream:
        async with publisher_to(f"{nats_server.url}/{stream}?subject={stream}.paid") as publisher:
            monkeypatch.setattr(Connection, "is_there", deaf)
            publishing = asyncio.ensure_future(publisher.publish(to(None, *numbered(1)), timeout=TIMEOUT))
            await asyncio.sleep(0.1)
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing


async def test_nobody_there_is_unavailable_soon() -> None:
    publisher = NatsPublisher("nats://127.0.0.1:1/ORDERS?subject=a")
    begin = time.monotonic()
    with pytest.raises(TransportUnavailable, match=r"No NATS answers at nats://127.0.0.1:1/ORDERS"):
        await publisher.open()
    outcomes = await publisher.publish(to(None, *numbered(2)), timeout=TIMEOUT)
    assert {type(each) for each in outcomes} == {Unavailable}
    assert time.monotonic() - begin < 3
    await publisher.close()


async def test_what_is_not_open_says_so(nats_url: str, stream: str) -> None:
    publisher = NatsPublisher(f"{nats_url}/{stream}?subject={stream}.paid")
    outcomes: Sequence[Outcome] = await publisher.publish(to(None, *numbered(1)), timeout=TIMEOUT)
    assert isinstance(outcomes[0], Unavailable)
    assert outcomes[0].code == "CLOSED"


async def test_closing_lets_what_is_on_its_way_be_answered(nats_url: str, stream: str) -> None:
    publisher = NatsPublisher(f"{nats_url}/{stream}?subject={stream}.paid")
    await publisher.open()
    publishing = asyncio.ensure_future(publisher.publish(to(None, *numbered(300, key="a")), timeout=TIMEOUT))
    await asyncio.sleep(0)
    await publisher.close()
    assert {type(each) for each in await publishing} == {Sent}


async def test_a_stream_kept_by_interest_that_nobody_reads_is_waited_for_as_it_would_drop_what_it_confirms(
    nats_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fresh_stream(nats_url, retention=RetentionPolicy.INTEREST) as stream:
        async with publisher_to(f"{nats_url}/{stream}?subject={stream}.paid") as publisher:
            assert "First start each receiver once" in caplog.text
            outcomes = await publisher.publish(to(None, *numbered(2, key="a")), timeout=TIMEOUT)
            assert isinstance(outcomes[0], Unavailable), f"it would be gone: {outcomes[0]}"
            assert (outcomes[0].code, outcomes[1]) == ("UNROUTABLE", KEY_STOPPED)
            await read_only(nats_url, stream, f"{stream}.paid")
            outcomes = await publisher.publish(to(None, *numbered(2, key="a")), timeout=TIMEOUT)
            assert [type(each) for each in outcomes] == [Sent, Sent]
        assert len(everything_in(nats_url, stream)) == 2


async def test_at_a_stream_kept_by_interest_a_subject_of_its_own_that_nobody_reads_is_unroutable(
    nats_url: str,
) -> None:
    """As at an exchange of RabbitMQ with queues, of which none is bound for it."""
    with fresh_stream(nats_url, retention=RetentionPolicy.INTEREST) as stream:
        await read_only(nats_url, stream, f"{stream}.paid")
        async with publisher_to(f"{nats_url}/{stream}") as publisher:
            batch = [*to(f"{stream}.paid", *numbered(1)), *to(f"{stream}.lost", *numbered(1))]
            paid, lost = await publisher.publish(batch, timeout=TIMEOUT)
        assert isinstance(paid, Sent)
        assert isinstance(lost, Rejected)
        assert lost.code == "UNROUTABLE"


async def read_only(url: str, stream: str, subject: str) -> None:
    """Make a consumer that reads this subject."""
    config = ConsumerConfig(durable_name="billing", filter_subject=subject)
    await asyncio.to_thread(at_once, url, lambda js: js.add_consumer(stream, config))
