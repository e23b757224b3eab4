"""What the page on upgrading promises: what runs goes on while the tables are migrated, what starts is checked."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.unit.cli.running import Desk
from tests.unit.stores.homes import Home
from tests.unit.stores.two_steps import in_two_steps, two_steps

from postroom import Message, Relay, Route
from postroom.config.tables import TableNames
from postroom.contracts.ops import Query
from postroom.contracts.store import Store
from postroom.stores.sql import migrations
from postroom.transports.local import LocalPublisher

PAGE = (Path(__file__).parents[3] / "docs/how-to/upgrade.md").read_text()


async def put_and_wait(store: Store, came: list[str], key: str) -> None:
    await store.outbox.put([Message("order.paid", key=key, data=1)])
    async with asyncio.timeout(60):
        while key not in came:
            await asyncio.sleep(0.01)


async def test_a_relay_goes_on_while_the_tables_are_migrated_and_after_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_two_steps(monkeypatch)
    monkeypatch.setattr(migrations, "steps", lambda package: two_steps(package)[:1])
    came: list[str] = []

    async def deliver(message: Message) -> None:
        came.append(str(message.key))

    async with home.open() as store, home.open() as another:
        assert list((await store.schema.migrate()).applied) == ["0001_outbox"]
        relay = Relay(store, [Route(to=LocalPublisher(deliver))])
        running = asyncio.create_task(relay.run())
        await put_and_wait(another, came, "before")
        in_two_steps(monkeypatch)
        async with asyncio.TaskGroup() as both:
            both.create_task(put_and_wait(another, came, "meanwhile"))
            migrated = both.create_task(another.schema.migrate())
        assert list(migrated.result().applied) == ["0002_inbox"]
        await put_and_wait(another, came, "after")
        relay.stop()
        await running
        assert {record.status for record in await another.ops.find(Query())} == {"published"}
    assert came == ["before", "meanwhile", "after"]


async def test_a_service_of_an_older_postroom_may_put_into_newer_tables_and_a_relay_may_not_start(
    home: Home, tmp_path: Path
) -> None:
    async with home.open() as store:
        await store.schema.migrate()
        newer = (
            "INSERT INTO outbox_schema (version, name, applied_at) SELECT 2, 'x', max(applied_at) FROM outbox_schema"
        )
        home.sql(newer)
        await store.outbox.put([Message("order.paid", key="a", data=1)])
        assert home.sql("SELECT count(*) FROM outbox") == [(1,)]
    said = Desk(tmp_path)("relay", "--to", "null://", "--drain", store=home.url)
    said.refuses("are at version 2, newer than the 1 this Postroom knows", "pip install --upgrade postroom", code=1)


async def test_the_page_quotes_what_is_said() -> None:
    """The first column of what refuses, against the sentences themselves."""
    tables = TableNames()
    sentences = [
        migrations.too_old(1, 2, "…", tables),
        migrations.too_new(2, 1),
        migrations.missing("…", tables),
        migrations.other_lanes(64, 16),
    ]
    quoted = re.findall(r"^\| (th[^|]+?) \|", PAGE, re.MULTILINE)
    for sentence in sentences:
        assert any(str(sentence).lower().startswith(quote.lower().removesuffix("…")) for quote in quoted), sentence
