"""Every code block of the README and the docs runs, and does what the text says; every link leads somewhere."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.servers import queues, rabbit_queues, streams
from tests.servers.ports import free_port
from tests.servers.queues import fresh_queue, with_queue
from tests.servers.redis_streams import messages_in
from tests.servers.topics import everything_in

from postroom import Message, Settings, open_store, open_transport
from postroom.settings import load
from postroom.store import Query, Record
from postroom.transport import Envelope, Outcome, Sent, TransportOptions, Unavailable
from postroom.transports import TRANSPORTS
from postroom.transports.sqs.reading import event_in
from postroom.urls import redact

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)\)")
ORDERS = "CREATE TABLE orders (id TEXT PRIMARY KEY, amount INTEGER)"
KAFKA = "kafka://broker:9092/orders"
SQS = "sqs://eu-central-1/orders.fifo"
NATS = "nats://broker:4222/ORDERS?subject=orders"
REDIS = "redis://server:6379/orders"
AMQP = "amqp://broker/?exchange=orders"
CHARGES = "CREATE TABLE charges (order_id TEXT PRIMARY KEY, amount INTEGER)"
RECEIVE = """
import asyncio
from datetime import timedelta
from billing import inbox
from postroom import Message, Reception, open_consumer, open_inbox_store, open_transport
from postroom.transport import Envelope

async def receive():
    publisher = open_transport("memory://shop/orders")
    paid, refund = (Message("order.paid", key=key, data={"amount": n}) for key, n in (("order-7", 12), ("order-8", -1)))
    await publisher.publish([Envelope(each) for each in (paid, paid, refund)], timeout=timedelta(seconds=5))
    async with open_inbox_store("sqlite:///shop.db") as store:
        consumer = open_consumer("memory://shop/orders")
        print(dict((await Reception(inbox, store, consumer).run(until_idle=timedelta(seconds=0.5))).done))

asyncio.run(receive())
"""
"""Receives one message twice, and one that a handler may refuse."""
DJANGO = """
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}})
import django
django.setup()
"""


@dataclass(frozen=True)
class Block:
    """A piece of code in a page."""

    page: Path
    language: str
    options: str
    code: str

    def __str__(self) -> str:
        first = next(line for line in self.code.splitlines() if line)
        return f"{self.page.relative_to(ROOT)}: {first[:50]}"


def blocks(language: str) -> list[Block]:
    return [
        Block(page, *match.groups())
        for page in PAGES
        for match in BLOCK.finditer(page.read_text())
        if match[1] == language
    ]


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def prepare(url: str) -> None:
    async def migrate() -> None:
        async with open_store(url) as store:
            await store.migrate()

    asyncio.run(migrate())


def messages(url: str) -> Sequence[Record]:
    async def find() -> Sequence[Record]:
        async with open_store(url) as store:
            return await store.find(Query())

    return asyncio.run(find())


def keys_in(code: str) -> set[str]:
    return set(re.findall(r"order-\d", code))


@pytest.mark.parametrize(
    "block", [b for b in blocks("python") if "server=" not in b.options and "inbox" not in b.options], ids=str
)
def test_a_python_block_runs_and_puts_its_message(block: Block, tmp_path: Path) -> None:
    shop = tmp_path / "shop.db"
    prepare(f"sqlite:///{shop}")
    if "CREATE TABLE orders" not in block.code:
        run(f"import sqlite3; sqlite3.connect('shop.db').execute({ORDERS!r})", tmp_path)
    run((DJANGO if "django" in block.code else "") + block.code, tmp_path)
    put = {record.message.key for record in messages(f"sqlite:///{shop}")}
    assert put
    assert keys_in(block.code) <= put


@pytest.mark.parametrize("block", [b for b in blocks("python") if "server=postgres" in b.options], ids=str)
def test_a_python_block_for_postgres_runs_and_puts_its_message(
    block: Block, tmp_path: Path, postgres_database: str
) -> None:
    prepare(postgres_database)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(ORDERS)
    run(f"URL = {postgres_database!r}\n{block.code}", tmp_path)
    assert {record.message.key for record in messages(postgres_database)} == keys_in(block.code)


@pytest.mark.parametrize("block", [b for b in blocks("python") if "server=mongo" in b.options], ids=str)
def test_a_python_block_for_mongo_runs_and_puts_its_message(block: Block, tmp_path: Path, mongo_database: str) -> None:
    prepare(mongo_database)
    run(f"URL = {mongo_database!r}\n{block.code}", tmp_path)
    assert {record.message.key for record in messages(mongo_database)} == keys_in(block.code)


def with_charges(folder: Path, module: str) -> None:
    """A shop.db with a table for an inbox's effects, and the module with that inbox."""
    prepare(f"sqlite:///{folder / 'shop.db'}")
    run(f"import sqlite3; sqlite3.connect('shop.db').execute({CHARGES!r})", folder)
    (folder / "billing.py").write_text(module)


