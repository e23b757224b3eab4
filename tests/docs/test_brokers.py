"""```python server=kafka: a whole program at a broker. order-7 was put into `shop.db`; when it has run, that is at the broker.

With `leaves=nothing` nothing is there: it took it all, or only asked. With `received` the message was sent there before,
and the program prints what it received. The broker's URL is the one of `places.py`.
"""

from __future__ import annotations

from pathlib import Path

from tests.docs.blocks import Block, each
from tests.docs.console import run_console
from tests.docs.places import Place, send
from tests.docs.running import SHOP, a_shop, run

from postroom.contracts.transport import Sent

PRINTED = {"order.paid order-7 {'amount': 12}\n", "order.paid {'amount': 12}\n"}
"""How a program may print what it received."""


def carries(block: Block, folder: Path, place: Place) -> None:
    a_shop(folder)
    run_console(f"$ postroom put --store {SHOP} order.paid --key order-7", folder)
    said = run(place.put_into(block.code), folder)
    if "leaves" in block.options:
        assert block.options["leaves"] == "nothing"
        assert place.keys() == []
    else:
        assert said
        assert place.keys() == ["order-7"]


@each("program at kafka")
def test_a_program_for_kafka_carries_what_was_put(block: Block, tmp_path: Path, kafka_place: Place) -> None:
    carries(block, tmp_path, kafka_place)


@each("program at sqs")
def test_a_program_for_sqs_carries_what_was_put(block: Block, tmp_path: Path, sqs_place: Place) -> None:
    carries(block, tmp_path, sqs_place)


@each("program at nats")
def test_a_program_for_nats_carries_what_was_put(block: Block, tmp_path: Path, nats_place: Place) -> None:
    carries(block, tmp_path, nats_place)


@each("program at redis")
def test_a_program_for_redis_carries_what_was_put(block: Block, tmp_path: Path, redis_place: Place) -> None:
    carries(block, tmp_path, redis_place)


@each("program at amqp")
def test_a_program_for_rabbitmq_carries_what_was_put(block: Block, tmp_path: Path, amqp_place: Place) -> None:
    carries(block, tmp_path, amqp_place)


@each("receiver at kafka")
def test_a_program_that_receives_from_kafka_prints_what_was_sent(
    block: Block, tmp_path: Path, kafka_place: Place
) -> None:
    assert isinstance(send(kafka_place.url), Sent)
    assert run(kafka_place.put_into(block.code), tmp_path) in PRINTED


@each("receiver at nats")
def test_a_program_that_receives_from_nats_prints_what_was_sent(
    block: Block, tmp_path: Path, nats_place: Place
) -> None:
    assert isinstance(send(f"{nats_place.url}.paid"), Sent)
    assert run(nats_place.put_into(block.code), tmp_path) in PRINTED
