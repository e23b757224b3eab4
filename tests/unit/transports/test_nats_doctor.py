"""What weakens the promise is named, asked of a real server."""

from __future__ import annotations

from typing import Any

import pytest
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from tests.servers.streams import fresh_stream

from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports.nats.doctor import weaknesses
from postroom.transports.nats.streams import forgets_soon, unusable, weaknesses_of
from postroom.transports.nats.url import read


@pytest.mark.parametrize(
    ("settings", "phrases"),
    [
        ({}, ["1 replica", "for 2m only", "sync_interval"]),
        ({"storage": StorageType.MEMORY}, ["kept in memory"]),
        ({"max_msgs": 1_000}, ["more than 1,000 messages;"]),
        ({"max_bytes": 4_096}, ["more than 4,096 bytes;"]),
        ({"max_msgs_per_subject": 5, "discard": DiscardPolicy.NEW}, ["5 messages of a subject"]),
        ({"no_ack": True}, ["confirms nothing"]),
        ({"retention": RetentionPolicy.INTEREST}, ["no consumer reads it", "First start each receiver once"]),
        ({"max_age": 3600}, ["deletes messages after 1h, read or not"]),
    ],
    ids=["plain", "memory", "number", "bytes", "subject", "no-ack", "interest", "age"],
)
async def test_a_weakness_is_named_with_its_remedy(nats_url: str, settings: dict[str, Any], phrases: list[str]) -> None:
    with fresh_stream(nats_url, **settings) as stream:
        found = await weaknesses(f"{nats_url}/{stream}")
    for phrase in phrases:
        assert [sentence for sentence in found if phrase in sentence], found
    assert all(";" in sentence or ":" in sentence for sentence in found)


async def test_what_can_be_set_right_on_one_server_is_not_named(nats_url: str) -> None:
    right = {"max_msgs": 1_000, "discard": DiscardPolicy.NEW, "duplicate_window": 600}
    with fresh_stream(nats_url, **right) as stream:
        found = await weaknesses(f"{nats_url}/{stream}?subject={stream}.paid&sync=always")
    assert len(found) == 1
    assert "1 replica" in found[0]


def test_a_stream_that_is_fine_has_none() -> None:
    fine = StreamConfig(
        name="ORDERS", subjects=["orders.*"], storage=StorageType.FILE, num_replicas=3, duplicate_window=600
    )
    settings = read("nats://broker/ORDERS?subject=orders.paid&sync=always")
    assert [*unusable(fine, settings), *weaknesses_of(fine, settings), *forgets_soon(fine, settings)] == []


async def test_who_is_not_there_cannot_be_asked(nats_url: str) -> None:
    with pytest.raises(ConfigError, match="no stream"):
        await weaknesses(f"{nats_url}/NOT-THERE")
    with pytest.raises(TransportUnavailable):
        await weaknesses("nats://127.0.0.1:1/ORDERS")