def charges(folder: Path) -> list[tuple[str, int]]:
    code = "import sqlite3; print(sqlite3.connect('shop.db').execute('SELECT * FROM charges').fetchall())"
    return list(ast.literal_eval(run(code, folder)))


@pytest.mark.parametrize("block", [b for b in blocks("python") if "inbox" in b.options], ids=str)
def test_a_python_block_with_an_inbox_charges_once_and_parks_what_it_says(block: Block, tmp_path: Path) -> None:
    with_charges(tmp_path, block.code)
    became = ast.literal_eval(run(RECEIVE, tmp_path).splitlines()[-1])
    if parks := re.search(r"parks=(\w+)", block.options):
        assert charges(tmp_path) == [("order-7", 12)]
        assert became["parked"] == 1
        listed = cli(tmp_path, "inbox", "list", "--store", "sqlite:///shop.db", "--json").stdout
        assert [json.loads(line)["code"] for line in listed.splitlines()] == [parks[1]]
    else:
        assert sorted(charges(tmp_path)) == [("order-7", 12), ("order-8", -1)]
        assert "parked" not in became
    assert became["known"] == 1


@pytest.mark.parametrize("block", blocks("sql"), ids=str)
def test_a_sql_block_is_a_whole_message(block: Block, tmp_path: Path, postgres_database: str) -> None:
    shop = f"sqlite:///{tmp_path / 'shop.db'}"
    for url in (shop, postgres_database):
        prepare(url)
    run(f"import sqlite3; c = sqlite3.connect('shop.db'); c.execute({block.code!r}); c.commit()", tmp_path)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(block.code)
    for url in (shop, postgres_database):
        assert [record.message.key for record in messages(url)] == sorted(keys_in(block.code))


@pytest.mark.parametrize("block", [b for b in blocks("console") if "server=" not in b.options], ids=str)
def test_a_console_block_runs(block: Block, tmp_path: Path) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines(block.code, tmp_path)


@pytest.mark.parametrize("block", [b for b in blocks("console") if "server=kafka" in b.options], ids=str)
def test_a_console_block_for_kafka_carries_its_message(
    block: Block, tmp_path: Path, kafka_url: str, kafka_topic: str
) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines(block.code.replace(KAFKA, f"{kafka_url}/{kafka_topic}"), tmp_path)
    assert {record.key() for record in everything_in(kafka_url, kafka_topic)} == {
        key.encode() for key in keys_in(block.code)
    }


@pytest.mark.parametrize("block", [b for b in blocks("python") if "server=kafka" in b.options], ids=str)
def test_a_python_block_for_kafka_carries_what_was_put(
    block: Block, tmp_path: Path, kafka_url: str, kafka_topic: str
) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines("$ postroom put --store sqlite:///shop.db order.paid --key order-7", tmp_path)
    run(block.code.replace(KAFKA, f"{kafka_url}/{kafka_topic}"), tmp_path)
    assert [record.key() for record in everything_in(kafka_url, kafka_topic)] == [b"order-7"]


@pytest.fixture
def sqs_queue(sqs_url: str) -> Iterator[str]:
    with fresh_queue(sqs_url) as queue:
        yield queue


def keys_in_queue(sqs_url: str, queue: str) -> set[str | None]:
    return {event_in(each["Body"], {})[0].key for each in queues.everything_in(sqs_url, queue)}


@pytest.mark.parametrize("block", [b for b in blocks("console") if "server=sqs" in b.options], ids=str)
def test_a_console_block_for_sqs_carries_its_message(
    block: Block, tmp_path: Path, sqs_url: str, sqs_queue: str
) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines(block.code.replace(SQS, with_queue(sqs_url, sqs_queue)), tmp_path)
    assert keys_in_queue(sqs_url, sqs_queue) == keys_in(block.code)


