"""The health port over a real socket: who is alive, which lanes have nobody, and what a probe may send."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.clock import utcnow
from postroom.config.load import load_settings
from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.outbox import Retry
from postroom.contracts.store import Store
from postroom.errors import ConfigError, PostroomError
from postroom.ops import health
from postroom.ops.health import Health, Readiness, ready
from postroom.ops.health_port import HealthPort
from postroom.ops.status import RelaySnapshot
from postroom.stores.memory import MemoryStore
from postroom.stores.memory.outbox import MemoryOutbox
from postroom.stores.postgres import PostgresStore
from postroom.stores.sqlite import SQLiteStore
from postroom.testing.contracts._case import NOON, SECOND
from postroom.urls import HostPort, parse_address

ANY = HostPort("127.0.0.1", 0)
MINUTE = timedelta(minutes=1)
FINE = Health(ok=True, why="fine")


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "FRESH_SECONDS", 0.0)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = SQLiteStore(tmp_path / "post.db")
    if request.param == "postgres":
        opened = PostgresStore(request.getfixturevalue("postgres_database"))
    async with opened:
        await opened.schema.migrate()
        yield opened


async def ask(address: HostPort, request: bytes) -> tuple[int, bytes, bytes]:
    """The status, the head and the body of the answer; the connection must be closed after it."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request)
        answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


async def get(address: HostPort, path: str) -> tuple[int, dict[str, Any]]:
    status, _, body = await ask(address, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return status, json.loads(body)


def port_of(store: Store, **options: Any) -> HealthPort:
    return HealthPort(ANY, live=lambda: FINE, ready=Readiness(store, **options))


def lost(attempts: int) -> Retry:
    return Retry(timedelta(0), "LEASE_LOST")


async def test_a_dead_relays_lanes_are_not_ready_until_they_are_taken_over(store: Store) -> None:
    async with port_of(store) as port:
        assert (await get(port.address, "/readyz"))[0] == 503  # nobody has them yet
        begin = utcnow() - 50 * SECOND
        await store.lanes.join(RelayInfo(owner="dead", name="dead"), now=begin)
        taken = await store.lanes.take("dead", limit=1_000, lease=MINUTE, lost=lost, now=begin)
        status, said = await get(port.address, "/readyz")
        assert (status, said["ok"]) == (503, False)
        assert said["why"] == "64 of 64 lanes have no live relay: 0, 1, 2, 3, 4, 5, 6, 7 and 56 more."
        await store.lanes.renew("dead", {lane.lane: lane.epoch for lane in taken}, lease=SECOND, now=begin)
        await store.lanes.join(RelayInfo(owner="heir", name="heir"))
        await store.lanes.take("heir", limit=1_000, lease=MINUTE, lost=lost)
        assert await get(port.address, "/readyz") == (200, {"ok": True, "why": "All 64 lanes have a live relay."})
        await store.lanes.release("heir", {3: (await store.lanes.all())[3].epoch})
        assert (await get(port.address, "/readyz"))[1]["why"] == "1 of 64 lanes has no live relay: 3."


async def test_a_store_that_is_away_is_not_ready(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        number = closed.getsockname()[1]
        async with PostgresStore(f"postgresql://app:s3cr3t@127.0.0.1:{number}/shop") as store, port_of(store) as port:
            status, said = await get(port.address, "/readyz")
    assert status == 503
    assert "cannot be used" in said["why"]
    assert "s3cr3t" not in said["why"]
    async with SQLiteStore(tmp_path / "nowhere.db") as gone, port_of(gone) as port:
        assert (await get(port.address, "/readyz"))[0] == 503


class Counting(MemoryOutbox):
    """Counts how often it is asked, and may never answer."""

    asked = 0
    hangs = False

    async def all(self) -> Sequence[Lane]:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        return await super().all()


async def test_a_store_that_hangs_is_not_ready() -> None:
    store = Counting()
    store.hangs = True
    async with port_of(MemoryStore(store), timeout=timedelta(milliseconds=50)) as port:
        assert (await get(port.address, "/readyz"))[1]["why"] == "The store did not answer within 50ms."
        assert (await get(port.address, "/livez"))[0] == 200


async def test_many_probes_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "FRESH_SECONDS", 3_600.0)
    store = Counting()
    async with port_of(MemoryStore(store)) as port:
        await asyncio.gather(*(get(port.address, "/readyz") for _ in range(20)))
    assert store.asked == 1


async def test_a_relay_that_has_ended_is_not_alive() -> None:
    alive = [True]
    async with HealthPort(ANY, live=lambda: Health(ok=alive[0], why="so"), ready=_fine) as port:
        assert await get(port.address, "/livez") == (200, {"ok": True, "why": "so"})
        alive[0] = False
        assert await get(port.address, "/livez") == (503, {"ok": False, "why": "so"})


async def _fine() -> Health:
    return FINE


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /livez?verbose=1 HTTP/1.0\r\n\r\n", 200),
        (b"POST /livez HTTP/1.1\r\n\r\n", 405),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET /livez HTTP/2.0\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\xff\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nx: " + b"x" * 20_000, 431),
    ],
)
async def test_whatever_is_asked_is_answered_and_the_connection_closed(request_: bytes, status: int) -> None:
    async with HealthPort(ANY, live=lambda: FINE, ready=_fine) as port:
        answered, head, _ = await ask(port.address, request_)
    assert answered == status
    assert b"Connection: close" in head


