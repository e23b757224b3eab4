"""Run the model: `python -m tests.model` runs everything, which takes some minutes; `--help` says how to pick."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tests.model.base import BASE
from tests.model.checker import check, show
from tests.model.explore import EDGES
from tests.model.mutants import MUTANTS


def main() -> int:
    """Run what was picked; 1 if a result is not the expected one."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Check the lane protocol exhaustively.")
    parser.add_argument(
        "part", nargs="?", choices=("base", "mutants", "edges"), help="only these; all of them if left out"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="those whose name holds this text, with their traces"
    )
    parser.add_argument("--seconds", type=int, default=900, help="the most that one of them may take (900)")
    told = parser.parse_args()
    runs: list[tuple[str, str, str | None, dict[str, Any]]] = [("base", name, None, kw) for name, kw in BASE.items()]
    runs += [("mutants", name, expected, kw | {"sym": False}) for name, expected, kw in MUTANTS]
    runs += [("edges", name, "?", kw) for name, kw in EDGES.items()]
    wrong = 0
    for part, name, expected, kw in runs:
        if told.part in (None, part) and told.only in name:
            result = check(name, budget=told.seconds, limit=5_000_000, **kw)
            if expected != "?" and result["inv"] != expected:
                wrong += 1
                print(f"      ^^^ expected {expected}")
            if told.only and result["trace"]:
                print(show(result["trace"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
