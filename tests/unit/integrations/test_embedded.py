"""What runs inside somebody else's process: started anew when it breaks, ended when it must, and never silent."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.servers.ports import free_port

from postroom import Inbox, Message, open_publisher, open_store
from postroom.contracts.ops import Query
from postroom.contracts.transport import Envelope
from postroom.errors import ConfigError, PostroomError, StoreUnavailable
from postroom.events import LanesLost, RoutePaused, RouteResumed
from postroom.integrations import embedded
from postroom.integrations.asgi import postroom_lifespan, receiving, relaying
from postroom.integrations.embedded import Embedded
from postroom.telemetry.logs import EventLogger
from postroom.testing.waiting import until_async


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "AGAIN_FIRST", 0.01)
    monkeypatch.setattr(embedded, "CANCEL_SECONDS", 0.01)


class Scripted:
    """Ends each run as it is told: no real relay can be made to have a bug on demand."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends, self.started, self.stopped = list(ends), 0, asyncio.Event()
        self.deaf = False

    @asynccontextmanager
    async def opening(self) -> AsyncIterator[Scripted]:
        yield self

    async def run(self) -> None:
        self.started += 1
        if self.ends:
            end = self.ends.pop(0)
            if end is not None:
                raise end
            return
        await (asyncio.Event() if self.deaf else self.stopped).wait()

    def stop(self) -> None:
        self.stopped.set()

    def embedded(self, **options: Any) -> Embedded:
        return Embedded("The relay", lambda: self.opening, **options)


async def test_a_runner_that_dies_of_a_bug_is_told_and_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    runner = Scripted(KeyError("lane"), None)
    async with runner.embedded() as part:
        await until_async(lambda: runner.started == 3)
        await until_async(lambda: part.live().ok)
        assert part.live().why == "The relay runs."
    bug, end = caplog.records
    assert bug.levelno == end.levelno == logging.ERROR
    assert bug.getMessage() == "The relay does not run: KeyError: 'lane' It starts again in 0.01 s."
    assert bug.exc_info is not None
    assert "without being stopped" in end.getMessage()


async def test_a_server_that_is_away_is_a_warning_in_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    runner = Scripted(StoreUnavailable("The database is away."))
    async with runner.embedded():
        await until_async(lambda: runner.started == 2)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.exc_info is None


async def test_while_it_is_down_its_health_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "AGAIN_FIRST", 30.0)
    runner = Scripted(PostroomError("The tables are missing."))
    part = runner.embedded()
    assert not part.live().ok
    async with part:
        await until_async(lambda: not part.live().ok)
        assert (await part.health()).why == "The relay does not run: The tables are missing."
        assert not await part.is_ready()
    assert part.live().why == "The relay has not started, or has ended."


async def test_one_that_does_not_end_in_time_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    runner = Scripted()
    runner.deaf = True
    async with runner.embedded(stop_within=timedelta(milliseconds=20)):
        await until_async(lambda: runner.started)
    assert "did not end within" in caplog.text


async def test_it_is_entered_once_and_again_after_it_ended() -> None:
    part = Scripted().embedded()
    async with part:
        with pytest.raises(PostroomError, match="runs already"):
            await part.__aenter__()
    async with part:
        assert part.live().ok


async def test_a_lifespan_starts_a_relay_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///shop.db") as store:
        await store.schema.migrate()
        await store.outbox.put([Message("order.paid", key="order-7")])
        async with postroom_lifespan(store="sqlite:///shop.db", to="null://", poll="10ms")("the application"):
            async with asyncio.timeout(30):
                while (await store.ops.find(Query()))[0].status != "published":
                    await asyncio.sleep(0.01)
        assert {lane.owner for lane in await store.lanes.all()} == {None}


async def test_a_broker_that_is_away_and_a_death_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG, "postroom.embedded")
    (tmp_path / "postroom.toml").write_text(
        f"""store = "sqlite:///shop.db"
        [relay]
        max_attempts = 1
        [[routes]]
        name = "hooks"
        pattern = "order.*"
        to = "http://127.0.0.1:{free_port()}/hooks"
        [[routes]]
        to = "local://operator:truediv"
        """
    )
    async with open_store("sqlite:///shop.db") as store:
        await store.schema.migrate()
        await store.outbox.put([Message("order.paid"), Message("mail.wanted")])
        async with relaying(poll="10ms"):
            await until_async(
                lambda: caplog.text.count("Route hooks is paused: ") >= 2 and "(mail.wanted) is dead: " in caplog.text
            )
    pauses = [record.levelno for record in caplog.records if "paused" in record.getMessage()]
    assert pauses[:2] == [logging.WARNING, logging.DEBUG]


def test_a_broker_that_is_back_is_told_and_its_next_absence_too(caplog: pytest.LogCaptureFixture) -> None:
    tell, pause = EventLogger(), timedelta(seconds=2)
    for event in (
        RoutePaused(route="hooks", code="AWAY", delay=pause),
        RoutePaused(route="hooks", code="AWAY", delay=pause),
        RouteResumed(route="hooks", seconds=4.0),
        RoutePaused(route="hooks", code="AWAY", delay=pause),
        LanesLost(owner="me", lanes=(1, 2)),
    ):
        tell(event)
    assert [record.getMessage()[:24] for record in caplog.records] == [
        "Route hooks is paused: A",
        "Route hooks is open agai",
        "Route hooks is paused: A",
        "2 lanes were lost, becau",
    ]


async def test_settings_come_from_the_file_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    part = relaying()  # importing an application must need no settings yet
    with pytest.raises(ConfigError, match="No store is named"):
        await part.__aenter__()
    (tmp_path / "postroom.toml").write_text('store = "sqlite:///shop.db"\n[relay]\nenabled = false\n')
    async with part:
        assert part.live().why == "The relay is switched off here."


def test_parts_and_settings_are_not_mixed() -> None:
    with pytest.raises(ConfigError, match="give the settings to relaying"):
        postroom_lifespan(relaying(), store="sqlite:///shop.db")


async def test_a_reception_handles_each_message_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    inbox = Inbox("billing")

    @inbox.on("order.paid")
    def charge(message: Message, tx: sqlite3.Connection) -> None:
        tx.execute("INSERT INTO charges VALUES (?)", [message.key])

    async with open_store(url) as store:
        await store.schema.migrate()
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE charges (order_id TEXT)")
    publisher = open_publisher("memory://embedded/orders")
    paid = [Envelope(Message("order.paid", key=key)) for key in ("order-7", "order-8")]
    await publisher.publish([*paid, paid[0]], timeout=timedelta(seconds=5))
    part = receiving(inbox, "memory://embedded/orders", store=url)
    async with postroom_lifespan(part)("the application"):
        await until_async(lambda: len(shop.execute("SELECT * FROM charges").fetchall()) == 2)
        await until_async(lambda: part.live().why == "The inbox billing runs.")
    shop.close()


def test_it_needs_no_framework() -> None:
    code = "import sys, postroom.integrations.asgi; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert not {"fastapi", "starlette", "uvicorn", "anyio", "pydantic"} & set(loaded.split())
