"""The doctor says what at a real RabbitMQ weakens the promise, changes nothing there, and is silent when all is well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.servers.ports import free_port
from tests.servers.rabbit import Rabbit
from tests.servers.rabbit_queues import bind, channel_to, fresh_name, make_exchange, make_queue, remove

from postroom.errors import TransportUnavailable
from postroom.transports.amqp.doctor import Inspected, of_nodes, of_queue, weaknesses


@pytest.fixture
async def name(amqp_url: str) -> AsyncIterator[str]:
    made = fresh_name()
    yield made
    await remove(amqp_url, made)


@pytest.mark.parametrize(
    ("kind", "durable", "arguments", "words"),
    [
        ("topic", True, {}, []),
        ("fanout", True, {}, []),
        ("topic", False, {}, ["is gone after a restart"]),
        ("direct", True, {"alternate-exchange": "amq.fanout"}, ["sends what no queue takes to 'amq.fanout'"]),
        ("direct", False, {"alternate-exchange": "x"}, ["is gone after a restart", "sends what no queue takes to 'x'"]),
    ],
)
async def test_an_exchange(
    amqp_url: str, name: str, kind: str, durable: bool, arguments: dict[str, str], words: list[str]
) -> None:
    await make_exchange(amqp_url, name, kind, durable=durable, **arguments)
    found = await weaknesses(f"{amqp_url}?exchange={name}")
    assert len(found) == len(words), found
    assert all(word in sentence for word, sentence in zip(words, found, strict=True)), found


@pytest.mark.parametrize(
    ("arguments", "durable", "words"),
    [
        ({"x-queue-type": "quorum"}, True, []),
        ({"x-queue-type": "quorum", "x-single-active-consumer": True}, True, []),
        ({"x-queue-type": "quorum", "x-delivery-limit": 5}, True, ["was delivered more than 5 times"]),
        ({"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "dead"}, True, []),
        ({"x-queue-type": "quorum", "x-max-length": 5, "x-overflow": "reject-publish"}, True, []),
        ({"x-queue-type": "quorum", "x-max-length": 5}, True, ["has max-length=5, which drops its oldest"]),
        ({}, True, ["is not a quorum queue"]),
        ({"x-queue-type": "classic"}, True, ["is not a quorum queue"]),
        ({}, False, ["is gone after a restart", "is not a quorum queue"]),
        (
            {"x-message-ttl": 60000, "x-expires": 3600000},
            True,
            [
                "is not a quorum queue",
                "has message-ttl=60000, which drops messages by their age",
                "has expires=3600000",
            ],
        ),
    ],
)
async def test_a_queue(amqp_url: str, name: str, arguments: dict[str, Any], durable: bool, words: list[str]) -> None:
    await make_queue(amqp_url, name, arguments, durable=durable)
    found = await weaknesses(f"{amqp_url}?queue={name}")
    assert len(found) == len(words), found
    assert all(word in sentence for word, sentence in zip(words, found, strict=True)), found


async def test_a_queue_that_ends_with_its_last_receiver_or_its_connection(amqp_url: str, name: str) -> None:
    async with channel_to(amqp_url) as channel:
        await channel.queue_declare(name, exclusive=True, durable=True)
        assert any("belongs to one connection" in each for each in await weaknesses(f"{amqp_url}?queue={name}"))
    async with channel_to(amqp_url) as channel:
        await channel.queue_declare(name, auto_delete=True, durable=True)
    assert any("deletes itself with its last receiver" in each for each in await weaknesses(f"{amqp_url}?queue={name}"))


async def test_what_is_not_there_is_told_and_not_made(amqp_url: str) -> None:
    for _ in range(2):
        (no_queue,) = await weaknesses(f"{amqp_url}?queue=ordrs")
        (no_exchange,) = await weaknesses(f"{amqp_url}?exchange=ordrs")
        assert "There is no queue 'ordrs'" in no_queue
        assert "There is no exchange 'ordrs'" in no_exchange


async def test_a_broker_that_cannot_be_asked_is_unavailable() -> None:
    with pytest.raises(TransportUnavailable, match="cannot be asked"):
        await weaknesses(f"amqp://app:s3cret@127.0.0.1:{free_port()}/?queue=orders")


async def test_with_the_management_also_nodes_policies_and_the_queues_of_an_exchange(amqp_server: Rabbit) -> None:
    url = amqp_server.url
    asked = f"{url}?exchange=orders&management={amqp_server.management}"
    await make_exchange(url, "orders")
    unbound, _ = await weaknesses(asked)
    assert "No queue is bound to exchange 'orders'" in unbound
    assert "declare a queue, bind it to the exchange, then send" in unbound
    await make_queue(url, "billing")
    await bind(url, "billing", "orders")
    (alone,) = await weaknesses(asked)
    assert "runs on 1 node," in alone
    await make_queue(url, "mailing", {})
    await bind(url, "mailing", "orders")
    policies = {"orders": {"alternate-exchange": "rest"}, "billing": {"max-length": 7}}
    for about, definition in policies.items():
        await asyncio.to_thread(amqp_server.ctl, "set_policy", about, f"^{about}$", json.dumps(definition))
    found = await weaknesses(asked)
    for words in (
        "'orders' sends what no queue takes to 'rest'",
        "'billing' has max-length=7",
        "'mailing' is not a quorum",
    ):
        assert any(words in sentence for sentence in found), (words, found)
    assert len(found) == 4
    with pytest.raises(TransportUnavailable, match="management does not answer") as caught:
        await weaknesses(f"{url}?exchange=orders&management=http://127.0.0.1:{free_port()}")
    assert "the-right-password" not in str(caught.value)


def test_from_4_0_on_a_quorum_queue_must_say_that_it_drops_nothing() -> None:
    silent, safe = Inspected(), Inspected({"x-delivery-limit": "-1"})
    assert of_queue("orders", silent, (3, 13)) == []
    assert "more than 20 times" in of_queue("orders", silent, (4, 0))[0]
    assert of_queue("orders", safe, (4, 0)) == []


def test_three_nodes_are_good() -> None:
    assert of_nodes(3) == []
    assert "2 nodes" in of_nodes(2)[0]
