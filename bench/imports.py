"""What an import adds to the start of a process, and what it brings along."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

from bench.table import Row, take_turns

TARGET_MS = 60.0
NOTHING = "pass"
EVERYDAY = "from postroom.message import Message; from postroom.outbox.outbox import Outbox"


def run(*, quick: bool) -> Iterator[Row]:
    """The bare package; and, for information, what a service imports to write messages."""
    rounds = 3 if quick else 40
    yield _row("import postroom", "import postroom", rounds, TARGET_MS)
    yield _row("import Outbox and Message", EVERYDAY, rounds, None)


def third_party(code: str = EVERYDAY) -> list[str]:
    """The packages from elsewhere that are loaded after running the code, and not without it."""
    loaded = _loaded(code) - _loaded(NOTHING)
    return sorted({name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"postroom"})


def _row(what: str, code: str, rounds: int, target: float | None) -> Row:
    pairs = take_turns(what, lambda: _milliseconds(NOTHING), lambda: _milliseconds(code), rounds=rounds)
    others = third_party(code)
    return Row(
        what=f"{what} (third-party modules: {', '.join(others) or 'none'})",
        base="python -c pass",
        base_rate=median(base for base, _ in pairs),
        ours="with the import",
        our_rate=median(ours for _, ours in pairs),
        unit="ms",
        result=median(ours - base for base, ours in pairs),
        target=target,
        difference=True,
    )


def _milliseconds(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1000


def _loaded(code: str) -> set[str]:
    asked = f"import json, sys; exec({code!r}); print(json.dumps(list(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    return set(json.loads(answer.stdout))
