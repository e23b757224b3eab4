"""Deliveries to SQS: what a batch becomes, and what becomes of it when something goes wrong."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.servers import sqs
from tests.servers.gate import Gate
from tests.servers.queues import everything_in, fresh_queue, with_queue
from tests.unit.transports.scripted_sqs import Answer, Entries, ScriptedSqs, all_sent, error, scripted_sqs

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
from postroom.errors import ConfigError, MissingDependency, TransportUnavailable
from postroom.message import Message
from postroom.transports import open_publisher
from postroom.transports.sqs import SqsPublisher
from postroom.transports.sqs.decoding import event_in

TIMEOUT = timedelta(seconds=10)
QUEUE = "orders.fifo"


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sqs.CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def script(credentials: None) -> AsyncIterator[ScriptedSqs]:
    async with scripted_sqs() as script:
        yield script


@pytest.fixture
async def publisher(script: ScriptedSqs) -> AsyncIterator[SqsPublisher]:
    publisher = SqsPublisher(with_queue(script.url, QUEUE))
    await publisher.open()
    yield publisher
    await publisher.close()


@pytest.fixture
def queue(sqs_url: str) -> Iterator[str]:
    with fresh_queue(sqs_url) as queue:
        yield queue


async def publish(
    publisher: SqsPublisher, *messages: Message, topic: str | None = None, timeout: timedelta = TIMEOUT
) -> list[Outcome]:
    return list(await publisher.publish([Envelope(message, topic) for message in messages], timeout=timeout))


async def sent_through(url: str, *messages: Message) -> list[Outcome]:
    publisher = SqsPublisher(url)
    await publisher.open()
    try:
        return await publish(publisher, *messages)
    finally:
        await publisher.close()


def numbered(count: int, key: str | None = None, **more: Any) -> list[Message]:
    return [Message("order.paid", key=key, data=number, **more) for number in range(count)]


# ── what a batch becomes ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_batch_goes_in_requests_of_ten_many_at_once(script: ScriptedSqs, publisher: SqsPublisher) -> None:
    assert await publish(publisher, *numbered(35)) == [Sent()] * 35
    assert sorted(len(request) for request in script.requests) == [5, 10, 10, 10]


async def test_no_request_has_two_messages_of_a_key_and_each_waits_for_the_one_before(
    script: ScriptedSqs, publisher: SqsPublisher
) -> None:
    messages = [message for key in "abc" for message in numbered(5, key)]
    assert await publish(publisher, *messages) == [Sent()] * 15
    for request in script.requests:
        groups = [entry["MessageGroupId"] for entry in request]
        assert len(set(groups)) == len(groups)
    of_a = [entry for request in script.requests for entry in request if entry["MessageGroupId"] == "a"]
    assert [event_in(entry["MessageBody"], {})[0].data for entry in of_a] == list(range(5))


async def test_in_a_fifo_queue_the_key_is_the_group_and_the_id_tells_a_repeated_one(
    script: ScriptedSqs, publisher: SqsPublisher
) -> None:
    keyed, keyless = Message("order.paid", key="order-7"), Message("order.paid")
    await publish(publisher, keyed, keyless)
    ((first, second),) = script.requests
    assert (first["MessageGroupId"], first["MessageDeduplicationId"]) == ("order-7", str(keyed.id))
    assert (second["MessageGroupId"], second["MessageDeduplicationId"]) == (str(keyless.id), str(keyless.id))


async def test_in_a_standard_queue_there_are_no_groups(script: ScriptedSqs, publisher: SqsPublisher) -> None:
    await publish(publisher, Message("order.paid", key="order-7"), topic="orders")
    ((entry,),) = script.requests
    assert set(entry) == {"Id", "MessageBody", "MessageAttributes"}
    assert entry["MessageAttributes"]["content-type"]["StringValue"] == "application/cloudevents+json"


async def test_keys_and_bytes_that_sqs_would_refuse_arrive_as_they_were(sqs_url: str, queue: str) -> None:
    messages = [
        Message("order.paid", key="ключ с пробелами", body=bytes(range(256)), content_type="application/octet-stream"),
        Message("order.paid", key="x" * 300, data={"text": "\x00\ufffe\uffff\U0001f600"}),
        Message("order.paid", key="\x01", headers={"x": "\x02\uffff"}),
    ]
    assert await sent_through(with_queue(sqs_url, queue), *messages) == [Sent()] * 3
    found = [event_in(each["Body"], {})[0] for each in everything_in(sqs_url, queue)]
    assert sorted(found, key=lambda each: each.id) == sorted(messages, key=lambda each: each.id)


async def test_a_message_sent_twice_stands_in_a_fifo_queue_once(sqs_url: str, queue: str) -> None:
    message = Message("order.paid", key="a", data=1)
    for _ in range(2):
        assert await sent_through(with_queue(sqs_url, queue), message) == [Sent()]
    assert len(everything_in(sqs_url, queue)) == 1


# ── how large ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_larger_than_the_queue_takes_is_rejected_before_it_is_sent_and_takes_no_other_with_it(
    script: ScriptedSqs, publisher: SqsPublisher
) -> None:
    large, small = (
        Message("order.paid", key="a", body=b"x" * 200_000),
        Message("order.paid", key="b", data="x" * 150_000),
    )
    outcomes = await publish(publisher, large, Message("order.paid", key="a"), small)
    assert isinstance(outcomes[0], Rejected)
    assert (outcomes[0].code, outcomes[1:]) == ("PAYLOAD_TOO_LARGE", [KEY_STOPPED, Sent()])
    assert [len(request) for request in script.requests] == [1]


async def test_the_queues_own_limit_counts_to_the_byte(sqs_url: str) -> None:
    with fresh_queue(sqs_url, {"MaximumMessageSize": 2_048}) as queue:
        outcomes = await sent_through(
            with_queue(sqs_url, queue),
            *[Message("a", data="x" * size, key=str(size)) for size in range(1_600, 1_800, 4)],
        )
        arrived = everything_in(sqs_url, queue)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == sorted(kinds, key=lambda kind: kind is Rejected), "up to a size all are sent, above it none"
    assert set(kinds) == {Sent, Rejected}
    assert len(arrived) == kinds.count(Sent)
    assert {getattr(outcome, "code", "") for outcome in outcomes} == {"", "PAYLOAD_TOO_LARGE"}


async def test_a_request_is_not_larger_than_sqs_takes(script: ScriptedSqs, publisher: SqsPublisher) -> None:
    assert await publish(publisher, *[Message("a", data="x" * 100_000) for _ in range(5)]) == [Sent()] * 5
    assert sorted(len(request) for request in script.requests) == [1, 2, 2]


@pytest.mark.filterwarnings("ignore:Sending a large body")  # aiohttp's, of the AWS library; shown to nobody but tests
async def test_ten_large_ones_arrive(sqs_url: str, queue: str) -> None:
    outcomes = await sent_through(with_queue(sqs_url, queue), *[Message("a", data="ж" * 200_000) for _ in range(10)])
    assert outcomes == [Sent()] * 10


# ── what goes wrong ───────────────────────────────────────────────────────────────────────────────────────────────────


def fails(code: str, *, sender_fault: bool, at: int = 0) -> Any:
    """One entry fails, the others are sent: HTTP 200 all the same."""

    def answer(entries: Entries) -> Answer:
        failed = {"Id": entries[at]["Id"], "Code": code, "Message": "bad", "SenderFault": sender_fault}
        sent = [{"Id": entry["Id"]} for place, entry in enumerate(entries) if place != at]
        return 200, {"Successful": sent, "Failed": [failed]}

    return answer


async def test_one_entry_of_a_batch_fails_and_the_others_are_sent(script: ScriptedSqs, publisher: SqsPublisher) -> None:
    script.answer = fails("InternalError", sender_fault=False)
    assert await publish(publisher, *numbered(3)) == [Failed("InternalError", "bad"), Sent(), Sent()]
    script.answer = fails("InvalidMessageContents", sender_fault=True)
    assert await publish(publisher, *numbered(3)) == [Rejected("InvalidMessageContents", "bad"), Sent(), Sent()]


async def test_behind_an_entry_that_failed_nothing_of_its_key_is_sent(
    script: ScriptedSqs, publisher: SqsPublisher
) -> None:
    script.answer = fails("InternalError", sender_fault=False)
    outcomes = await publish(publisher, *numbered(2, "a"), Message("order.paid", key="b"))
    assert outcomes == [Failed("InternalError", "bad"), KEY_STOPPED, Sent()]
    assert len(script.requests) == 1


async def test_an_entry_that_the_answer_does_not_name_is_not_taken_for_sent(
    script: ScriptedSqs, publisher: SqsPublisher
) -> None:
    script.answer = lambda entries: all_sent(entries[1:])
    first, second = await publish(publisher, *numbered(2))
    assert isinstance(first, Failed)
    assert first.unknown
    assert second == Sent()


async def test_a_request_refused_as_a_whole_goes_again_one_by_one(script: ScriptedSqs, publisher: SqsPublisher) -> None:
    def answer(entries: Entries) -> Answer:
        bad = any(entry["MessageGroupId"] == "bad" for entry in entries)
        return error("InvalidParameterValue") if bad else all_sent(entries)

    script.answer = answer
    outcomes = await publish(publisher, *[Message("a", key=key) for key in ("a", "bad", "b")])
    assert [type(outcome) for outcome in outcomes] == [Sent, Rejected, Sent]
    assert [len(request) for request in script.requests] == [3, 1, 1, 1]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (error("RequestThrottled"), "THROTTLED"),
        (error("Throttled", 429), "THROTTLED"),
        (error("X", 503), "UNAVAILABLE"),
    ],
)
async def test_throttled_or_unavailable_costs_no_attempt_and_is_not_asked_again_for_each(
    script: ScriptedSqs, publisher: SqsPublisher, answer: Answer, code: str
) -> None:
    script.answer = lambda _: answer
    outcomes = await publish(publisher, *numbered(400))
    assert {(type(outcome), getattr(outcome, "code", "")) for outcome in outcomes} == {(Unavailable, code)}
    assert len(script.requests) <= 16


async def test_a_queue_that_is_not_there_rejects_its_message_and_no_other(sqs_url: str, queue: str) -> None:
    publisher = SqsPublisher(sqs_url)
    await publisher.open()
    batch = [Envelope(Message("a", topic=topic)) for topic in ("missing", "no/name", queue)] + [Envelope(Message("a"))]
    first, second, third, fourth = await publisher.publish(batch, timeout=TIMEOUT)
    await publisher.close()
    for outcome, code in ((first, "UNROUTABLE"), (second, "UNROUTABLE"), (fourth, "NO_TOPIC")):
        assert isinstance(outcome, Rejected)
        assert outcome.code == code
    assert third == Sent()


async def test_the_urls_own_queue_that_vanished_is_the_routes_trouble(sqs_url: str) -> None:
    with fresh_queue(sqs_url) as queue:
        publisher = SqsPublisher(with_queue(sqs_url, queue))
        await publisher.open()
    outcomes = await publish(publisher, *numbered(2, "a"))
    await publisher.close()
    assert isinstance(outcomes[0], Unavailable)
    assert (outcomes[0].code, outcomes[1]) == ("UNROUTABLE", KEY_STOPPED)


async def test_who_may_send_need_not_be_allowed_to_ask_for_settings(
    script: ScriptedSqs, publisher: SqsPublisher
) -> None:
    script.settings = error("AccessDenied", 403)
    assert await publish(publisher, *numbered(2), topic="mail") == [Sent(), Sent()]


async def test_a_queue_that_may_not_be_asked_for_fails_its_messages_and_stops_no_other(
    script: ScriptedSqs, publisher: SqsPublisher
) -> None:
    script.lookup = error("AccessDenied", 403)
    batch = [Envelope(Message("a"), "secret"), Envelope(Message("a"))]
    first, second = await publisher.publish(batch, timeout=TIMEOUT)
    assert isinstance(first, Failed)
    assert (first.code, second) == ("NOT_AUTHORIZED", Sent())


async def test_a_question_that_was_broken_off_says_nothing_of_the_message(
    script: ScriptedSqs, publisher: SqsPublisher
) -> None:
    script.lookup = error("InternalFailure", 500)
    (outcome,) = await publish(publisher, Message("a"), topic="mail")
    assert isinstance(outcome, Unavailable)


async def test_a_queue_that_is_known_is_used_while_sqs_throttles_questions(
    script: ScriptedSqs, publisher: SqsPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.transports.sqs.publisher.FRESH_SECONDS", 0)
    assert await publish(publisher, Message("a"), topic="mail") == [Sent()]
    script.lookup = error("RequestThrottled")
    assert await publish(publisher, Message("a"), topic="mail") == [Sent()]
    (outcome,) = await publish(publisher, Message("a"), topic="letters")
    assert isinstance(outcome, Unavailable)


# ── time, and the way there ───────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_that_never_came_is_unknown_and_told_in_time(sqs_url: str, sqs_gate: Gate, queue: str) -> None:
    publisher = SqsPublisher(with_queue(sqs.url_at(sqs_gate.port), queue))
    await publisher.open()
    loop = asyncio.get_running_loop()
    with sqs_gate.silent():
        begin = loop.time()
        first, second = await publish(publisher, *numbered(2, "a"), timeout=timedelta(seconds=1))
        assert loop.time() - begin < 1.2
    assert isinstance(first, Failed)
    assert (first.unknown, second) == (True, KEY_STOPPED)
    assert await publish(publisher, *numbered(1, "a")) == [Sent()]
    await publisher.close()
    assert len(everything_in(sqs_url, queue)) == 2, "it had arrived, only the answer had not"


async def test_what_was_not_begun_in_the_first_half_of_the_time_is_not_begun(
    script: ScriptedSqs, publisher: SqsPublisher
) -> None:
    script.delay = 0.3
    outcomes = await publish(publisher, *numbered(20, "a"), timeout=timedelta(seconds=3))
    sent = len(script.requests)
    assert 1 <= sent <= 5
    assert outcomes == [Sent()] * sent + [NOT_STARTED] * (20 - sent)


async def test_a_way_that_is_cut_in_the_middle_says_so_for_each(sqs_gate: Gate, queue: str) -> None:
    publisher = SqsPublisher(with_queue(sqs.url_at(sqs_gate.port), queue))
    await publisher.open()
    publishing = asyncio.create_task(publish(publisher, *[m for key in "abcdef" for m in numbered(40, key)]))
    await asyncio.sleep(0.15)
    sqs_gate.cut()
    outcomes = await publishing
    assert not all(isinstance(outcome, Sent) for outcome in outcomes)
    for begin in range(0, 240, 40):
        of_key = [isinstance(outcome, Sent) for outcome in outcomes[begin : begin + 40]]
        assert of_key == sorted(of_key, reverse=True), "nothing of a key is sent behind one that was not"
    await publisher.close()


async def test_sqs_away_at_the_start_is_told_and_found_when_it_is_back(sqs_gate: Gate, queue: str) -> None:
    publisher = SqsPublisher(with_queue(sqs.url_at(sqs_gate.port), queue))
    sqs_gate.cut()
    with pytest.raises(TransportUnavailable, match="No SQS answers at sqs://eu-central-1/"):
        await publisher.open()
    (outcome,) = await publish(publisher, Message("a"))
    assert isinstance(outcome, Unavailable)
    sqs_gate.open()
    assert await publish(publisher, Message("a")) == [Sent()]
    await publisher.close()


async def test_before_it_is_opened_and_after_it_is_closed_nothing_is_sent(script: ScriptedSqs) -> None:
    publisher = SqsPublisher(with_queue(script.url, QUEUE))
    assert isinstance((await publish(publisher, Message("a")))[0], Unavailable)
    await publisher.open()
    await publisher.close()
    assert isinstance((await publish(publisher, Message("a")))[0], Unavailable)
    assert script.requests == []


async def test_closing_answers_what_is_being_published_first(script: ScriptedSqs, publisher: SqsPublisher) -> None:
    publishing = asyncio.create_task(publish(publisher, *numbered(30, "a")))
    await asyncio.sleep(0.02)
    await publisher.close()
    assert publishing.done()
    assert (await publishing) == [Sent()] * 30


# ── who we are ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_queue_that_is_not_there_is_told_at_the_start(sqs_url: str) -> None:
    with pytest.raises(ConfigError, match="has no such queue"):
        await SqsPublisher(with_queue(sqs_url, "ordrs.fifo")).open()


@pytest.mark.parametrize("queue", ["", "orders.fifo"])
async def test_without_credentials_nothing_is_opened(
    script: ScriptedSqs, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    for name in sqs.CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ConfigError, match="without credentials"):
        await SqsPublisher(with_queue(script.url, queue)).open()


async def test_credentials_that_are_refused_are_told_at_the_start(script: ScriptedSqs) -> None:
    script.listed = error("InvalidClientTokenId", 403, "The security token included in the request is invalid.")
    with pytest.raises(ConfigError, match="refuses our credentials"):
        await SqsPublisher(script.url).open()


async def test_whoever_may_not_list_queues_may_still_send(script: ScriptedSqs) -> None:
    script.listed = error("AccessDenied", 403)
    publisher = SqsPublisher(script.url)
    await publisher.open()
    assert await publish(publisher, Message("a"), topic="orders") == [Sent()]
    await publisher.close()


async def test_a_profile_that_is_not_there_is_told_at_the_start(script: ScriptedSqs) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        await SqsPublisher(script.url + "&profile=nobody").open()


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiobotocore", None)
    monkeypatch.delitem(sys.modules, "postroom.transports.sqs")
    with pytest.raises(MissingDependency, match=r"pip install 'postroom\[sqs\]'"):
        open_publisher("sqs://eu-central-1/orders")
