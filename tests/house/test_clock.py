"""`postroom.clock` is the one place that asks the time, so that a test which owns the time owns all of it."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/postroom"
ASKS = re.compile(
    r"\btime\.(time|time_ns|monotonic|perf_counter)\(|\bloop\(\)\.time\(|\bloop\.time\(|\bdatetime\.now\("
)
FOLDERS = ("config", "contracts", "handles", "inbox", "integrations", "outbox", "relay", "telemetry")
"""These folders, and the modules at the top. Transports and stores have deadlines of their drivers' and loops' own."""


def test_nothing_but_the_clock_asks_the_time() -> None:
    files = [*SOURCE.glob("*.py"), *(file for folder in FOLDERS for file in (SOURCE / folder).rglob("*.py"))]
    asks = [
        f"{file.relative_to(SOURCE)}: {line.strip()}"
        for file in files
        if file.name != "clock.py"
        for line in file.read_text().splitlines()
        if ASKS.search(line) and "like datetime.now(UTC)" not in line
    ]
    assert asks == [], "ask postroom.clock instead"
