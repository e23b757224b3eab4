"""The same role has the same file name in every store and in every transport; docs/reference/glossary.md has the words."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/postroom"
STORES = ("memory", "mongo", "mysql", "postgres", "sqlite")
TRANSPORTS = ("amqp", "http", "kafka", "memory", "nats", "redis_streams", "sqs")

IN_A_STORE = {
    "__init__", "url", "connections", "blocking_connections", "statements", "rows", "errors", "schema", "doctor",
    "outbox", "claim", "careful_claim", "settle", "lanes", "watch", "ops", "inbox",
}  # fmt: skip
ONLY_IN_ONE_STORE = {
    "memory": set[str](),
    "mongo": {"collections"},
    "mysql": {"inbox_connections"},
    "postgres": {"buffered_connection"},
    "sqlite": set[str](),
}
IN_A_TRANSPORT = {
    "__init__", "url", "connection", "encoding", "decoding", "outcomes", "batch", "publisher", "consumer", "receiver", "doctor",
}  # fmt: skip
ONLY_IN_ONE_TRANSPORT = {
    "amqp": set[str](),
    "http": {"open_requests", "public_ip", "signature"},
    "kafka": {"offsets", "subscription"},
    "memory": {"broker"},
    "nats": {"interest", "streams"},
    "redis_streams": {"pending", "server"},
    "sqs": {"acknowledging", "polling"},
}


def files(folder: str) -> set[str]:
    """The names of the modules in this folder of the source."""
    return {path.stem for path in (SOURCE / folder).glob("*.py")}


@pytest.mark.parametrize("store", STORES)
def test_a_stores_files_have_the_names_of_every_store(store: str) -> None:
    assert files(f"stores/{store}") <= IN_A_STORE | ONLY_IN_ONE_STORE[store]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_transports_files_have_the_names_of_every_transport(transport: str) -> None:
    assert files(f"transports/{transport}") <= IN_A_TRANSPORT | ONLY_IN_ONE_TRANSPORT[transport]


def test_every_name_on_the_lists_is_a_file_somewhere() -> None:
    in_stores = set().union(*(files(f"stores/{store}") for store in STORES))
    in_transports = set().union(*(files(f"transports/{transport}") for transport in TRANSPORTS))
    assert in_stores >= IN_A_STORE.union(*ONLY_IN_ONE_STORE.values())
    assert in_transports >= IN_A_TRANSPORT.union(*ONLY_IN_ONE_TRANSPORT.values())


def test_every_store_and_every_transport_is_held_to_the_lists() -> None:
    assert {path.parent.name for path in (SOURCE / "stores").glob("*/__init__.py")} == {*STORES, "sql"}
    assert {path.parent.name for path in (SOURCE / "transports").glob("*/__init__.py")} == set(TRANSPORTS)
