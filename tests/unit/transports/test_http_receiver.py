"""Webhooks come in over real HTTP: what is taken, what is refused and how, and what each answer means to a sender."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
import uvicorn
from multidict import CIMultiDict
from starlette.applications import Starlette
from starlette.routing import Route
from tests.servers.ports import free_port
from yarl import URL

from postroom.clock import utcnow
from postroom.contracts.transport import Consumer, ConsumerOptions, Delivery, Envelope, Failed, Outcome, Sent
from postroom.errors import ConfigError, TransportUnavailable
from postroom.message import Message
from postroom.testing.contracts.consumer import receive
from postroom.transports import open_consumer
from postroom.transports.http import HttpConsumer, HttpPublisher, Receiver
from postroom.transports.http.open_requests import OpenRequests
from postroom.transports.http.signature import read_secret, sign, unproven

SECOND = timedelta(seconds=1)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ="
ID = "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11"
EVENT = {"ce-specversion": "1.0", "ce-id": ID, "ce-source": "shop", "ce-type": "order.paid"}
JSON = {"content-type": "application/json"}
STRUCTURED = {"content-type": "application/cloudevents+json; charset=UTF-8"}

Handle = Callable[[Consumer, Delivery], Awaitable[None]]


class Place:
    """A receiver that is served, and whoever handles what it takes."""

    def __init__(self, desk: OpenRequests, url: str) -> None:
        self.desk, self.url = desk, url
        self.received: list[Delivery] = []

    async def post(self, body: bytes = b"1", headers: dict[str, str] | None = None, method: str = "POST") -> Any:
        """Status, headers, body."""
        async with (
            aiohttp.ClientSession(skip_auto_headers={"Content-Type"}) as session,
            session.request(method, self.url, data=body, headers={**EVENT, **(headers or {})}) as response,
        ):
            return response.status, response.headers, await response.read()

    async def handle(self, how: Handle | None = None) -> None:
        """For ever."""
        while True:
            for delivery in await self.desk.receive(10, wait=SECOND):
                self.received.append(delivery)
                await (how or acknowledge)(self.desk, delivery)


async def acknowledge(consumer: Consumer, delivery: Delivery) -> None:
    await consumer.ack([delivery])


def with_proof(options: dict[str, Any]) -> dict[str, Any]:
    """The options, and that it is unsigned where they have no secrets."""
    return {"unsigned": not options.get("secrets"), **options}


@pytest.fixture(params=["alone", "starlette"])
async def serve(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Awaitable[Place]]]:
    """Serves a receiver, by itself or as a route of Starlette under uvicorn."""
    ending: list[Callable[[], Awaitable[None]]] = []

    async def alone(**options: Any) -> Place:
        consumer = HttpConsumer("http://127.0.0.1:0/hooks", unsigned=True)
        OpenRequests.__init__(consumer, **with_proof(options))
        await consumer.open()
        ending.append(consumer.close)
        return Place(consumer, consumer.url)

    async def starlette(**options: Any) -> Place:
        receiver, port = Receiver(**with_proof(options)), free_port()
        app = Starlette(routes=[Route("/hooks", receiver)])
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", timeout_graceful_shutdown=1))
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined,unused-ignore]
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        await receiver.open()

        async def stop() -> None:
            await receiver.close()
            server.should_exit = True
            await serving

        ending.append(stop)
        return Place(receiver, f"http://127.0.0.1:{port}/hooks")

    yield alone if request.param == "alone" else starlette
    for end in ending:
        await end()


Serve = Callable[..., Awaitable[Place]]


async def handled(place: Place, sending: Awaitable[Any], how: Handle | None = None) -> Any:
    """What the sender was told while somebody handled."""
    handling = asyncio.create_task(place.handle(how))
    try:
        return await sending
    finally:
        handling.cancel()
        with suppress(asyncio.CancelledError):
            await handling


async def publish(url: str, *messages: Message, timeout: timedelta = 10 * SECOND, **options: Any) -> list[Outcome]:
    publisher = HttpPublisher(url, **options)
    await publisher.open()
    outcomes = await publisher.publish([Envelope(each) for each in messages], timeout=timeout)
    await publisher.close()
    return list(outcomes)


# ── what is taken ──


async def test_what_our_publisher_sends_arrives_as_it_was_and_is_answered_when_it_was_acknowledged(
    serve: Serve,
) -> None:
    place = await serve(secrets=[SECRET])
    message = Message("order.paid", key="klíč 7%", data={"a": 1}, headers={"x-tenant": "acme"}, idempotency_key="pay")
    outcomes = await handled(place, publish(place.url, message, secrets=[SECRET], source="https://shop.example"))
    (delivery,) = place.received
    assert delivery.message == message
    assert (delivery.source, delivery.topic, delivery.fault) == ("https://shop.example", "/hooks", None)
    assert outcomes == [Sent(204)]


async def test_an_event_that_is_all_in_the_body_is_taken_too(serve: Serve) -> None:
    place = await serve()
    event = {"specversion": "1.0", "id": ID, "source": "shop", "type": "order.paid", "subject": "7", "data": {"a": 1}}
    status, _, _ = await handled(place, place.post(json.dumps(event).encode(), STRUCTURED))
    (delivery,) = place.received
    assert status == 204
    assert (delivery.message.id_text, delivery.message.key, delivery.message.data) == (ID, "7", {"a": 1})
    event |= {"data_base64": base64.b64encode(b"\x00\xff").decode(), "datacontenttype": "image/png"}
    del event["data"]
    await handled(place, place.post(json.dumps(event).encode(), STRUCTURED))
    assert (place.received[1].message.body, place.received[1].message.content_type) == (b"\x00\xff", "image/png")


async def test_what_concerns_the_request_alone_is_no_header_of_the_message(serve: Serve) -> None:
    place = await serve()
    secret = {"authorization": "Basic c2VjcmV0", "cookie": "a=b", "x-forwarded-for": "10.0.0.1", "x-tenant": "acme"}
    await handled(place, place.post(headers=secret | JSON))
    assert dict(place.received[0].message.headers) == {"x-tenant": "acme"}


# ── what becomes of it ──


async def test_what_was_refused_for_now_is_to_be_sent_again_later(serve: Serve) -> None:
    place = await serve()

    async def refuse(consumer: Consumer, delivery: Delivery) -> None:
        await consumer.nack(delivery, delay=timedelta(seconds=6.2))

    (outcome,) = await handled(place, publish(place.url, Message("n")), refuse)
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.retry_after) == ("HTTP_503", timedelta(seconds=7))


async def test_what_was_put_aside_is_not_sent_again(serve: Serve) -> None:
    place = await serve()

    async def put_aside(consumer: Consumer, delivery: Delivery) -> None:
        await consumer.terminate(delivery)

    assert await handled(place, publish(place.url, Message("n")), put_aside) == [Sent(200)]


async def test_what_nobody_handled_in_time_is_lost_here_and_to_be_sent_again(serve: Serve) -> None:
    place = await serve(patience=SECOND / 5)
    posting = asyncio.create_task(place.post())
    (delivery,) = await receive(place.desk, 1)
    assert not place.desk.is_lost(delivery)
    status, headers, body = await posting
    assert (status, headers["retry-after"]) == (503, "0")
    assert json.loads(body)["detail"] == "It was not handled in time."
    assert place.desk.is_lost(delivery)
    await place.desk.ack([delivery])  # too late, and no error


async def test_what_nobody_received_in_time_is_not_handed_out_later(serve: Serve) -> None:
    place = await serve(patience=SECOND / 5)
    await place.post()
    assert await place.desk.receive(1, wait=timedelta(0)) == []


async def test_a_sender_that_hangs_up_has_lost_its_delivery_and_frees_its_place(serve: Serve) -> None:
    place = await serve(prefetch=1)
    publishing = asyncio.create_task(publish(place.url, Message("n"), timeout=SECOND))
    (delivery,) = await receive(place.desk, 1)
    (outcome,) = await publishing
    assert isinstance(outcome, Failed)
    assert outcome.unknown
    for _ in range(200):
        if place.desk.is_lost(delivery):
            break
        await asyncio.sleep(0.01)
    assert place.desk.is_lost(delivery)
    assert await handled(place, publish(place.url, Message("n"))) == [Sent(204)]


async def test_above_the_prefetch_a_sender_is_told_to_come_again(serve: Serve) -> None:
    place = await serve(prefetch=2)
    first = [asyncio.create_task(place.post(headers={"ce-id": str(number)})) for number in range(2)]
    deliveries = await receive(place.desk, 2)
    status, headers, _ = await place.post()
    assert (status, headers["retry-after"]) == (503, "1")
    await place.desk.ack(deliveries)
    assert [answer[0] for answer in await asyncio.gather(*first)] == [204, 204]
    assert (await handled(place, place.post()))[0] == 204


async def test_closing_answers_those_who_wait_and_opening_takes_requests_again(serve: Serve) -> None:
    place = await serve()
    posting = asyncio.create_task(place.post())
    (delivery,) = await receive(place.desk, 1)
    await place.desk.close()
    status, headers, _ = await posting
    assert (status, headers["retry-after"]) == (503, "0")
    assert place.desk.is_lost(delivery)
    with pytest.raises(TransportUnavailable, match="closed"):
        await place.desk.receive(1, wait=SECOND)
    await place.desk.open()
    if isinstance(place.desk, HttpConsumer):
        place.url = place.desk.url
    assert (await handled(place, place.post()))[0] == 204


# ── what is refused ──


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
async def test_only_post_is_taken(serve: Serve, method: str) -> None:
    status, headers, _ = await (await serve()).post(method=method)
    assert (status, headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("headers", "body", "status", "why"),
    [
        ({"ce-id": ""}, b"1", 400, "no CloudEvents id"),
        ({"ce-type": ""}, b"1", 400, "no CloudEvents type"),
        ({"ce-id": "%ff"}, b"1", 400, "not UTF-8"),
        (STRUCTURED, b"no json", 400, "not JSON"),
        (STRUCTURED, b"[]", 400, "not a JSON object"),
        (STRUCTURED, b'{"id":"1","type":"t","data":1,"data_base64":"MQ=="}', 400, "both data and data_base64"),
        (STRUCTURED, b'{"id":"1","type":"t","data_base64":"?"}', 400, "not base64"),
        (STRUCTURED, b'{"id":"1","type":"t","x":[]}', 400, "neither text, number"),
        ({"content-type": "application/cloudevents-batch+json"}, b"[]", 415, "format"),
        ({"content-type": "application/cloudevents+avro"}, b"", 415, "format"),
    ],
)
async def test_what_is_no_event_is_refused_and_says_why(
    serve: Serve, headers: dict[str, str], body: bytes, status: int, why: str
) -> None:
    place = await serve()
    answered, answer_headers, said = await place.post(body, headers)
    problem = json.loads(said)
    assert (answered, problem["status"]) == (status, status)
    assert why in problem["detail"]
    assert answer_headers["content-type"] == "application/problem+json"
    assert await place.desk.receive(1, wait=timedelta(0)) == []


@pytest.mark.parametrize("name", ["ce-id", "webhook-id"])
async def test_an_event_that_says_one_thing_twice_is_refused_whatever_it_is_signed_with(
    serve: Serve, name: str
) -> None:
    place = await serve(secrets=[SECRET])
    twice = [*EVENT.items(), (name, "one"), (name, "two")]
    async with (
        aiohttp.ClientSession() as session,
        session.post(place.url, data=b"1", headers=CIMultiDict(twice)) as response,
    ):
        assert response.status == 400
        assert f"Its header {name} is there twice" in (await response.json(content_type=None))["detail"]
    assert await place.desk.receive(1, wait=timedelta(0)) == []


async def test_a_body_too_large_is_refused_whether_it_says_so_or_not(serve: Serve) -> None:
    place = await serve(largest=1000)

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield bytes(100)

    assert (await handled(place, place.post(bytes(1000))))[0] == 204
    assert (await place.post(bytes(1001)))[0] == 413
    async with aiohttp.ClientSession() as session, session.post(place.url, data=parts(), headers=EVENT) as response:
        assert response.status == 413
    assert len(place.received) == 1


async def test_a_body_that_never_ends_gives_its_place_back(serve: Serve) -> None:
    place = await serve(patience=SECOND / 5, prefetch=1)

    async def drip() -> AsyncIterator[bytes]:
        yield b"1"
        await asyncio.sleep(1)
        yield b"2"

    async with aiohttp.ClientSession() as session, session.post(place.url, data=drip(), headers=EVENT) as response:
        assert response.status == 408
    assert (await handled(place, place.post()))[0] == 204


# ── signatures ──

VECTOR_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
VECTOR_TIME = 1614265330
VECTOR_BODY = b'{"test": 2432232314}'
VECTOR = {
    "webhook-id": VECTOR_ID,
    "webhook-timestamp": str(VECTOR_TIME),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
KEYS = [read_secret(SECRET)]


def test_the_vector_of_standard_webhooks_is_proven() -> None:
    assert unproven(KEYS, VECTOR, VECTOR_BODY, VECTOR_TIME) is None
    assert unproven([b"other", *KEYS], VECTOR, VECTOR_BODY, VECTOR_TIME) is None
    several = VECTOR | {"webhook-signature": f"v1a,xyz v1,AAAA {VECTOR['webhook-signature']}"}
    assert unproven(KEYS, several, VECTOR_BODY, VECTOR_TIME) is None


@pytest.mark.parametrize(
    ("changes", "body", "keys", "now", "why"),
    [
        ({}, b'{"test": 2432232315}', KEYS, 0, "None of its signatures"),
        ({"webhook-id": "msg_other"}, VECTOR_BODY, KEYS, 0, "None of its signatures"),
        ({"webhook-timestamp": str(VECTOR_TIME + 1)}, VECTOR_BODY, KEYS, 0, "None of its signatures"),
        ({}, VECTOR_BODY, [b"other"], 0, "None of its signatures"),
        ({"webhook-signature": "v1,é"}, VECTOR_BODY, KEYS, 0, "None of its signatures"),
        ({"webhook-signature": "v1,"}, VECTOR_BODY, KEYS, 0, "None of its signatures"),
        ({"webhook-signature": "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}, VECTOR_BODY, KEYS, 0, "not signed"),
        ({"webhook-signature": ""}, VECTOR_BODY, KEYS, 0, "not signed"),
        ({"webhook-id": ""}, VECTOR_BODY, KEYS, 0, "not signed"),
        ({"webhook-timestamp": "soon"}, VECTOR_BODY, KEYS, 0, "not a number"),
        ({"webhook-timestamp": "9" * 5000}, VECTOR_BODY, KEYS, 0, "not a number"),
        ({"webhook-timestamp": "-1"}, VECTOR_BODY, KEYS, 0, "not a number"),
        ({}, VECTOR_BODY, KEYS, 301, "five minutes"),
        ({}, VECTOR_BODY, KEYS, -301, "five minutes"),
    ],
)
def test_what_was_not_signed_so_is_not_proven(
    changes: dict[str, str], body: bytes, keys: list[bytes], now: int, why: str
) -> None:
    assert why in str(unproven(keys, VECTOR | changes, body, VECTOR_TIME + now))


def test_the_tolerance_is_five_minutes_both_ways() -> None:
    assert unproven(KEYS, VECTOR, VECTOR_BODY, VECTOR_TIME + 300) is None
    assert unproven(KEYS, VECTOR, VECTOR_BODY, VECTOR_TIME - 300) is None


async def test_what_is_not_signed_or_not_by_us_is_refused_by_401(serve: Serve) -> None:
    place = await serve(secrets=[SECRET])
    for headers in ({}, sign([b"another key"], ID, int(utcnow().timestamp()), b"1")):
        status, answer_headers, said = await place.post(b"1", headers)
        assert (status, answer_headers["content-type"]) == (401, "application/problem+json")
        assert SECRET not in said.decode()
    assert await place.desk.receive(1, wait=timedelta(0)) == []


async def test_while_secrets_change_either_is_enough(serve: Serve) -> None:
    place = await serve(secrets=[SECRET, OLD_SECRET])
    for secrets in ([OLD_SECRET], [SECRET], [SECRET, OLD_SECRET]):
        assert await handled(place, publish(place.url, Message("n"), secrets=secrets)) == [Sent(204)]


async def test_a_signed_copy_under_another_id_is_refused(serve: Serve) -> None:
    """The signature covers webhook-id, not ce-id: whoever repeats a request must not make a new message of it."""
    place = await serve(secrets=[SECRET])
    signed = sign(KEYS, ID, int(utcnow().timestamp()), b"1")
    status, _, said = await place.post(b"1", {**signed, "ce-id": "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c12"})
    assert status == 401
    assert b"ce-id" in said
    assert (await handled(place, place.post(b"1", signed)))[0] == 204


# ── the address ──


@pytest.mark.parametrize(
    "url", ["http://", "http://u:p@0.0.0.0/x", "http://0.0.0.0/x?a=b", "http://0.0.0.0/x#y", "http://0.0.0.0:x/"]
)
def test_a_url_that_is_nothing_to_listen_at_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_consumer(url)
    assert ":p@" not in str(caught.value)


def test_tls_groups_and_nothing_in_hand_are_refused() -> None:
    with pytest.raises(ConfigError, match="Nothing can be received from https"):
        open_consumer("https://0.0.0.0/hooks")
    with pytest.raises(ConfigError, match="cannot honour group"):
        open_consumer("http://0.0.0.0/hooks", ConsumerOptions(group="billing"))
    with pytest.raises(ConfigError, match="prefetch is 0"):
        open_consumer("http://0.0.0.0/hooks", ConsumerOptions(prefetch=0))


async def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    first = HttpConsumer("http://127.0.0.1:0/hooks", unsigned=True)
    await first.open()
    with pytest.raises(TransportUnavailable, match=r"Postroom cannot listen at 127\.0\.0\.1:"):
        await HttpConsumer(first.url, unsigned=True).open()
    await first.close()


async def test_another_path_is_not_found_and_an_unopened_receiver_says_come_again() -> None:
    consumer = HttpConsumer("http://127.0.0.1:0/hooks", unsigned=True)
    await consumer.open()
    place = Place(consumer, consumer.url.replace("hooks", "other"))
    assert (await place.post())[0] == 404
    await consumer.close()
    receiver, port = Receiver(unsigned=True), free_port()
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Route("/hooks", receiver)]), port=port, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    assert (await Place(receiver, f"http://127.0.0.1:{port}/hooks").post())[0] == 503
    server.should_exit = True
    await serving


async def test_by_itself_an_asgi_server_opens_and_closes_it() -> None:
    receiver, port = Receiver(unsigned=True), free_port()
    server = uvicorn.Server(uvicorn.Config(receiver, port=port, log_level="error", lifespan="on"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    place = Place(receiver, f"http://127.0.0.1:{port}/anywhere")
    assert (await handled(place, place.post()))[0] == 204
    server.should_exit = True
    await serving
    with pytest.raises(TransportUnavailable):
        await receiver.receive(1, wait=SECOND)


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_comes_while_it_closes_is_closed_too(turns: int) -> None:
    consumer = HttpConsumer("http://127.0.0.1:0/hooks", unsigned=True)
    await consumer.open()
    port = URL(consumer.url).port
    with socket.create_connection(("127.0.0.1", port)) as sender:  # nothing else runs meanwhile
        for _ in range(turns):
            await asyncio.sleep(0)
        await consumer.close()
        sender.setblocking(False)
        async with asyncio.timeout(5):
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(sender, 1) == b""


async def test_a_port_0_is_any_that_is_free() -> None:
    first, second = (HttpConsumer("http://127.0.0.1:0/hooks", unsigned=True) for _ in range(2))
    await first.open()
    await second.open()
    ports = {URL(first.url).port, URL(second.url).port}
    assert len(ports - {0, 80}) == 2
    await first.close()
    await second.close()


@pytest.mark.parametrize("make", [Receiver, lambda **options: HttpConsumer("http://127.0.0.1:0/hooks", **options)])
def test_a_receiver_without_secrets_is_refused_unless_it_is_said_to_be_unsigned(
    make: Callable[..., OpenRequests],
) -> None:
    """Open to everybody must not be what one gets by forgetting something."""
    with pytest.raises(ConfigError, match="no secret, so that anybody could send"):
        make()
    with pytest.raises(ConfigError, match="leave out the secrets, or unsigned"):
        make(secrets=[SECRET], unsigned=True)
    make(unsigned=True)
    make(secrets=[SECRET])
