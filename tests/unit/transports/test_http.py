"""Deliveries by HTTP: what is on the wire, and what each answer means."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from tests.unit.transports.receiver import Received, Receiver

from postroom.contracts.transport import Envelope, Failed, Outcome, Rejected, Sent, Unavailable
from postroom.errors import ConfigError, MissingDependency
from postroom.message import Message
from postroom.transports import open_publisher
from postroom.transports.http import HttpPublisher, public_ip
from postroom.transports.http.outcomes import ERROR_MAX, read_retry_after
from postroom.transports.http.publisher import RESPONSE_MAX
from postroom.transports.http.signature import read_secret, sign

TIMEOUT = timedelta(seconds=10)
SHORT = timedelta(milliseconds=200)
NOW = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

Open = Callable[..., Awaitable[HttpPublisher]]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def make_publisher(receiver: Receiver) -> AsyncIterator[Open]:
    """Opens publishers, to the receiver unless told otherwise, and closes them at the end."""
    opened: list[HttpPublisher] = []

    async def open_one(url: str | None = None, **options: Any) -> HttpPublisher:
        opened.append(HttpPublisher(url or receiver.url, **options))
        await opened[-1].open()
        return opened[-1]

    yield open_one
    for publisher in opened:
        await publisher.close()


async def publish(publisher: HttpPublisher, *messages: Message, timeout: timedelta = TIMEOUT) -> list[Outcome]:
    return list(await publisher.publish([Envelope(message) for message in messages], timeout=timeout))


async def publish_one(publisher: HttpPublisher, message: Message | None = None, **options: Any) -> Outcome:
    (outcome,) = await publish(publisher, message or Message("order.paid"), **options)
    return outcome


def answering(status: int, text: str = "", **headers: str) -> Callable[[Received], Awaitable[web.StreamResponse]]:
    async def answer(received: Received) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=text, headers=named)

    return answer


class Held:
    """Answers when it is let go, and says when someone is waiting."""

    def __init__(self) -> None:
        self.reached, self.release = asyncio.Event(), asyncio.Event()

    async def __call__(self, received: Received) -> web.StreamResponse:
        self.reached.set()
        await self.release.wait()
        return web.Response(status=204)


# The request


async def test_a_message_is_a_cloud_event_in_binary_mode(receiver: Receiver, make_publisher: Open) -> None:
    message = Message(
        "order.paid", key="klíč 7%", data={"amount": 12}, aggregate='an "order"', traceparent=TRACE, time=NOW
    )
    assert await publish_one(await make_publisher(source="/shop"), message) == Sent(204)
    (request,) = receiver.requests
    assert request.request.method == "POST"
    assert request.body == message.body
    assert {name: value for name, value in request.headers.items() if name.startswith("ce-")} == {
        "ce-specversion": "1.0",
        "ce-id": str(message.id),
        "ce-source": "/shop",
        "ce-type": "order.paid",
        "ce-time": "2026-11-15T09:30:00.000000Z",
        "ce-subject": "kl%C3%AD%C4%8D%207%25",
        "ce-partitionkey": "kl%C3%AD%C4%8D%207%25",
        "ce-aggregate": "an%20%22order%22",
        "ce-traceparent": TRACE,
    }
    assert request.headers["content-type"] == "application/json"
    assert request.headers["traceparent"] == TRACE
    assert request.headers["idempotency-key"] == str(message.id)
    assert unquote(request.headers["ce-subject"]) == "klíč 7%"


async def test_a_message_without_a_body_is_an_empty_request(receiver: Receiver, make_publisher: Open) -> None:
    await publish_one(await make_publisher(), Message("order.paid"))
    (request,) = receiver.requests
    assert (request.body, request.headers["content-length"]) == (b"", "0")


async def test_the_idempotency_key_of_the_message_goes_before_its_id(receiver: Receiver, make_publisher: Open) -> None:
    await publish_one(await make_publisher(), Message("order.paid", idempotency_key="pay-7"))
    assert receiver.requests[0].headers["idempotency-key"] == "pay-7"


async def test_headers_are_passed_on_but_for_those_of_the_request(receiver: Receiver, make_publisher: Open) -> None:
    own = {"X-Tenant": "acme", "authorization": "Bearer t", "x-city": "Plzeň"}
    taken = {
        *("Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "TE", "Upgrade", "Expect"),
        *("Traceparent", "Idempotency-Key", "Webhook-Id", "webhook-signature", "ce-id", "CE-Type"),
    }
    message = Message("order.paid", data=1, headers=own | dict.fromkeys(taken, "stolen"))
    assert await publish_one(await make_publisher(), message) == Sent(204)
    headers = receiver.requests[0].headers
    assert (headers["x-tenant"], headers["authorization"], headers["x-city"]) == ("acme", "Bearer t", "Plzeň")
    assert "stolen" not in headers.values()


async def test_the_user_in_the_url_signs_in(receiver: Receiver, make_publisher: Open) -> None:
    publisher = await make_publisher(receiver.url.replace("//", "//shop:p%40ss@"))
    assert await publish_one(publisher, Message("order.paid", headers={"Authorization": "mine"})) == Sent(204)
    assert receiver.requests[0].headers.getall("authorization") == ["Basic c2hvcDpwQHNz"]


async def test_a_message_that_no_header_can_carry_is_rejected(receiver: Receiver, make_publisher: Open) -> None:
    bad, good = Message("order.paid", headers={"x-bad": "a\r\nx-evil: 1"}), Message("order.paid")
    lone = Message("order.paid", headers={"x-bad": "\ud800"})
    outcomes = await publish(await make_publisher(), bad, lone, good)
    assert [getattr(outcome, "code", "sent") for outcome in outcomes] == ["INVALID_MESSAGE", "INVALID_MESSAGE", "sent"]
    assert len(receiver.requests) == 1


async def test_one_connection_serves_the_messages_of_a_key(receiver: Receiver, make_publisher: Open) -> None:
    await publish(await make_publisher(), *(Message("order.paid", key="a", data=number) for number in range(5)))
    assert len(receiver.requests) == 5
    assert len(receiver.connections) == 1


# The signature


def test_the_vector_of_standard_webhooks() -> None:
    headers = sign([read_secret(SECRET)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


async def test_each_secret_signs_what_was_sent(receiver: Receiver, make_publisher: Open) -> None:
    message = Message("order.paid", data={"amount": 12})
    await publish_one(await make_publisher(secrets=[SECRET, "a raw secret"]), message)
    (request,) = receiver.requests
    timestamp = int(request.headers["webhook-timestamp"])
    assert abs(timestamp - datetime.now(UTC).timestamp()) < 60
    keys = [read_secret(SECRET), b"a raw secret"]
    expected = sign(keys, str(message.id), timestamp, request.body)
    assert {name: request.headers[name] for name in expected} == expected
    assert len(request.headers["webhook-signature"].split(" ")) == 2


async def test_without_a_secret_nothing_is_signed(receiver: Receiver, make_publisher: Open) -> None:
    await publish_one(await make_publisher())
    assert not [name for name in receiver.requests[0].headers if name.lower().startswith("webhook-")]


@pytest.mark.parametrize("secret", ["whsec_not base64!", "whsec_bmV3!", "whsec_", "", "whsec_é"])
def test_a_secret_that_is_none_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HttpPublisher("https://shop.example", secrets=[secret])
    assert "not base64!" not in str(caught.value)


# The answer


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_2xx_is_sent(receiver: Receiver, make_publisher: Open, status: int) -> None:
    receiver.answer = answering(status)
    assert await publish_one(await make_publisher()) == Sent(status)


@pytest.mark.parametrize("status", [408, 409, 423, 425, 429, 500, 502, 503, 504, 599])
async def test_what_may_pass_is_failed(receiver: Receiver, make_publisher: Open, status: int) -> None:
    receiver.answer = answering(status, "come again", Retry_After="7")
    outcome = await publish_one(await make_publisher())
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.retry_after, outcome.unknown) == (f"HTTP_{status}", timedelta(seconds=7), False)
    assert outcome.error.endswith(": come again")


@pytest.mark.parametrize("status", [301, 302, 304, 307, 308, 401, 403, 404, 407])
async def test_what_is_wrong_with_the_url_spends_no_attempt(
    receiver: Receiver, make_publisher: Open, status: int
) -> None:
    receiver.answer = answering(status)
    outcome = await publish_one(await make_publisher())
    assert isinstance(outcome, Unavailable)
    assert (outcome.code, outcome.until_told) == (f"HTTP_{status}", False)


@pytest.mark.parametrize("status", [301, 401, 404, 410])
async def test_a_url_that_is_wrong_for_one_message_is_not_tried_with_all(
    receiver: Receiver, make_publisher: Open, status: int
) -> None:
    """The backlog is as it was, and the receiver is not flooded with what it refuses."""
    receiver.answer = answering(status)
    publisher = await make_publisher(concurrency=2)
    outcomes = await publish(publisher, *(Message("order.paid", key=str(number)) for number in range(50)))
    assert {type(outcome) for outcome in outcomes} == {Unavailable}
    assert len(receiver.requests) <= 2


@pytest.mark.parametrize("status", [400, 405, 413, 415, 422, 451])
async def test_what_will_not_pass_is_rejected(receiver: Receiver, make_publisher: Open, status: int) -> None:
    receiver.answer = answering(status)
    outcome = await publish_one(await make_publisher())
    assert isinstance(outcome, Rejected)
    assert outcome.code == f"HTTP_{status}"


async def test_an_endpoint_that_is_gone_says_so(receiver: Receiver, make_publisher: Open) -> None:
    receiver.answer = answering(410)
    assert await publish_one(await make_publisher()) == Unavailable("ENDPOINT_GONE", "410 Gone", until_told=True)


async def test_a_redirect_is_not_followed(receiver: Receiver, make_publisher: Open) -> None:
    receiver.answer = answering(307, Location="/elsewhere")
    assert isinstance(await publish_one(await make_publisher()), Unavailable)
    assert [received.request.path for received in receiver.requests] == ["/hooks"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", timedelta(0)),
        ("120", timedelta(minutes=2)),
        (" 120 ", timedelta(minutes=2)),
        ("86401", timedelta(hours=24)),
        ("9" * 5000, timedelta(hours=24)),
        ("Sun, 15 Nov 2026 09:31:00 GMT", timedelta(minutes=1)),
        ("Sunday, 15-Nov-26 09:31:00 GMT", timedelta(minutes=1)),
        ("Sun Nov 15 09:31:00 2026", timedelta(minutes=1)),
        ("Sun, 15 Nov 2026 09:29:00 GMT", timedelta(0)),
        ("Sun, 15 Nov 2099 09:29:00 GMT", timedelta(hours=24)),
        *((nonsense, None) for nonsense in (None, "", "-5", "1.5", "soon", "٣", "Sun, 99 Nov 2026 09:29:00 GMT")),
    ],
)
def test_retry_after_is_seconds_or_a_date_within_a_day(value: str | None, expected: timedelta | None) -> None:
    assert read_retry_after(value, NOW) == expected


async def test_a_long_answer_is_read_in_part_and_cut(receiver: Receiver, make_publisher: Open) -> None:
    receiver.answer = answering(500, "\x1b[31m" + "x" * 40 * RESPONSE_MAX)
    outcome = await publish_one(await make_publisher())
    assert isinstance(outcome, Failed)
    assert len(outcome.error) == ERROR_MAX
    assert outcome.error.isprintable()
    receiver.answer = answering(200, "x" * 40 * RESPONSE_MAX)
    assert await publish_one(await make_publisher()) == Sent(200)


async def test_a_status_decides_though_its_body_never_ends(receiver: Receiver, make_publisher: Open) -> None:
    never = asyncio.Event()

    async def trickle(received: Received) -> web.StreamResponse:
        response = web.StreamResponse(status=200)
        await response.prepare(received.request)
        await never.wait()
        return response

    receiver.answer = trickle
    assert await publish_one(await make_publisher(), timeout=SHORT) == Sent(200)


# When no answer comes


async def test_a_receiver_that_is_slow_is_a_failure_of_unknown_effect(receiver: Receiver, make_publisher: Open) -> None:
    receiver.answer = Held()
    assert await publish_one(await make_publisher(), timeout=SHORT) == Failed(
        "TIMEOUT", "no answer in time", unknown=True
    )


async def test_a_broken_connection_is_a_failure_of_unknown_effect(receiver: Receiver, make_publisher: Open) -> None:
    async def hang_up(received: Received) -> web.StreamResponse:
        assert received.request.transport is not None
        received.request.transport.abort()
        return web.Response()

    receiver.answer = hang_up
    outcome = await publish_one(await make_publisher())
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.unknown) == ("CONNECTION_BROKEN", True)


async def test_an_answer_that_is_no_http_is_a_failure_of_unknown_effect(make_publisher: Open) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await publish_one(await make_publisher(f"http://127.0.0.1:{port}/"))
    assert isinstance(outcome, Failed)
    assert outcome.unknown


async def test_nobody_listening_is_unavailable(make_publisher: Open) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        outcome = await publish_one(await make_publisher(f"http://127.0.0.1:{unused.getsockname()[1]}/"))
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "CONNECT_FAILED"


async def test_a_name_that_nobody_knows_is_unavailable(make_publisher: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    outcome = await publish_one(await make_publisher("http://nowhere.invalid/"))
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "DNS_FAILED"


async def test_time_that_is_up_before_there_is_a_connection_is_unavailable(
    make_publisher: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    outcome = await publish_one(await make_publisher("http://slow.example/"), timeout=SHORT)
    assert outcome == Unavailable("CONNECT_TIMEOUT", "no answer in time")


async def test_a_receiver_that_speaks_no_tls_is_unavailable(receiver: Receiver, make_publisher: Open) -> None:
    outcome = await publish_one(await make_publisher(receiver.url.replace("http:", "https:")))
    assert isinstance(outcome, Unavailable)
    assert outcome.code == "TLS_FAILED"
    assert receiver.requests == []


# Many at a time


async def test_when_the_time_is_up_what_was_not_started_is_unavailable(
    receiver: Receiver, make_publisher: Open
) -> None:
    receiver.answer = Held()
    publisher = await make_publisher(concurrency=2)
    outcomes = await publish(publisher, *(Message("order.paid") for _ in range(5)), timeout=SHORT)
    assert [getattr(outcome, "code", "") for outcome in outcomes] == ["TIMEOUT"] * 2 + ["NOT_STARTED"] * 3
    assert [type(outcome) for outcome in outcomes] == [Failed] * 2 + [Unavailable] * 3


async def test_no_more_are_under_way_than_asked_for(receiver: Receiver, make_publisher: Open) -> None:
    under_way, most = 0, 0

    async def count(received: Received) -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.005)
        under_way -= 1
        return web.Response()

    receiver.answer = count
    await publish(await make_publisher(concurrency=3), *(Message("order.paid") for _ in range(12)))
    assert most == 3


async def test_a_key_that_waits_holds_up_no_other(receiver: Receiver, make_publisher: Open) -> None:
    held = Held()

    async def hold_a(received: Received) -> web.StreamResponse:
        if received.headers.get("ce-subject") == "a":
            return await held(received)
        if len(receiver.requests) == 2:  # the last of the others
            held.release.set()
        return web.Response()

    receiver.answer = hold_a
    messages = [Message("order.paid", key=key) for key in ("a", "a", "b", "b", None)]
    assert [type(outcome) for outcome in await publish(await make_publisher(), *messages)] == [Sent] * 5
    assert [message.key for message in receiver.messages()][-2:] == ["a", "a"]


async def test_behind_a_failure_its_key_stops(receiver: Receiver, make_publisher: Open) -> None:
    receiver.answer = answering(503)
    first, second = await publish(await make_publisher(), *(Message("order.paid", key="a") for _ in range(2)))
    assert isinstance(first, Failed)
    assert second == Unavailable("KEY_STOPPED", "an earlier message of its key was not sent")
    assert len(receiver.requests) == 1


# Public addresses only


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0.0.0.0", "127.0.0.1."),
        *("[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[fe80::1%25lo]", "１２７.0.0.1"),
    ],
)
async def test_a_host_inside_is_blocked_however_it_is_spelled(
    receiver: Receiver, make_publisher: Open, host: str
) -> None:
    publisher = await make_publisher(f"http://{host}:{receiver.port}/hooks", public_only=True)
    outcome = await publish_one(publisher)
    assert isinstance(outcome, Rejected), f"expected Rejected, got {outcome}"
    assert outcome.code == "SSRF_BLOCKED"
    assert receiver.requests == []


async def test_a_name_is_blocked_when_one_of_its_addresses_is_inside(
    make_publisher: Open, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def both(*_: Any, **__: Any) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, receiver.port)) for address in ("8.8.8.8", "10.0.0.1")
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    outcome = await publish_one(await make_publisher("http://rebinding.example/", public_only=True))
    assert outcome == Rejected("SSRF_BLOCKED", "rebinding.example leads to 10.0.0.1, which is not a public address")


async def test_a_public_name_is_delivered_to_without_showing_the_answer(
    receiver: Receiver, make_publisher: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_ip, "is_public", lambda address: True)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    publisher = await make_publisher(f"http://localhost:{receiver.port}/hooks", public_only=True)
    assert await publish_one(publisher) == Sent(204)
    receiver.answer = answering(400, "a secret of the inside")
    assert await publish_one(publisher) == Rejected("HTTP_400", "400 Bad Request")


# Opening and closing


async def test_close_waits_for_what_is_being_published(receiver: Receiver, make_publisher: Open) -> None:
    receiver.answer = held = Held()
    publisher = await make_publisher()
    publishing = asyncio.create_task(publish_one(publisher))
    await asyncio.wait_for(held.reached.wait(), 5)
    closing = asyncio.create_task(publisher.close())
    await asyncio.sleep(0)
    assert not closing.done()
    held.release.set()
    assert await publishing == Sent(204)
    await closing
    await publisher.close()


async def test_a_closed_publisher_answers_that_it_is(receiver: Receiver, make_publisher: Open) -> None:
    publisher = await make_publisher()
    await publisher.close()
    assert await publish_one(publisher) == Unavailable("CLOSED", "the publisher is not open")
    await publisher.open()
    assert await publish_one(publisher) == Sent(204)


@pytest.mark.parametrize("url", ["http://localhost:8080/hooks", "https://shop.example/hooks", "HTTPS://shop.example"])
async def test_a_url_opens_it(url: str) -> None:
    assert isinstance(open_publisher(url), HttpPublisher)


@pytest.mark.parametrize("url", ["https://", "https:///path", "https://app:s3cret@shop:port/", "ftp://shop.example"])
def test_a_url_that_names_no_receiver_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HttpPublisher(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"source": ""}])
def test_a_setting_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        HttpPublisher("https://shop.example", **wrong)


def test_a_stranger_gives_no_user() -> None:
    with pytest.raises(ConfigError):
        HttpPublisher("https://app:s3cret@shop.example", public_only=True)


def test_without_aiohttp_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("postroom.transports.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(MissingDependency, match=r"pip install 'postroom\[http\]'"):
        open_publisher("https://shop.example")


async def test_nothing_is_begun_in_the_second_half_of_the_time(receiver: Receiver, make_publisher: Open) -> None:
    """A message begun late has less time than the one before it, and would pay an attempt for that alone."""

    async def slow(received: Received) -> web.StreamResponse:
        await asyncio.sleep(1.2)
        return web.Response()

    receiver.answer = slow
    line = [Message("order.paid", key="a") for _ in range(3)]
    outcomes = await publish(await make_publisher(), *line, timeout=timedelta(seconds=2))
    assert [getattr(outcome, "code", "SENT") for outcome in outcomes] == ["SENT", "NOT_STARTED", "NOT_STARTED"]
    assert len(receiver.requests) == 1


async def test_a_receiver_that_repeats_the_path_does_not_bring_its_token_into_the_error(
    receiver: Receiver, make_publisher: Open
) -> None:
    token = "T0/Zq7XZq7X"
    receiver.answer = answering(500, f"Cannot POST /hooks/{token}?key=Zq7X%25key or Zq7X%key")
    outcome = await publish_one(await make_publisher(f"{receiver.url}/{token}?key=Zq7X%25key"))
    assert isinstance(outcome, Failed)
    assert "Cannot POST /hooks/T0/***?key=*** or ***" in outcome.error
    assert "Zq7X" not in outcome.error
