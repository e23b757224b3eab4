"""`postroom bench`, run as a user runs it: what it says, and that it leaves nothing behind."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.commands import POSTROOM, Popen
from tests.unit.cli.running import Desk

SMALL = ("--messages", "50", "--keys", "7", "--size", "40", "--rate", "50")
TABLES = "SELECT count(*) FROM {} WHERE {} LIKE 'postroom_bench%'"


def in_sqlite(path: Path) -> int:
    """How many tables of the benchmark are there."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(TABLES.format("sqlite_schema", "name")).fetchone()[0])


def in_postgres(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(TABLES.format("pg_class", "relname").encode()).fetchone()
    return int((found or (-1,))[0])


def test_it_measures_beside_real_messages_and_leaves_them_alone(desk: Desk) -> None:
    assert desk("put", "order.paid").code == 0
    measured = desk("bench", *SMALL)
    assert measured.code == 0, measured
    heading, columns, *rows = measured.out.splitlines()
    assert heading == "sqlite:///shop.db to null://: 40 bytes a message, 7 keys"
    assert columns.split() == ["PHASE", "MESSAGES", "TIME", "RATE"]
    assert [row.split()[:2] for row in rows] == [["fill", "50"], ["drain", "50"], ["latency", "50"]]
    assert desk.count == 1
    assert in_sqlite(desk.folder / "shop.db") == 0
    assert measured.err.splitlines() == [
        "Measuring in sqlite:///shop.db, in tables of its own: postroom_bench_outbox and the tables that belong to it.",
        "Dropped postroom_bench_outbox and the tables that belong to it.",
    ]


def test_json_has_the_figures_and_nothing_else_is_on_stdout(desk: Desk) -> None:
    (report,) = desk("bench", *SMALL, "--batch", "5", "--concurrency", "2", "--json").objects()
    assert (report["store"], report["to"]) == ("sqlite:///shop.db", "null://")
    assert (report["messages"], report["keys"], report["size"]) == (50, 7, 40)
    assert (report["batch"], report["concurrency"]) == (5, 2)
    for phase in ("fill", "drain"):
        assert report[phase]["messages"] == 50
        assert report[phase]["per_second"] > 0
    latency = report["latency"]
    assert latency["messages"] == 50
    assert 0 <= latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"]


def test_a_file_that_was_not_there_is_gone_afterwards(empty: Desk) -> None:
    measured = empty("bench", *SMALL, "--rate", "0")
    assert measured.code == 0, measured
    assert list(empty.folder.iterdir()) == []
    assert "Removed shop.db, which was not there before." in measured.err
    assert "latency" not in measured.out


def test_on_postgres_it_leaves_no_table_behind(empty: Desk, postgres_database: str) -> None:
    measured = empty("bench", *SMALL, store=postgres_database)
    assert measured.code == 0, measured
    assert in_postgres(postgres_database) == 0


def test_a_store_in_memory_can_be_measured_too(empty: Desk) -> None:
    (report,) = empty("bench", *SMALL, "--rate", "0", "--json", store="memory://").objects()
    assert report["drain"]["messages"] == 50
    assert report["latency"] is None


def test_it_refuses_tables_of_another_run_until_they_are_cleaned(desk: Desk) -> None:
    assert desk("init", "--table-prefix", "postroom_bench_outbox").code == 0
    desk("bench", *SMALL).refuses("another `postroom bench`", "postroom bench --clean", code=1)
    cleaned = desk("bench", "--clean")
    assert (cleaned.code, cleaned.out) == (0, "")
    assert in_sqlite(desk.folder / "shop.db") == 0
    assert desk("status").code == 0, "the real tables are still there"
    assert desk("bench", *SMALL, "--rate", "0").code == 0


def test_where_postroom_to_leads_nothing_is_sent(desk: Desk) -> None:
    (report,) = desk("bench", *SMALL, "--rate", "0", "--json", POSTROOM_TO="http://127.0.0.1:9/hooks").objects()
    assert report["to"] == "null://"


def test_messages_that_do_not_get_through_are_no_rate(desk: Desk) -> None:
    (desk.folder / "odd.py").write_text("def refuse(message): raise ValueError('never')\n")
    refused = desk(
        "bench", *SMALL, "--to", "local://odd:refuse", POSTROOM_MAX_ATTEMPTS="1", PYTHONPATH=str(desk.folder)
    )
    assert refused.code == 1
    assert "messages did not get through (MAX_ATTEMPTS: HANDLER_ERROR: ValueError: never)" in refused.err
    assert in_sqlite(desk.folder / "shop.db") == 0


def test_wrong_use_is_one_sentence(desk: Desk) -> None:
    desk("bench", "--messages", "0").refuses("--messages", code=2)
    desk("bench", "--size", "1").refuses("--size", code=2)
    desk("bench", "--to", "pigeon://coop").refuses("pigeon://", code=2)
    desk("bench", "--batch", "0").refuses("batch is 0", code=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_drops_the_tables_too(desk: Desk, number: signal.Signals) -> None:
    command = [*POSTROOM, "bench", "--to", "http://127.0.0.1:9/hooks", "--messages", "5"]
    with Popen(
        command, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            # Nobody answers there, so that it drains until it is stopped.
            deadline = time.monotonic() + 30
            while not in_sqlite(desk.folder / "shop.db"):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-2:] == ["Dropped postroom_bench_outbox and the tables that belong to it.", "interrupted"]
    assert in_sqlite(desk.folder / "shop.db") == 0
    assert desk("status").code == 0
