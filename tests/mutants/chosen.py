"""Which tests look at which part of the source: what `tests.mutants.sample` runs for a mutant of a file there.

The first ones start no server (`pytest --quick`); the others may. Left out are tests that read the source or a page made from
it: they fail on any changed line, which proves nothing. So are the relay's own mutants, for the same reason.
"""

from __future__ import annotations

from dataclasses import dataclass

SCENES = "tests/mutants/test_mutants.py::test_an_honest_relay_plays_the_scene_through"
UNIT, CONFORMANCE, SCENARIOS = "tests/unit", "tests/conformance", "tests/scenarios"


@dataclass(frozen=True)
class Part:
    """A part of the source, and its tests."""

    name: str
    folders: tuple[str, ...]
    """What the paths of its files begin with, below `src/postroom`."""
    first: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    weight: int = 1
    """How many of its mutants are drawn for one of a part that weighs 1."""


def _transport(folder: str, word: str, first: str, then: str, scenario: str = "") -> Part:
    """A transport has tests named after it, in three folders."""
    unit = f"{UNIT}/transports/test_{word}"
    return Part(
        f"transports/{folder}",
        (f"transports/{folder}/",),
        tuple(f"{unit}_{each}.py" for each in first.split()),
        (
            *(f"{unit}_{each}.py".replace("__.py", ".py") for each in then.split()),
            *(f"{CONFORMANCE}/test_{word}_{each}.py" for each in ("consumer", "transport")),
            f"{SCENARIOS}/{scenario or f'test_{word}.py'}",
        ),
    )


