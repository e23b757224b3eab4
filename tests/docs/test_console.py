"""```console: `$ postroom …` commands, run one after the other in a folder with a `shop.db`.

What is shown below a command is what it says; `…` stands for what differs from run to run. `# exit code 3` behind it says how
it ends. `$ python shop.py` runs the block of its page with `file=shop.py`, and `billing` is the page's first inbox. With
`continued` a block goes on where the console block before it ended. With `server=kafka` the URL of the broker is the one of
`places.py`, and the orders that the block names are there afterwards.
"""

from __future__ import annotations

from pathlib import Path

from tests.docs.blocks import Block, each
from tests.docs.console import a_folder_for, run_console, whole
from tests.docs.places import Place
from tests.docs.running import charges, keys_in


@each("console")
def test_a_console_block_runs_and_says_what_is_shown(block: Block, tmp_path: Path) -> None:
    a_folder_for(block, tmp_path)
    run_console(whole(block), tmp_path)


def carries(block: Block, folder: Path, place: Place) -> None:
    a_folder_for(block, folder)
    run_console(place.put_into(block.code), folder)
    assert set(place.keys()) == keys_in(block.code)
    if "postroom consume" in block.code:
        assert {order for order, _ in charges(folder)} == keys_in(block.code)


@each("console at kafka")
def test_a_console_block_for_kafka_carries_its_message(block: Block, tmp_path: Path, kafka_place: Place) -> None:
    carries(block, tmp_path, kafka_place)


@each("console at sqs")
def test_a_console_block_for_sqs_carries_its_message(block: Block, tmp_path: Path, sqs_place: Place) -> None:
    carries(block, tmp_path, sqs_place)


@each("console at nats")
def test_a_console_block_for_nats_carries_its_message(block: Block, tmp_path: Path, nats_place: Place) -> None:
    carries(block, tmp_path, nats_place)


@each("console at redis")
def test_a_console_block_for_redis_carries_its_message(block: Block, tmp_path: Path, redis_place: Place) -> None:
    carries(block, tmp_path, redis_place)


@each("console at amqp")
def test_a_console_block_for_rabbitmq_carries_its_message(block: Block, tmp_path: Path, amqp_place: Place) -> None:
    carries(block, tmp_path, amqp_place)
