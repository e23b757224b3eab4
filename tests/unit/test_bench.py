"""The benchmarks run and say what they found. How fast anything is, no test asserts: the machine decides that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.chart import ASSETS, chart
from bench.steal import Steal
from bench.table import Rates, Row, take_turns, value
from bench.wiretap import Wiretap

ROOT = Path(__file__).parents[2]
DRAINS = ("2,000 to null", "2,000 to Kafka", "2,000 to a function", "200 by HTTP")
ROWS = {
    "import": ["import postroom (third-party modules: none)", "import Outbox and Message"],
    "sqlite": ["100 messages", "put"],
}
ON_POSTGRES = {
    "drain": [*["drain 2,000 to Kafka"] * 2, *["drain 2,000 to null"] * 3],
    "default": [f"drain {each} ({store}" for store in ("PostgreSQL", "SQLite") for each in DRAINS],
    "flat": [f"drain 2,000 to null, {kind}" for kind in ("5,000 published", "a snapshot", "one failing key")],
    "latency": [f"commit to handler, {each}" for each in ("p50", "p99", "a lone message")] * 2,
    "idle": ["an idle relay (SQLite", "an idle relay (PostgreSQL"],
    "inbox": ["handle 2,000 messages"],
    "memory": [f"2,000 open messages, a broker that {does}" for does in ("is away", "hangs")],
}

ON_OTHERS = {
    "others": ["drain 2,000 to null (MariaDB", "drain 2,000 to null (MongoDB"],
    "contention": ["8 producers"] * 3,
}


@pytest.mark.parametrize("name", ROWS)
def test_a_benchmark_prints_an_aligned_table(name: str) -> None:
    heading, *lines = bench("--only", name).splitlines()
    assert heading.split() == ["base", "rate", "ours", "rate", "result", "target", "met"]
    for start, line in zip(ROWS[name], lines, strict=False):
        assert line.startswith(start)
        assert line[heading.index("base") - 1] == " "
        assert line[heading.index("base")] != " "


@pytest.mark.parametrize("name", ROWS)
def test_a_benchmark_speaks_json(name: str) -> None:
    report = json.loads(bench("--only", name, "--json"))
    assert report["machine"]["cpus"] >= 1
    for start, row in zip(ROWS[name], report["results"], strict=True):
        assert row["what"].startswith(start)
        assert row["base_rate"] > 0
        assert row["our_rate"] > 0
        assert (row["met"] is None) == (row["target"] is None)


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_a_benchmark_of_the_relay_runs(name: str, postgres_url: str) -> None:
    rows: list[dict[str, Any]] = json.loads(bench("--only", name, "--json"))["results"]
    assert len(rows) == len(ON_POSTGRES[name])
    for start, row in zip(ON_POSTGRES[name], rows, strict=True):
        assert row["what"].startswith(start)
        assert row["result_is"] == ("value" if row["base_rate"] is None else "ratio")


@pytest.mark.parametrize("name", ON_OTHERS)
def test_a_benchmark_of_the_other_stores_runs(name: str, mariadb_url: str, mongo_url: str) -> None:
    rows: list[dict[str, Any]] = json.loads(bench("--only", name, "--json"))["results"]
    assert len(rows) == len(ON_OTHERS[name])
    for start, row in zip(ON_OTHERS[name], rows, strict=True):
        assert row["what"].startswith(start)


def test_both_sides_take_turns_and_the_first_round_is_forgotten() -> None:
    order: list[str] = []

    def side(name: str, rate: float) -> float:
        order.append(name)
        return rate

    pairs = take_turns("", lambda: side("base", 2.0), lambda: side("ours", 1.0), rounds=3)
    assert order == ["ours", "base", "base", "ours", "ours", "base", "base", "ours"]
    assert pairs == [(2.0, 1.0)] * 3


@pytest.mark.parametrize(("result", "met"), [(0.7, True), (0.69, False)])
def test_a_ratio_must_be_as_large_as_its_target(result: float, met: bool) -> None:
    row = Row(what="", base="a", base_rate=1, ours="b", our_rate=result, unit="/s", result=result, target=0.7)
    assert row.met is met


@pytest.mark.parametrize(("result", "met"), [(10.0, True), (10.1, False)])
def test_a_value_must_be_as_small_as_its_target(result: float, met: bool) -> None:
    assert value("", "relay", result, "ms", target=10.0).met is met
    assert value("", "relay", result, "ms").met is None


def test_the_stolen_share_is_a_share() -> None:
    with Steal() as steal:
        sum(range(100_000))
    assert 0 <= steal.share <= 1


async def test_the_wiretap_hears_every_statement_simple_or_prepared(postgres_url: str) -> None:
    connect = psycopg.AsyncConnection.connect
    async with Wiretap(postgres_url) as tap, await connect(tap.url, autocommit=True) as connection:
        async with connection.transaction():
            for prepare in (False, True, True):
                await connection.execute("-- a comment\nSELECT %s::integer", [1], prepare=prepare)
        await connection.execute("SET application_name = 'tapped'")
    assert tap.statements == {"BEGIN": 1, "SELECT": 3, "COMMIT": 1, "SET": 1}
    assert tap.queries == 4


def bench(*arguments: str) -> str:
    command = [sys.executable, "-m", "bench", "--quick", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100).stdout


def test_the_chart_is_drawn_from_the_figures_beside_it() -> None:
    run = json.loads((ASSETS / "bench.json").read_text())
    assert (ASSETS / "bench.svg").read_text() == chart(run), "draw it again: python -m bench.chart"


def test_a_chart_shows_peers_by_their_rates_and_the_rest_by_what_they_are_to_their_base() -> None:
    def row(what: str, base: str, result: float) -> dict[str, Any]:
        measured: Rates = {"base_rate": 1000.0, "our_rate": 4000.0, "result": result}
        return Row(what=what, base=base, ours="relay", unit="msg/s", target=0.4, **measured).facts()

    rows = [row("drain", "pgqueuer, 1 × 1,000", 4.0), row("drain <all> (PostgreSQL 16.14, fsync=on)", "bare loop", 0.5)]
    drawn = chart({"machine": {"cpus": 2, "python": "3.11"}, "results": rows})
    texts = re.findall(">([^<>]+)</text>", drawn)
    assert {
        "pgqueuer, 1 × 1,000",
        "1,000",
        "Postroom",
        "4,000  ×4.0",
        "drain &lt;all&gt; · PostgreSQL 16.14",
        "0.50",
    } <= set(texts)
