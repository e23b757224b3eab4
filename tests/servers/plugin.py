"""Fixtures for real servers. What cannot be had is skipped loudly, or is a failure when it is required.

POSTROOM_REQUIRE_SERVERS=1 (or `all`, or names with commas) makes a missing server a failure.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.servers import REGISTRY, NotHere, Server, Unavailable, amqp, kafka, mongo, redis, sqs, start
from tests.servers.broker import Broker, broker_of_my_own
from tests.servers.cluster import LOCKED, LOCKED_PASSWORD
from tests.servers.databases import fresh_database, fresh_mariadb_database, in_database
from tests.servers.gate import Gate, gate_to
from tests.servers.mongod import Mongod, mongod_of_my_own
from tests.servers.nats_server import NatsServer, nats_of_my_own
from tests.servers.rabbit import Rabbit, rabbit_of_my_own
from tests.servers.run import current
from tests.servers.topics import fresh_topic
from tests.servers.valkeyd import Valkey, valkey_of_my_own

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUIRED = "POSTROOM_REQUIRE_SERVERS"


def required() -> set[str]:
    """The servers whose absence is a failure. Raises a usage error for a name that is no server's."""
    value = os.environ.get(REQUIRED, "").strip()
    if value in {"", "0"}:
        return set()
    if value in {"1", "all"}:
        return set(REGISTRY)
    names = {name.strip() for name in value.split(",") if name.strip()}
    if unknown := names - set(REGISTRY):
        raise pytest.UsageError(f"{REQUIRED} names {', '.join(sorted(unknown))}; there are {', '.join(REGISTRY)}.")
    return names


def pytest_configure(config: pytest.Config) -> None:
    """Make the run before xdist starts its workers, which inherit it, and close it after they have ended."""
    required()
    config.add_cleanup(current().close)  # closes nothing in a worker, which does not own it


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch now what takes minutes the first time: no test's time is running yet."""
    if session.config.option.collectonly:
        return
    if any(_needs("kafka", item) for item in session.items):
        kafka.fetch()
    if any(_needs("amqp", item) for item in session.items):
        amqp.fetch()


