"""The benchmarks run and say what they found. How fast anything is, no test asserts: the machine decides that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = {"import": ["import postroom", "import Outbox and Message"], "sqlite": ["100 messages", "put"]}


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


def test_an_import_brings_nothing_along() -> None:
    assert "(third-party modules: none)" in bench("--only", "import").splitlines()[1]


def bench(*arguments: str) -> str:
    command = [sys.executable, "-m", "bench", "--quick", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100).stdout
