"""The doctor asks a real server which settings weaken the promise, and is silent when none does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.servers.plugin import own_redis
from tests.servers.ports import free_port
from tests.servers.redis_streams import client_of
from tests.servers.valkeyd import Valkey

from postroom.errors import TransportUnavailable
from postroom.transports.redis_streams.doctor import judge, weaknesses
from postroom.transports.redis_streams.server import Facts
from postroom.transports.redis_streams.url import read

SAFE = Facts(version=(7, 2), replicas=1, has_aof=True, fsync="always", policy="noeviction")


@pytest.fixture
def own() -> Iterator[Callable[..., Valkey]]:
    with ExitStack() as ending:
        yield lambda **settings: own_redis(ending, **settings)


async def test_a_server_that_keeps_its_promise_has_no_weakness(own: Callable[..., Valkey]) -> None:
    primary, replica = own(appendfsync="always"), own()

    def follow() -> None:
        with client_of(replica.url) as client:
            client.replicaof("127.0.0.1", primary.port)

    await asyncio.to_thread(follow)
    found: list[str] = []
    for _ in range(200):
        if not (found := await weaknesses(f"{primary.url}/orders?wait=1")):
            break
        await asyncio.sleep(0.05)
    assert found == []
    assert any("It is a replica" in each for each in await weaknesses(replica.url))
    assert any("add wait=1" in each for each in await weaknesses(primary.url))


async def test_every_weakness_of_a_server_is_named_with_its_remedy(own: Callable[..., Valkey]) -> None:
    server = own(appendonly="no", maxmemory_policy="allkeys-lru")
    found = await weaknesses(f"{server.url}/orders?maxlen=100")
    assert [each.partition(":")[0] for each in found] == [
        "appendonly is no",
        "maxmemory-policy is allkeys-lru",
        "maxlen=100 drops entries before they are read; leave it out, and trim what all groups have read.",
        "It has 0 replicas",
    ]


async def test_a_disk_that_is_not_waited_for_is_a_weakness(own: Callable[..., Valkey]) -> None:
    server = own(appendfsync="everysec")
    assert "appendfsync is everysec" in (await weaknesses(server.url))[0]
    assert all("appendfsync" not in each for each in await weaknesses(f"{server.url}/orders?waitaof=1"))


async def test_a_server_that_is_away_is_told_without_its_password() -> None:
    with pytest.raises(TransportUnavailable, match="No Redis answers") as caught:
        await weaknesses(f"redis://relay:s3cret@127.0.0.1:{free_port()}/orders")
    assert "s3cret" not in str(caught.value)


def test_what_the_server_does_not_tell_is_to_be_looked_up() -> None:
    found = list(judge(Facts(), read("redis://server/orders")))
    assert [each.startswith("It does not tell") for each in found] == [True, True, False]
    assert list(judge(SAFE, read("redis://server/orders?wait=1"))) == []


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (Facts(version=(7, 2), replicas=1, has_aof=True, fsync="no", policy="noeviction"), "next flush"),
        (Facts(version=(7, 2), replicas=1, has_aof=True, fsync="always", policy="volatile-lru"), "that expire"),
        (Facts(version=(7, 2), replicas=0, has_aof=True, fsync="always", policy="noeviction"), "attach 1"),
        (
            Facts(version=(7, 2), is_cluster=True, replicas=1, has_aof=True, fsync="always", policy="noeviction"),
            "cluster",
        ),
    ],
    ids=["fsync", "policy", "replicas", "cluster"],
)
def test_a_weakness_is_named(facts: Facts, why: str) -> None:
    (found,) = judge(facts, read("redis://server/orders?wait=1&waitaof=1"))
    assert why in found
