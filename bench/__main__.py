"""The command: python -m bench [--only NAME] [--quick] [--json] [--strict]."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator

from bench import contention, copy, default, drain, flat, idle, imports, inbox, latency, memory, put, sending, sqlite
from bench.peers import compare
from bench.table import Row, progress, table

BENCHMARKS: dict[str, Callable[..., Iterator[Row]]] = {
    "put": put.run,
    "copy": copy.run,
    "sqlite": sqlite.run,
    "import": imports.run,
    "drain": drain.run,
    "default": default.run,
    "others": drain.run_others,
    "contention": contention.run,
    "peers": compare.run,
    "flat": flat.run,
    "inbox": inbox.run,
    "sending": sending.run,
    "latency": latency.run,
    "idle": idle.run,
    "memory": memory.run,
}
INTERRUPTED = 130


def main() -> int:
    """Measure, print, and answer 0; with --strict 1 when a target is missed."""
    arguments = _parser().parse_args()
    logging.getLogger("postroom").setLevel(logging.ERROR)
    rows: list[Row] = []
    try:
        for name in arguments.only or BENCHMARKS:
            rows.extend(BENCHMARKS[name](quick=arguments.quick))
    except KeyboardInterrupt:
        progress("interrupted\n")
        return INTERRUPTED
    progress("")
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "platform": platform.platform()}
    if arguments.json:
        print(json.dumps({"machine": machine, "results": [row.facts() for row in rows]}, indent=2))
    else:
        print(table(rows))
        print(f"\nPython {machine['python']}, {machine['cpus']} CPUs, {machine['platform']}")
    return 1 if arguments.strict and any(row.met is False for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Postroom's speed, to doing without it.")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="this one; may be given several times")
    parser.add_argument("--quick", action="store_true", help="small and fast: does it run? The numbers mean little")
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