def _needs(name: str, item: pytest.Item) -> bool:
    return any(fixture.startswith(f"{name}_") for fixture in getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which servers tests asked for in vain."""
    if missing := current().missing():
        terminalreporter.section("SERVERS NOT AVAILABLE", red=True, bold=True)
    for error in missing:
        terminalreporter.line(f"SERVERS NOT AVAILABLE: {error.name} — the tests that need it did not run.")
        for source, reason in error.reasons.items():
            terminalreporter.line(f"    {source}: {reason}")


def have(name: str) -> Server:
    """The server `name`, for a fixture. Without it the test is skipped, or fails when it is required."""
    try:
        return start(name)
    except Unavailable as error:
        do_without(name, str(error))


def do_without(name: str, why: str) -> NoReturn:
    """Skip this test for want of a server, or fail when it is required."""
    if name in required():
        pytest.fail(f"{REQUIRED} wants {name}, but {why}", pytrace=False)
    pytest.skip(f"SERVER NOT AVAILABLE: {name} (see the end of the run)")


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """The URL of a PostgreSQL server on which this test run may create databases."""
    return have("postgres").url


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """The URL of a fresh, empty database that is dropped afterwards, whoever is still connected."""
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture
def postgres_locked_url(postgres_url: str) -> str:
    """The URL of a role whose password is checked. Skips on a server that we did not set up."""
    if not (server := have("postgres")).ours:
        pytest.skip(f"The PostgreSQL from {server.source} is not ours: it has no role {LOCKED}.")

    return in_database(postgres_url.replace("postgres@", f"{LOCKED}:{LOCKED_PASSWORD}@"), "postgres")


@pytest.fixture
def pgbouncer_database(postgres_url: str) -> Iterator[str]:
    """The URL of a fresh database by way of PgBouncer with transaction pooling."""
    bouncer = have("pgbouncer")
    with fresh_database(postgres_url) as url:
        yield in_database(bouncer.url, url.rsplit("/", 1)[1])


@pytest.fixture(scope="session")
def mariadb_url() -> str:
    """The URL of a MariaDB server on which this test run may create databases."""
    return have("mariadb").url


@pytest.fixture
def mariadb_database(mariadb_url: str) -> Iterator[str]:
    """The URL of a fresh, empty database that is dropped afterwards, whoever is still connected."""
    with fresh_mariadb_database(mariadb_url) as url:
        yield url


@pytest.fixture
def mysql_database() -> Iterator[str]:
    """The same on MySQL, of which no server can be fetched: only where POSTROOM_TEST_MYSQL is the URL of one."""
    url = os.environ.get("POSTROOM_TEST_MYSQL")
    if not url:
        pytest.skip("POSTROOM_TEST_MYSQL is not set to the URL of a MySQL.")
    with fresh_mariadb_database(url) as database:
        yield database


@pytest.fixture(scope="session")
def kafka_url() -> str:
    """The URL of a Kafka on which this test run may create topics, without a topic in it."""
    return have("kafka").url


@pytest.fixture
def kafka_topic(kafka_url: str) -> Iterator[str]:
    """A fresh topic with three partitions."""
    with fresh_topic(kafka_url) as topic:
        yield topic


@pytest.fixture
def kafka_broker() -> Iterator[Broker]:
    """A broker of this test's own, which it may kill and start again."""
    with ExitStack() as ending:
        try:
            broker = ending.enter_context(broker_of_my_own())
        except (NotHere, OSError) as error:
            do_without("kafka", str(error))
        yield broker


@pytest.fixture(scope="session")
def amqp_url() -> str:
    """The URL of a RabbitMQ on which this test run may create exchanges and queues, without one in it."""
    return have("amqp").url


@pytest.fixture
def amqp_server() -> Iterator[Rabbit]:
    """A RabbitMQ of this test's own, which it may kill and start again."""
    with ExitStack() as ending:
        try:
            server = ending.enter_context(rabbit_of_my_own(amqp.programs()))
        except (NotHere, OSError) as error:
            do_without("amqp", str(error))
        yield server


@pytest.fixture(scope="session")
def mongo_url() -> str:
    """The URL of a MongoDB replica set on which this test run may create databases, without a database in it."""
    return have("mongo").url


@pytest.fixture
def mongo_database(mongo_url: str) -> Iterator[str]:
    """The URL of a fresh, empty database that is dropped afterwards."""
    with mongo.fresh_database(mongo_url) as url:
        yield url


@pytest.fixture
def mongo_standalone_database() -> Iterator[str]:
    """The same on a server that is no replica set, and has no transactions."""
    with mongo.fresh_database(have("mongo_standalone").url) as url:
        yield url


@pytest.fixture
def failing_mongo_server() -> Iterator[Mongod]:
    """A MongoDB of this test's own that can be told to fail (`configureFailPoint`)."""
    with ExitStack() as ending:
        try:
            server = ending.enter_context(
                mongod_of_my_own(mongo.program(), Mongod, parameters=["enableTestCommands=1"])
            )
        except (NotHere, OSError) as error:
            do_without("mongo", str(error))
        yield server


@pytest.fixture
def mongo_server() -> Iterator[Mongod]:
    """A MongoDB of this test's own, which it may kill and start again."""
    with ExitStack() as ending:
        try:
            server = ending.enter_context(mongod_of_my_own(mongo.program(), Mongod))
        except (NotHere, OSError) as error:
            do_without("mongo", str(error))
        yield server


@pytest.fixture(scope="session")
def sqs_url() -> Iterator[str]:
    """The URL of an SQS on which this test run may create queues, and credentials in the environment."""
    url = have("sqs").url
    with pytest.MonkeyPatch.context() as environment:
        for name, value in sqs.CREDENTIALS.items():
            if name not in os.environ:
                environment.setenv(name, value)
        yield url


@pytest.fixture
def sqs_gate(sqs_url: str) -> Iterator[Gate]:
    """A way to it that the test may cut, and open again: `sqs.url_at(gate.port)`. Only to one that runs here."""
    port = re.fullmatch(r".*endpoint=http://127\.0\.0\.1:(\d+)/?", sqs_url)
    if port is None:
        pytest.skip(f"{sqs_url} is not on this machine: its way cannot be cut.")
    with gate_to(int(port[1])) as gate:
        yield gate


@pytest.fixture(scope="session")
def nats_url() -> str:
    """The URL of a NATS with JetStream on which this test run may create streams, without a stream in it."""
    return have("nats").url


@pytest.fixture
def nats_server() -> Iterator[NatsServer]:
    """A NATS of this test's own, which it may kill and start again."""
    with ExitStack() as ending:
        try:
            server = ending.enter_context(nats_of_my_own())
        except (NotHere, OSError) as error:
            do_without("nats", str(error))
        yield server


@pytest.fixture(scope="session")
def redis_url() -> str:
    """The URL of a Redis or Valkey on which this test run may make streams, without a stream in it."""
    return have("redis").url


@pytest.fixture
def redis_stream() -> str:
    """A name for a stream that nobody else has."""
    return f"test:{os.getpid()}:{secrets.token_hex(5)}"


@pytest.fixture
def redis_server() -> Iterator[Valkey]:
    """A Valkey of this test's own, which it may kill and start again."""
    with ExitStack() as ending:
        yield own_redis(ending)


def own_redis(ending: ExitStack, **settings: str) -> Valkey:
    """A Valkey with these settings, for as long as *ending* is open."""
    try:
        return ending.enter_context(valkey_of_my_own(redis.program(), **settings))
    except (NotHere, OSError) as error:
        do_without("redis", str(error))