@pytest.mark.parametrize("block", [b for b in blocks("python") if "server=sqs" in b.options], ids=str)
def test_a_python_block_for_sqs_carries_what_was_put_or_takes_what_it_sent(
    block: Block, tmp_path: Path, sqs_url: str, sqs_queue: str
) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines("$ postroom put --store sqlite:///shop.db order.paid --key order-7", tmp_path)
    run(block.code.replace(SQS, with_queue(sqs_url, sqs_queue)), tmp_path)
    assert keys_in_queue(sqs_url, sqs_queue) == (set() if "consumer.ack" in block.code else {"order-7"})


@pytest.mark.parametrize("block", [b for b in blocks("console") if "server=nats" in b.options], ids=str)
def test_a_console_block_for_nats_carries_its_message(block: Block, tmp_path: Path, nats_url: str) -> None:
    inboxes = [b.code for b in blocks("python") if b.page == block.page and "inbox" in b.options]
    with_charges(tmp_path, inboxes[0] if inboxes else "")
    with streams.fresh_stream(nats_url) as stream:
        run_lines(block.code.replace(NATS, f"{nats_url}/{stream}?subject={stream}"), tmp_path)
        assert {each.headers["ce-subject"] for each in nats_messages(nats_url, stream)} == keys_in(block.code)
    if "postroom consume" in block.code:
        assert {order for order, _ in charges(tmp_path)} == keys_in(block.code)


@pytest.mark.parametrize("block", [b for b in blocks("python") if "server=nats" in b.options], ids=str)
def test_a_python_block_for_nats_carries_what_was_put_or_receives_it(
    block: Block, tmp_path: Path, nats_url: str
) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines("$ postroom put --store sqlite:///shop.db order.paid --key order-7 --data 1", tmp_path)
    with streams.fresh_stream(nats_url) as stream:
        to = f"{nats_url}/{stream}?subject={stream}"
        if "Relay" not in block.code:
            run_lines(f"$ postroom relay --store sqlite:///shop.db --to '{to}.paid' --drain", tmp_path)
        said = run(block.code.replace(NATS, to), tmp_path)
        assert [each.headers["ce-subject"] for each in nats_messages(nats_url, stream)] == ["order-7"]
        assert "Relay" in block.code or said == "order.paid 1\n"


def nats_messages(url: str, stream: str) -> list[Any]:
    return list(streams.everything_in(url, stream))


@pytest.mark.parametrize("block", [b for b in blocks("python") if "server=received-kafka" in b.options], ids=str)
def test_a_python_block_that_receives_from_kafka_prints_what_was_sent(
    block: Block, tmp_path: Path, kafka_url: str, kafka_topic: str
) -> None:
    url = f"{kafka_url}/{kafka_topic}"
    assert isinstance(send(url), Sent)
    assert run(block.code.replace(KAFKA, url), tmp_path) == "order.paid order-7 {'amount': 12}\n"


