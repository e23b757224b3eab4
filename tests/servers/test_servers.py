"""The servers are real, shared by a run, private to it, and gone after it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from pamqp.commands import Basic

from tests.servers import REGISTRY, Server, Unavailable, apt, guard, postgres, rabbit_queues, start, streams
from tests.servers.broker import Broker
from tests.servers.cluster import LOCKED
from tests.servers.databases import fresh_database
from tests.servers.gate import Gate
from tests.servers.nats_server import NatsServer
from tests.servers.ports import free_port, listens
from tests.servers.rabbit import Rabbit
from tests.servers.run import VARIABLE, Run
from tests.servers.streams import fresh_stream
from tests.servers.topics import everything_in, fresh_topic, servers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
TABLES = "select count(*) from pg_stat_user_tables"
OURS = ["wheel", "wheel18", "installed", "unpacked"]
ASK = "import sys; from tests.servers import start; print(start('postgres', sys.argv[1]).url)"
OWN = f"import os; {ASK}; print(os.environ['{VARIABLE}'], flush=True); sys.stdin.read()"


@pytest.fixture
def run() -> Iterator[Run]:
    """A run beside that of the tests, owned by this process."""
    run = Run.create()
    yield run
    run.close()


@pytest.fixture
def source() -> str:
    """A source from which this machine can start a PostgreSQL of our own."""
    for source in OURS:
        try:
            start("postgres", source)
        except Unavailable:
            continue
        return source
    pytest.skip("This machine cannot start a PostgreSQL.")


def from_source(name: str, source: str, run: Run) -> Server:
    try:
        return start(name, source, run)
    except Unavailable as error:
        pytest.skip(str(error))


def ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        return (connection.execute(query).fetchone() or [None])[0]


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


def eventually(true: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def outside(**more: str) -> dict[str, str]:
    """The environment of a process that belongs to no run."""
    hidden = (VARIABLE, "POSTROOM_", "PYTEST_")
    return {key: value for key, value in os.environ.items() if not key.startswith(hidden)} | more


def python(*words: str, env: dict[str, str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *words], cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True)


@pytest.mark.parametrize("source", OURS)
def test_postgres_starts_from_each_source_that_this_machine_has(source: str, run: Run) -> None:
    server = from_source("postgres", source, run)
    assert server.ours
    assert ask(server.url, "show server_version") == server.version
    settings = {"wal_level": "logical", "fsync": "off", "synchronous_commit": "on", "max_connections": "200"}
    assert {name: ask(server.url, f"show {name}") for name in settings} == settings
    assert ask(server.url, "show server_encoding") == "UTF8"
    server.stop()
    assert not listens(port_of(server.url))


@pytest.mark.parametrize("source", ["installed", "unpacked"])
def test_pgbouncer_starts_from_each_source_that_this_machine_has(source: str, run: Run) -> None:
    server = from_source("pgbouncer", source, run)
    assert ask(server.url, "select 1") == 1
    server.stop()
    assert not listens(port_of(server.url))


def test_a_url_in_the_environment_comes_first_and_is_left_alone(
    postgres_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_TEST_POSTGRES", postgres_url)
    server = start("postgres", run=run)
    assert (server.url, server.source, server.ours) == (postgres_url, "environment", False)
    server.stop()
    assert ask(postgres_url, "select 1") == 1


def test_a_server_on_its_usual_port_that_lets_us_in_is_used(
    source: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "USUAL_PORT", port_of(start("postgres", source).url))
    monkeypatch.setenv("PGUSER", LOCKED)
    with pytest.raises(Unavailable, match="does not let us in"):
        start("postgres", "local", run)
    monkeypatch.delenv("PGUSER")
    run.forget("postgres-local")
    assert not start("postgres", "local", run).ours


def test_packages_start_no_service_and_the_policy_of_the_machine_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apt, "POLICY", policy := tmp_path / "policy-rc.d")
    with apt._no_service_starts():
        assert subprocess.run([policy, "pgbouncer", "start"], check=False).returncode == 101
    assert not policy.exists()
    policy.write_text("theirs")
    with apt._no_service_starts():
        assert policy.read_text() == "theirs"
    assert policy.read_text() == "theirs"


def test_a_url_that_does_not_answer_is_not_replaced(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROOM_TEST_POSTGRES", f"postgresql://postgres@127.0.0.1:{free_port()}/postgres")
    with pytest.raises(Unavailable, match="does not let us in") as caught:
        start("postgres", run=run)
    assert list(caught.value.reasons) == ["environment"]
    assert [missing.name for missing in run.missing()] == ["postgres"]


def test_a_fresh_database_is_empty(postgres_database: str) -> None:
    assert ask(postgres_database, TABLES) == 0
    assert ask(postgres_database, "show server_encoding") == "UTF8"


def test_no_fresh_database_sees_the_tables_of_another(postgres_url: str, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("create table mine (id int)")
    with fresh_database(postgres_url) as another:
        assert (ask(postgres_database, TABLES), ask(another, TABLES)) == (1, 0)


def test_a_fresh_database_is_dropped_under_its_users_and_the_reader_of_its_slot(postgres_url: str) -> None:
    if ask(postgres_url, "show wal_level") != "logical":
        pytest.skip("This PostgreSQL has no logical decoding.")
    with ExitStack() as later:
        with fresh_database(postgres_url) as url:
            name = urlsplit(url).path[1:]
            user = later.enter_context(closing(psycopg.connect(url, autocommit=True)))
            user.execute("select pg_create_logical_replication_slot(current_database(), 'pgoutput')")
            read = f"START_REPLICATION SLOT {name} LOGICAL 0/0 (proto_version '1', publication_names 'p')"
            reader = later.enter_context(closing(psycopg.connect(url, replication="database")))
            assert reader.pgconn.exec_(read.encode()).status == psycopg.pq.ExecStatus.COPY_BOTH
        assert ask(postgres_url, f"select count(*) from pg_database where datname = '{name}'") == 0
        assert ask(postgres_url, f"select count(*) from pg_replication_slots where slot_name = '{name}'") == 0


def test_a_wrong_password_is_refused_and_the_right_one_is_not(postgres_locked_url: str) -> None:
    assert ask(postgres_locked_url, "select current_user") == "locked"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        ask(postgres_locked_url.replace("right", "wrong"), "select 1")


def test_two_processes_that_ask_at_once_share_a_server_that_outlives_them(run: Run, source: str) -> None:
    env = outside(**{VARIABLE: str(run.directory)})
    with python("-c", ASK, source, env=env) as one, python("-c", ASK, source, env=env) as other:
        first, second = one.communicate()[0].strip(), other.communicate()[0].strip()
    assert first == second == start("postgres", source, run).url
    assert ask(first, "select 1") == 1


def test_independent_runs_have_servers_of_their_own(run: Run, source: str) -> None:
    assert start("postgres", source, run).url != start("postgres", source).url


def test_a_run_that_is_killed_leaves_no_server_and_no_file(source: str) -> None:
    with python("-c", OWN, source, env=outside()) as owner:
        assert owner.stdout is not None
        port, directory = port_of(owner.stdout.readline().strip()), Path(owner.stdout.readline().strip())
        assert listens(port)
        assert directory.exists()
        owner.kill()
    assert eventually(lambda: not listens(port))
    assert eventually(lambda: not directory.exists())


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux ends a process with its parent.")
def test_a_keeper_that_is_killed_takes_its_server_along_and_the_next_who_asks_gets_a_new_one(
    run: Run, source: str
) -> None:
    before = start("postgres", source, run).url
    place = run.directory / f"postgres-{source}"
    os.kill(int((place / "alive").read_text()), signal.SIGKILL)
    assert eventually(lambda: not guard.alive(place) and not listens(port_of(before)))
    assert ask(start("postgres", source, run).url, "select 1") == 1


def test_clients_of_pgbouncer_share_a_connection_to_a_fresh_database(pgbouncer_database: str) -> None:
    query = "select pg_backend_pid()"
    with psycopg.connect(pgbouncer_database, autocommit=True) as one:
        mine = (one.execute(query).fetchone() or [None])[0]
        assert ask(pgbouncer_database, query) == mine


@pytest.mark.parametrize(("required", "code"), [("pgbouncer", 0), ("postgres", 1), ("1", 1)])
def test_a_missing_server_is_a_loud_skip_or_a_failure_when_it_is_required(required: str, code: int) -> None:
    nowhere = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"
    env = outside(POSTROOM_TEST_POSTGRES=nowhere, POSTROOM_REQUIRE_SERVERS=required)
    words = ["-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::test_a_fresh_database_is_empty"]
    with python(*words, env=env) as nested:
        said = nested.communicate()[0]
    assert nested.returncode == code, said
    assert "SERVERS NOT AVAILABLE: postgres" in said
    assert "environment: It does not let us in" in said


def test_a_required_server_that_does_not_exist_is_a_usage_error() -> None:
    with python("-m", "pytest", "--co", __file__, env=outside(POSTROOM_REQUIRE_SERVERS="postgress")) as nested:
        nested.communicate()
    assert nested.returncode == pytest.ExitCode.USAGE_ERROR


@pytest.mark.timeout(300)  # it starts every server there is, one after the other
def test_the_command_tells_what_this_machine_can_have() -> None:
    with python("-m", "tests.servers", "--json", env=outside()) as command:
        rows = json.loads(command.communicate()[0])
    assert command.returncode == 0
    assert [row["name"] for row in rows] == list(REGISTRY)
    assert all(row["version"] if row["available"] else row["reasons"] for row in rows)


def test_kafka_starts_with_jars_from_maven_and_makes_no_topic_by_itself(run: Run) -> None:
    server = from_source("kafka", "maven", run)
    assert server.ours
    with fresh_topic(server.url, partitions=2) as topic:
        produce(server.url, topic, b"one")
        with pytest.raises(KafkaException, match="Unknown topic"):
            produce(server.url, "nobody.made.this", b"two")
        assert [message.value() for message in everything_in(server.url, topic)] == [b"one"]
    server.stop()
    assert not listens(port_of(server.url))


def test_a_kafka_named_in_the_environment_is_used_and_left_alone(
    kafka_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_TEST_KAFKA", kafka_url)
    server = start("kafka", run=run)
    assert (server.url, server.source, server.ours) == (kafka_url, "environment", False)
    server.stop()
    assert listens(port_of(kafka_url))


def test_a_broker_of_my_own_that_is_killed_comes_back_with_all_it_had(kafka_broker: Broker) -> None:
    with fresh_topic(kafka_broker.url, partitions=1) as topic:
        before = kafka_broker.url
        produce(kafka_broker.url, topic, b"one")
        kafka_broker.kill()
        assert not listens(port_of(before))
        kafka_broker.start_again()
        produce(kafka_broker.url, topic, b"two")
        assert kafka_broker.url == before
        assert [message.value() for message in everything_in(before, topic)] == [b"one", b"two"]


def test_moto_starts_and_an_sqs_named_in_the_environment_is_used_and_left_alone(
    sqs_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_TEST_SQS", sqs_url)
    server = start("sqs", run=run)
    assert (server.url, server.source, server.ours) == (sqs_url, "environment", False)
    server.stop()
    assert listens(port_of(sqs_url.partition("endpoint=")[2]))


def test_a_gate_that_is_cut_lets_nothing_through_and_opens_again_where_it_was(sqs_gate: Gate) -> None:
    def answer(*, patience: float = 30) -> int:
        with urlopen(f"http://127.0.0.1:{sqs_gate.port}/moto-api/data.json", timeout=patience) as answer:
            return int(answer.status)

    assert answer() == 200
    sqs_gate.cut()
    with pytest.raises(URLError):
        answer()
    sqs_gate.open()
    assert answer() == 200
    with sqs_gate.silent(), pytest.raises(TimeoutError):
        answer(patience=1)
    assert answer() == 200


def produce(url: str, topic: str, value: bytes) -> None:
    """Write one message, and wait until it stands there."""
    settings = {"bootstrap.servers": servers_of(url), "topic.metadata.propagation.max.ms": 100, "log_level": 0}
    told: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    if told[0] is not None:
        raise KafkaException(told[0])


def test_nats_starts_from_the_wheel_and_has_jetstream(run: Run) -> None:
    server = from_source("nats", "wheel", run)
    assert server.ours
    assert server.version.startswith("2.")
    with fresh_stream(server.url) as stream:
        assert streams.everything_in(server.url, stream) == []


def test_a_nats_named_in_the_environment_is_used_and_left_alone(
    nats_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_TEST_NATS", nats_url)
    server = start("nats", run=run)
    assert (server.url, server.source, server.ours) == (nats_url, "environment", False)
    server.stop()
    assert listens(port_of(nats_url))


def test_a_nats_of_my_own_that_is_killed_comes_back_with_all_it_had(nats_server: NatsServer) -> None:
    with fresh_stream(nats_server.url) as stream:
        before = nats_server.url
        streams.at_once(nats_server.url, lambda js: js.publish(f"{stream}.one", b"one"))
        nats_server.kill()
        assert not listens(port_of(before))
        nats_server.start_again()
        assert [each.data for each in streams.everything_in(before, stream)] == [b"one"]
        assert nats_server.url == before


def test_rabbitmq_starts_from_the_systems_packages(run: Run) -> None:
    server = from_source("amqp", "unpacked", run)
    assert server.ours
    assert server.version[0].isdecimal()
    server.stop()
    assert not listens(port_of(server.url))


def test_a_rabbitmq_named_in_the_environment_is_used_and_left_alone(
    amqp_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_TEST_AMQP", amqp_url)
    server = start("amqp", run=run)
    assert (server.url, server.source, server.ours) == (amqp_url, "environment", False)
    server.stop()
    assert listens(port_of(amqp_url))


def test_a_rabbitmq_of_my_own_that_is_killed_comes_back_with_all_it_had(amqp_server: Rabbit) -> None:
    before = amqp_server.url

    async def send(body: bytes) -> None:
        async with rabbit_queues.channel_to(before) as channel:
            await channel.basic_publish(body, routing_key="q", properties=Basic.Properties(delivery_mode=2))

    async def begin() -> None:
        await rabbit_queues.make_queue(before, "q")
        await send(b"one")

    asyncio.run(begin())
    amqp_server.write_names()
    amqp_server.kill()
    assert not listens(port_of(before))
    amqp_server.start_again()
    asyncio.run(send(b"two"))
    assert amqp_server.url == before
    assert [message.body for message in asyncio.run(rabbit_queues.everything_in(before, "q"))] == [b"one", b"two"]