PARTS = (
    Part(
        "relay",
        ("relay/",),
        (
            f"{UNIT}/relay",
            SCENES,
            "tests/mutants/test_price.py",
            "tests/mutants/test_walks.py",
            f"{UNIT}/cli/test_relay_routes.py",
        ),
        (f"{SCENARIOS}/test_relay.py", f"{SCENARIOS}/test_crashes.py"),
        weight=3,
    ),
    Part(
        "inbox",
        ("inbox/",),
        (f"{UNIT}/inbox", f"{CONFORMANCE}/inbox", f"{CONFORMANCE}/test_local_transport.py"),
        (
            f"{UNIT}/inbox/test_redis_guard.py",
            f"{UNIT}/transports/test_http_receiver.py",
            f"{SCENARIOS}/test_worker_protocol.py",
        ),
        weight=3,
    ),
    Part(
        "stores/memory",
        ("stores/memory/",),
        (f"{CONFORMANCE}/test_memory.py", SCENES, f"{UNIT}/stores/test_opening.py"),
        (f"{CONFORMANCE}/test_stores_agree.py",),
    ),
    Part(
        "stores/sqlite",
        ("stores/sqlite/",),
        (
            f"{CONFORMANCE}/test_sqlite.py",
            f"{CONFORMANCE}/inbox",
            f"{UNIT}/stores/test_opening.py",
            f"{UNIT}/stores/test_sqlite_writer.py",
            f"{UNIT}/stores/test_sqlite_replaced.py",
            f"{UNIT}/stores/test_schema.py",
            f"{UNIT}/inbox/test_worker.py",
        ),
        (f"{CONFORMANCE}/test_outages.py", f"{UNIT}/cli/test_doctor.py", f"{UNIT}/stores/test_clean_up.py"),
        weight=2,
    ),
    Part(
        "stores/postgres",
        ("stores/postgres/",),
        (f"{UNIT}/stores/test_opening.py",),
        (
            f"{CONFORMANCE}/test_postgres.py",
            f"{UNIT}/stores/test_postgres_connection.py",
            f"{UNIT}/stores/test_postgres_races.py",
            f"{UNIT}/stores/test_waker.py",
            f"{UNIT}/cli/test_postgres_errors.py",
            f"{UNIT}/cli/test_doctor.py",
        ),
        weight=2,
    ),
    Part(
        "stores/mysql",
        ("stores/mysql/", "stores/sql/mysql_server.py"),
        (f"{UNIT}/stores/test_opening.py",),
        (
            f"{CONFORMANCE}/test_mariadb.py",
            f"{UNIT}/stores/test_mysql_connection.py",
            f"{UNIT}/stores/test_mysql_races.py",
            f"{UNIT}/stores/test_mysql_inbox.py",
            f"{UNIT}/stores/test_mysql_schema.py",
        ),
    ),
    Part(
        "stores/mongo",
        ("stores/mongo/",),
        (f"{UNIT}/stores/test_opening.py",),
        (
            f"{CONFORMANCE}/test_mongo.py",
            f"{UNIT}/stores/test_mongo_store.py",
            f"{UNIT}/stores/test_mongo_inbox.py",
            f"{UNIT}/stores/test_mongo_alone.py",
            f"{SCENARIOS}/test_mongo.py",
        ),
    ),
    Part(
        "stores, shared",
        ("stores/",),
        (
            f"{UNIT}/stores/test_opening.py",
            f"{UNIT}/stores/test_sql_files.py",
            f"{UNIT}/stores/test_hand_written.py",
            f"{UNIT}/stores/test_schema.py",
            f"{CONFORMANCE}/test_sqlite.py",
            f"{CONFORMANCE}/test_memory.py",
            f"{UNIT}/test_outbox.py",
            f"{UNIT}/ops",
        ),
        (
            f"{UNIT}/stores/test_insert_mysql.py",
            f"{UNIT}/stores/test_schema.py",
            f"{UNIT}/stores/test_grants.py",
            f"{UNIT}/integrations/django/test_migrations.py",
            f"{CONFORMANCE}/test_postgres.py",
        ),
    ),
    _transport("amqp", "amqp", "url outcomes encoding receiver", "_ consumer doctor"),
    _transport("http", "http", "outcomes public_ip limits", "_ receiver", "test_asgi.py"),
    _transport("kafka", "kafka", "url outcomes offsets decoding encoding subscription", "_ consumer doctor cluster"),
    _transport("nats", "nats", "url outcomes receiver encoding connection", "consumer doctor publisher"),
    _transport("redis_streams", "redis", "url outcomes receiver encoding batch", "_ doctor receiving"),
    _transport("sqs", "sqs", "url outcomes encoding batch", "_ consumer doctor"),
    Part(
        "transports, shared",
        ("transports/",),
        (
            f"{UNIT}/transports/test_inflight.py",
            f"{UNIT}/transports/test_publishing.py",
            f"{UNIT}/transports/test_ordering.py",
            f"{UNIT}/transports/test_structured.py",
            f"{UNIT}/transports/test_null.py",
            f"{CONFORMANCE}/test_local_transport.py",
            f"{CONFORMANCE}/test_memory_transport.py",
            f"{CONFORMANCE}/test_memory_consumer.py",
            f"{UNIT}/test_urls.py",
            f"{UNIT}/transports/test_http_receiver.py",
            f"{UNIT}/cli/test_relay_routes.py",
        ),
        (
            f"{UNIT}/cli/test_broker_errors.py",
            f"{UNIT}/transports/test_http.py",
            f"{UNIT}/transports/test_nats_publisher.py",
        ),
    ),
    Part(
        "ops",
        ("ops/",),
        (f"{UNIT}/ops", f"{UNIT}/cli/test_status.py"),
        (
            f"{UNIT}/cli/test_explain.py",
            f"{UNIT}/cli/test_list.py",
            f"{UNIT}/cli/test_requeue.py",
            f"{UNIT}/cli/test_doctor.py",
            f"{SCENARIOS}/test_health_port.py",
            f"{SCENARIOS}/test_status_of_relays.py",
        ),
        weight=2,
    ),
    Part(
        "cli",
        ("cli/",),
        (f"{UNIT}/cli/test_put.py", f"{UNIT}/cli/test_status.py", f"{UNIT}/cli/test_help.py"),
        (f"{UNIT}/cli",),
        weight=2,
    ),
    Part(
        "handles",
        ("handles/",),
        (f"{UNIT}/test_outbox.py", f"{CONFORMANCE}/handles"),
        (f"{CONFORMANCE}/handles", f"{UNIT}/stores/test_commits_under_way.py", f"{SCENARIOS}/test_nearby.py"),
    ),
    Part(
        "integrations",
        ("integrations/",),
        (f"{UNIT}/integrations",),
        (f"{UNIT}/integrations", f"{SCENARIOS}/test_asgi.py"),
        weight=2,
    ),
    Part("outbox", ("outbox/",), (f"{UNIT}/test_outbox.py", f"{UNIT}/test_reconciler.py"), (f"{CONFORMANCE}/handles",)),
    Part(
        "telemetry",
        ("telemetry/",),
        (f"{UNIT}/test_spans.py", f"{UNIT}/test_tracing.py", f"{UNIT}/inbox/test_logs.py", f"{UNIT}/test_events.py"),
        (f"{UNIT}/cli/test_logs.py", f"{SCENARIOS}/test_crashes.py"),
    ),
    Part(
        "config and values",
        ("",),
        (
            f"{UNIT}/test_[!be]*.py",
            f"{UNIT}/test_errors.py",
            f"{UNIT}/relay",
            f"{UNIT}/ops",
            f"{CONFORMANCE}/test_sqlite.py",
            f"{UNIT}/inbox",
            f"{UNIT}/transports/test_*_url.py",
            f"{UNIT}/transports/test_*_encoding.py",
        ),
        (f"{UNIT}/cli", f"{UNIT}/transports/test_http.py"),
        weight=3,
    ),
)
"""The first whose folder fits is the one that a file belongs to."""

LEFT_OUT = ("testing/", "demo/")
"""The test kit and the demo are no part of what a user's messages go through."""

NEVER = ("tests/mutants/test_mutants.py::test_a_relay_without_the_rule_is_caught", "tests/unit/stores/test_guards.py")


def part_of(file: str) -> Part | None:
    """Return the part that a file below `src/postroom` belongs to: None where no mutants are drawn."""
    if file.startswith(LEFT_OUT):
        return None
    return next(part for part in PARTS if file.startswith(part.folders))