async def test_head_has_no_body() -> None:
    async with HealthPort(ANY, live=lambda: FINE, ready=_fine) as port:
        status, head, body = await ask(port.address, b"HEAD /readyz HTTP/1.1\r\n\r\n")
    assert (status, body) == (200, b"")
    assert b"Content-Length: 28" in head


async def test_whoever_says_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.ops.health_port.REQUEST_SECONDS", 0.05)
    async with HealthPort(ANY, live=lambda: FINE, ready=_fine) as port:
        reader, writer = await asyncio.open_connection(*port.address)
        assert (await get(port.address, "/livez"))[0] == 200
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_who_still_waits_for_an_answer_when_it_closes_is_let_go_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def never() -> Health:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        return FINE

    async with HealthPort(ANY, live=lambda: FINE, ready=never) as port:
        reader, writer = await asyncio.open_connection(*port.address)
        writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
        await begun.wait()
    assert over.is_set()
    assert await asyncio.wait_for(reader.read(), 20) == b""
    assert caplog.text == ""
    writer.close()


async def test_a_port_in_use_is_one_sentence() -> None:
    async with HealthPort(ANY, live=lambda: FINE, ready=_fine) as port:
        with pytest.raises(
            PostroomError, match=f"127.0.0.1:{port.address.port} cannot be opened: Address already in use"
        ):
            await HealthPort(port.address, live=lambda: FINE, ready=_fine).__aenter__()


def lane(owner: str | None, until: timedelta | None) -> Lane:
    return Lane(0, 1, owner, None if until is None else NOON + until)


def relay(seen: timedelta | None) -> RelayInfo:
    return RelayInfo(owner="a", name="a", seen_at=None if seen is None else NOON + seen)


@pytest.mark.parametrize(
    ("owned", "known", "is_ready"),
    [
        (lane(None, None), [], False),
        (lane("a", MINUTE), [], True),
        (lane("a", timedelta(0)), [], False),
        (lane("a", MINUTE), [relay(timedelta(0))], True),
        (lane("a", MINUTE), [relay(None)], True),
        (lane("a", 21 * SECOND), [relay(-39 * SECOND)], True),
        (lane("a", 19 * SECOND), [relay(-41 * SECOND)], False),
        (lane("a", -SECOND), [relay(timedelta(0))], False),
    ],
    ids=["free", "leased", "over", "heard", "unheard", "one beat missed", "two beats missed", "over though heard"],
)
def test_an_owner_lives_while_its_lease_runs_and_it_is_heard_of(
    owned: Lane, known: list[RelayInfo], is_ready: bool
) -> None:
    assert ready(RelaySnapshot(lanes=[owned], relays=known, now=NOON)).ok is is_ready


@pytest.mark.parametrize("text", ["", "x", "8080x", "1.2.3.4", "host:", "70000", "[::1", "a b:80", "-1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address to listen at; write 8080"):
        parse_address(text)


def test_an_address_is_a_setting_like_others(tmp_path: Path) -> None:
    toml = tmp_path / "postroom.toml"
    toml.write_text("[relay]\nhealth = 8081")
    assert load_settings(env={}, toml=toml).relay.health == HostPort("127.0.0.1", 8081)
    assert load_settings(env={"POSTROOM_HEALTH": "0.0.0.0:80"}, toml=toml).relay.health == HostPort("0.0.0.0", 80)
    with pytest.raises(ConfigError, match="POSTROOM_HEALTH: 'x' is not an address"):
        load_settings(env={"POSTROOM_HEALTH": "x"})
