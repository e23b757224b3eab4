"""The slowest files come first, dealt to all workers in turn: in the last minutes of a run only short tests are left, which any
worker can take from another (`--dist worksteal`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SLOW = (
    "conformance/test_stores_agree.py", "unit/test_bench.py", "scenarios/test_amqp.py", "servers/test_servers.py",
    "scenarios/test_kafka.py", "scenarios/test_six_relays.py", "scenarios/test_round_trip.py",
    "scenarios/test_inbox_crash_loop.py", "scenarios/test_kafka_receivers.py", "conformance/test_amqp_consumer.py",
    "conformance/test_amqp_transport.py", "scenarios/test_worker_protocol.py", "scenarios/test_crashes.py",
    "unit/transports/test_amqp.py", "scenarios/test_nats.py",
)  # fmt: skip
"""Where the slow tests are, in this folder, the slowest of them first."""
PLACES = {Path(__file__).parent / name: place for place, name in enumerate(SLOW)}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slow tests at the beginning of each worker's share. One process alone keeps the order that it has."""
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = dealt(items, workers)


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the same tests, in shares as `worksteal` cuts them: each begins with its part of the slow ones."""
    slow = sorted((item for item in items if item.path in PLACES), key=lambda item: PLACES[item.path])
    rest = [item for item in items if item.path not in PLACES]
    result: list[pytest.Item] = []
    for worker in range(workers):
        size = (len(items) - len(result)) // (workers - worker)
        mine = slow[worker::workers]
        more = max(size - len(mine), 0)
        result += [*mine, *rest[:more]]
        del rest[:more]
    return result + rest
