"""A relay inside a FastAPI application: real uvicorn processes, stopped by SIGTERM, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.applications import Application, application
from tests.servers.ports import free_port

from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import Query, Record
from postroom.stores import open_store
from postroom.testing.waiting import until

SHOP = """
import asyncio, os
import psycopg
from fastapi import FastAPI
from postroom import Message, Outbox
from postroom.integrations.asgi import health_app, postroom_lifespan, relaying

post, outbox = relaying(), Outbox()
app = FastAPI(lifespan=postroom_lifespan(post))
app.mount("/postroom", health_app(post))

@app.post("/orders/{number}")
async def order(number: str, seconds: float = 0) -> dict[str, str]:
    async with await psycopg.AsyncConnection.connect(os.environ["POSTROOM_STORE"]) as connection:
        await connection.execute("SELECT 1")
        await outbox.put(connection, Message("order.placed", key=number, data=seconds))
    return {"order": number}

@app.get("/")
async def root() -> dict[str, bool]:
    return {"ready": await post.is_ready()}
"""
MAIL = """
import asyncio, os

async def send(message):
    note("began", message)
    await asyncio.sleep(message.data)
    note("ended", message)

def note(what, message):
    with open("mail.txt", "a") as file:
        file.write(f"{what} {message.key} {os.getpid()}\\n")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "mail.py").write_text(MAIL)
    (tmp_path / "mail.txt").touch()
    return tmp_path


@contextmanager
def shop(folder: Path, store: str, **env: str) -> Iterator[Application]:
    with application(folder, ["shop:app"], POSTROOM_STORE=store, **{"POSTROOM_TO": "local://mail:send", **env}) as app:
        yield app


def prepare(url: str) -> None:
    async def migrate() -> None:
        async with open_store(url) as store:
            await store.schema.migrate()

    asyncio.run(migrate())


def look(url: str) -> tuple[Sequence[Lane], Sequence[RelayInfo], Sequence[Record]]:
    async def ask() -> Any:
        async with open_store(url) as store:
            return await store.lanes.all(), await store.lanes.relays(), await store.ops.find(Query())

    found: tuple[Sequence[Lane], Sequence[RelayInfo], Sequence[Record]] = asyncio.run(ask())
    return found


def mail(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "mail.txt").read_text().splitlines()]


def test_what_is_put_over_http_arrives_and_a_stop_gives_everything_back(folder: Path, postgres_database: str) -> None:
    prepare(postgres_database)
    with shop(folder, postgres_database) as app:
        until(lambda: app.request("GET", "/postroom/readyz")[0] == 200, lambda: app.output)
        assert app.request("GET", "/postroom/livez") == (200, {"ok": True, "why": "The relay runs."})
        assert app.request("GET", "/") == (200, {"ready": True})
        assert app.request("POST", "/orders/first") == (200, {"order": "first"})
        until(lambda: ["ended", "first"] in [line[:2] for line in mail(folder)], lambda: app.output)
        # The stop comes while this one is on its way: it is let finish, and settled.
        app.request("POST", "/orders/slow?seconds=1.5")
        until(lambda: ["began", "slow"] in [line[:2] for line in mail(folder)])
        said = app.stop()
    lanes, relays, records = look(postgres_database)
    assert [line[:2] for line in mail(folder)] == [
        ["began", "first"], ["ended", "first"], ["began", "slow"], ["ended", "slow"],
    ]  # fmt: skip
    assert {(record.message.key, record.status, record.owner) for record in records} == {
        ("first", "published", None),
        ("slow", "published", None),
    }
    assert {lane.owner for lane in lanes} == {None}
    assert relays == []
    assert "Application shutdown complete" in said
    assert "Traceback" not in said


def test_two_applications_share_the_work(folder: Path, postgres_database: str) -> None:
    prepare(postgres_database)
    with shop(folder, postgres_database) as one, shop(folder, postgres_database) as other:
        until(lambda: sorted(Counter(lane.owner for lane in look(postgres_database)[0]).values()) == [32, 32])
        for number in range(40):
            one.request("POST", f"/orders/{number}")
        until(lambda: len(mail(folder)) == 80, lambda: one.output + other.output)
        ended = [(key, int(pid)) for what, key, pid in mail(folder) if what == "ended"]
        assert sorted(int(key) for key, _ in ended) == list(range(40))
        assert {pid for _, pid in ended} == {one.process.pid, other.process.pid}
        one.stop()
        until(lambda: {lane.owner for lane in look(postgres_database)[0]} == {look(postgres_database)[1][0].owner})
        other.request("POST", "/orders/late")
        until(lambda: ["ended", "late", str(other.process.pid)] in mail(folder))


def test_an_application_starts_and_serves_while_the_database_is_away(folder: Path) -> None:
    with shop(folder, f"postgresql://postgres@127.0.0.1:{free_port()}/shop") as app:
        until(lambda: "The relay does not run: " in app.output, lambda: app.output)
        assert app.request("GET", "/") == (200, {"ready": False})
        status, said = app.request("GET", "/postroom/livez")
        assert (status, said["ok"]) == (503, False)
        assert said["why"].startswith("The relay does not run: ")
        assert app.request("GET", "/postroom/else")[0] == 404
        assert "Traceback" not in app.stop()


def test_tables_that_come_later_are_enough(folder: Path, postgres_database: str) -> None:
    with shop(folder, postgres_database) as app:
        until(lambda: "postroom init" in app.request("GET", "/postroom/readyz")[1]["why"], lambda: app.output)
        prepare(postgres_database)
        until(lambda: app.request("GET", "/postroom/readyz")[0] == 200, lambda: app.output)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"POSTROOM_TO": "pigeon://home"}, "Postroom knows no transport pigeon://"),
        ({"POSTROOM_TO": ""}, "Nowhere to go: "),
        ({"POSTROOM_STORE": ""}, "No store is named: "),
        ({"POSTROOM_LEASE": "soon"}, "POSTROOM_LEASE"),
    ],
)
def test_what_no_waiting_would_mend_stops_the_start(folder: Path, env: dict[str, str], sentence: str) -> None:
    given = {"POSTROOM_STORE": "sqlite:///shop.db", "POSTROOM_TO": "local://mail:send"} | env
    with application(folder, ["shop:app"], **given) as app:
        assert app.process.wait(60) == 3
        assert sentence in app.output
        assert "Application startup failed" in app.output


def test_it_can_be_switched_off_from_outside(folder: Path, postgres_database: str) -> None:
    prepare(postgres_database)
    with shop(folder, postgres_database, POSTROOM_ENABLED="false") as app:
        said = "The relay is switched off here."
        assert app.request("GET", "/postroom/livez") == (200, {"ok": True, "why": said})
        # Ready tells of the whole outbox: nobody carries from it.
        assert app.request("GET", "/postroom/readyz")[0] == 503
        app.request("POST", "/orders/first")
        app.stop()
    assert [record.status for record in look(postgres_database)[2]] == ["pending"]
