from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from datetime import timedelta

import pytest
from tests.unit.cli.running import Desk

from postroom.contracts.lanes import RelayInfo
from postroom.contracts.ops import OPEN, SETTLED
from postroom.contracts.outbox import Retry
from postroom.relay import presence
from postroom.stores import open_store


def test_json_has_the_promised_keys(desk: Desk) -> None:
    (shown,) = desk("status", "--json").objects()
    assert shown == {
        "pending": 0,
        "sending": 0,
        "failed": 0,
        "published": 0,
        "dead": 0,
        "expired": 0,
        "discarded": 0,
        "lag_seconds": 0.0,
        "lanes": {"total": 64, "owned": 0, "free": 64, "owners": {}},
        "relays": [],
    }


def test_for_people_an_empty_outbox_has_none_of_any_status(desk: Desk) -> None:
    rows = [line.split() for line in desk("status").out.splitlines()[1:8]]
    assert [row[:2] for row in rows] == [[name, "0"] for name in (*OPEN, *SETTLED)]


@pytest.mark.requirement("E5")
def test_counts_lag_lanes_and_relays_are_shown(desk: Desk) -> None:
    desk("put", "a.b")
    desk.execute("UPDATE outbox SET created_at = created_at - 3600000000")
    asyncio.run(_relay(desk))
    (shown,) = desk("status", "--json").objects()
    assert shown["pending"] == 1
    assert 3600 <= shown["lag_seconds"] < 3700
    assert shown["lanes"] == {"total": 64, "owned": 10, "free": 54, "owners": {"relay#1": 10}}
    (relay,) = shown["relays"]
    assert (relay["name"], relay["lanes"], relay["alive"]) == ("shop", 10, True)
    text = desk("status").out
    assert "1h 0m" in text
    assert "10 owned, 54 free" in text
    assert text.splitlines()[-1].split()[:4] == ["shop", "10", "host-1", "7"]


async def _relay(desk: Desk) -> None:
    async with open_store(f"sqlite:///{desk.folder}/shop.db") as store:
        await store.lanes.join(RelayInfo(owner="relay#1", name="shop", host="host-1", pid=7, version="0.1"))
        lease = timedelta(minutes=1)
        await store.lanes.take("relay#1", limit=10, lease=lease, lost=lambda _: Retry(timedelta(0), "LOST"))


def test_a_relay_that_fell_silent_is_not_alive(desk: Desk) -> None:
    asyncio.run(_relay(desk))
    desk.execute("UPDATE outbox_relay SET seen_at = seen_at - 3600000000")
    assert desk("status", "--json").objects()[0]["relays"][0]["alive"] is False
    assert desk("status", "--json").objects()[0]["relays"][0]["state"] == "silent"
    assert "is silent: its lanes are taken over in 5" in (shown := desk("status", COLUMNS="80").out)
    assert "shop " in shown.partition("RELAY")[2], "on a narrow terminal, too, the name is whole"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of its processes so")
def test_a_relay_whose_process_is_gone_is_neither_alive_nor_only_silent(desk: Desk) -> None:
    asyncio.run(_relay(desk))
    here, _, start = presence.process().rpartition(" ")
    # Our own number, of a process that began before us.
    desk.execute(f"UPDATE outbox_relay SET pid = {os.getpid()}, process = '{here} {int(start) - 1}'")
    (shown,) = desk("status", "--json").objects()
    assert (shown["relays"][0]["alive"], shown["relays"][0]["state"]) == (False, "gone")
    assert "is gone: its lanes are taken over at once here, elsewhere in" in desk("status").out


def test_an_owner_that_is_on_no_record_is_shown_as_gone(desk: Desk) -> None:
    asyncio.run(_relay(desk))
    desk.execute("DELETE FROM outbox_relay")
    assert desk("status").out.splitlines()[-1].split() == ["relay#1", "10", "gone"]


def test_the_table_is_aligned(desk: Desk) -> None:
    lines = desk("status", COLUMNS="80").out.splitlines()
    numbers = [line[:16].rstrip() for line in lines if line]
    assert len({len(line) for line in numbers}) == 1
    assert max(map(len, lines)) <= 80


def test_what_only_reads_works_on_newer_tables_and_what_writes_does_not(desk: Desk) -> None:
    desk("put", "order.paid", "--key", "a")
    with closing(sqlite3.connect(desk.folder / "shop.db")) as connection, connection:
        connection.execute("INSERT INTO outbox_schema (version, name, applied_at) VALUES (99, '0099_later', 0)")
    for command in (["status"], ["list"], ["list", "--json"]):
        shown = desk(*command)
        assert shown.code == 0, shown.err
        assert "The tables are at version 99, newer than" in shown.err
    assert "order.paid" in desk("list").out
    for command in (["put", "order.paid"], ["requeue", "--status", "dead"], ["relay", "--to", "null://", "--drain"]):
        desk(*command).refuses("newer than", code=1)