@pytest.mark.parametrize("block", [b for b in blocks("python") if "server=received-http" in b.options], ids=str)
def test_a_python_block_that_receives_webhooks_answers_and_prints_what_was_sent(block: Block, tmp_path: Path) -> None:
    port = str(free_port())
    (secret,) = set(re.findall(r"whsec_[\w+/=]+", block.code))
    code = [sys.executable, "-W", "error", "-c", block.code.replace("8080", port)]
    with subprocess.Popen(code, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as receiver:
        outcome: Outcome | None = None
        for _ in range(100):
            outcome = send(f"http://127.0.0.1:{port}/hooks", secrets=(secret,))
            if not isinstance(outcome, Unavailable) or receiver.poll() is not None:
                break
            time.sleep(0.1)
        receiver.terminate()
        said, wrong = receiver.communicate(timeout=30)
    assert outcome == Sent(204), wrong
    assert said == "order.paid order-7\n"


def send(url: str, **options: Any) -> Outcome:
    async def publish() -> Outcome:
        publisher = open_transport(url, TransportOptions(**options))
        await publisher.open()
        message = Message("order.paid", key="order-7", data={"amount": 12})
        (outcome,) = await publisher.publish([Envelope(message)], timeout=timedelta(seconds=10))
        await publisher.close()
        return outcome

    return asyncio.run(publish())


@pytest.mark.parametrize("block", [b for b in blocks("console") if "server=redis" in b.options], ids=str)
def test_a_console_block_for_redis_carries_its_message(
    block: Block, tmp_path: Path, redis_url: str, redis_stream: str
) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines(block.code.replace(REDIS, f"{redis_url}/{redis_stream}"), tmp_path)
    assert {message.key for message in messages_in(redis_url, redis_stream)} == keys_in(block.code)


@pytest.mark.parametrize("block", [b for b in blocks("python") if "server=redis" in b.options], ids=str)
def test_a_python_block_for_redis_carries_what_was_put(
    block: Block, tmp_path: Path, redis_url: str, redis_stream: str
) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines("$ postroom put --store sqlite:///shop.db order.paid --key order-7", tmp_path)
    assert run(block.code.replace(REDIS, f"{redis_url}/{redis_stream}"), tmp_path)
    assert [message.key for message in messages_in(redis_url, redis_stream)] == ["order-7"]


@pytest.fixture
def orders_at_rabbitmq(amqp_url: str) -> Iterator[str]:
    """The URL of an exchange with a queue of the same name behind it."""
    name = rabbit_queues.fresh_name()

    async def make() -> None:
        await rabbit_queues.make_exchange(amqp_url, name)
        await rabbit_queues.make_queue(amqp_url, name)
        await rabbit_queues.bind(amqp_url, name, name)

    asyncio.run(make())
    yield f"{amqp_url}?exchange={name}"
    asyncio.run(rabbit_queues.remove(amqp_url, name, f"{name}.billing"))


def keys_at_rabbitmq(url: str) -> list[str]:
    server, _, name = url.partition("?exchange=")
    found = asyncio.run(rabbit_queues.everything_in(server, name))
    return [str((each.header.properties.headers or {})["cloudEvents_subject"]) for each in found]


@pytest.mark.parametrize("block", [b for b in blocks("console") if "server=amqp" in b.options], ids=str)
def test_a_console_block_for_rabbitmq_carries_its_message(
    block: Block, tmp_path: Path, orders_at_rabbitmq: str
) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines(block.code.replace(AMQP, orders_at_rabbitmq), tmp_path)
    assert set(keys_at_rabbitmq(orders_at_rabbitmq)) == keys_in(block.code)


@pytest.mark.parametrize("block", [b for b in blocks("python") if "server=amqp" in b.options], ids=str)
def test_a_python_block_for_rabbitmq_carries_what_was_put_or_runs(
    block: Block, tmp_path: Path, orders_at_rabbitmq: str
) -> None:
    prepare(f"sqlite:///{tmp_path / 'shop.db'}")
    run_lines("$ postroom put --store sqlite:///shop.db order.paid --key order-7", tmp_path)
    run(block.code.replace(AMQP, orders_at_rabbitmq), tmp_path)
    assert keys_at_rabbitmq(orders_at_rabbitmq) == (["order-7"] if "Relay" in block.code else [])


@pytest.mark.parametrize("url", [line for b in blocks("url") for line in b.code.splitlines()])
def test_a_url_can_be_opened_and_shows_no_password(url: str) -> None:
    without_files = re.sub(r"&[\w.]+\.location=[^&]*", "", url)
    module = TRANSPORTS[url.partition("://")[0]].module
    assert open_transport(without_files).capabilities.name == module.removesuffix("_streams")
    assert "s3cr" not in redact(url)


def cli(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "postroom", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def run_lines(lines: str, tmp_path: Path) -> None:
    for line in lines.splitlines():
        if line.startswith("$ "):
            program, *arguments = shlex.split(line[2:], comments=True)
            code = re.search(r"# exit code (\d+)", line)
            assert program == "postroom"
            done = cli(tmp_path, *arguments)
            assert done.returncode == (int(code[1]) if code else 0), done.stdout + done.stderr


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_a_toml_block_is_a_file_of_settings(block: Block, tmp_path: Path) -> None:
    for name in re.findall(r'_file = "([^"]+)"', block.code):
        (tmp_path / name).write_text("whsec_bmV3")
        (tmp_path / name).chmod(0o600)
    (tmp_path / "postroom.toml").write_text(block.code)
    settings = load(env={}, toml=tmp_path / "postroom.toml")
    assert settings != Settings()
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mail.py").write_text("def send(message): ...\n")
    run(
        "from postroom.relay import routes_from; from postroom.settings import load; from pathlib import Path\n"
        "assert routes_from(load(env={}, toml=Path('postroom.toml')))",
        tmp_path,
    )


def test_there_are_blocks_of_every_kind() -> None:
    """If a page is written another way one day, the tests above must not pass by finding nothing."""
    assert len(blocks("python")) >= 7
    assert blocks("sql")
    assert blocks("console")
    assert blocks("toml")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
