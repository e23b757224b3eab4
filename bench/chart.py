"""The chart of the README, drawn from what a run printed with --json.

```
   python -m bench --json > docs/assets/bench.json      measure
   python -m bench.chart                                draw docs/assets/bench.svg from it
```

Two panels: how fast Postroom drains beside its peers, and how near it comes to code that promises nothing. Greys and a blue
that can be read on white and on black, since nobody knows the page behind it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

Facts: TypeAlias = dict[str, Any]
"""A row as `bench.table.Row.facts` has it."""

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
PEERS = ("pgqueuer", "faststream-outbox")
WIDTH, LABEL, BAR, STEP = 840, 390, 14, 22
FIGURES = 110
"""What is left at the right for the figures."""
ROOM = WIDTH - LABEL - FIGURES
BLUE, GREY, INK = "#3b82f6", "#8b949e", "#7d8590"


def main() -> int:
    """Draw it."""
    run = json.loads((ASSETS / "bench.json").read_text())
    (ASSETS / "bench.svg").write_text(chart(run))
    return 0


def chart(run: Facts) -> str:
    """The whole picture."""
    rows: Sequence[Facts] = [row for row in run["results"] if row["result_is"] == "ratio"]
    machine = run["machine"]
    lines = [
        *_title("Draining no-op work from PostgreSQL, messages a second", _note(machine)),
        *_rates([row for row in rows if row["base"].startswith(PEERS)]),
        *_title("To a bare loop or client that promises nothing", "1.00: as fast as that"),
        *_ratios([row for row in rows if not row["base"].startswith(PEERS) and _is_shown(row)]),
    ]
    parts, y = [], 0
    for height, part in lines:
        parts.append(part.format(y=y, mid=y + BAR / 2 + 4, low=y + BAR))
        y += height
    style = (
        f"text {{ font: 13px system-ui, sans-serif; fill: {INK} }} .b {{ font-weight: 600 }} .s {{ font-size: 11px }}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img">'
    return "\n".join(
        [head, "<title>Postroom's speed, measured side by side</title>", f"<style>{style}</style>", *parts, "</svg>\n"]
    )


def _is_shown(row: Facts) -> bool:
    """What has a target, or stands beside the bare loop, however it came out; not what compares us with ourselves."""
    return row["base"] == "bare loop" or (row["target"] is not None and row["base"] != "plain")


Part: TypeAlias = tuple[int, str]
"""How much room it takes, and what is drawn; {y} is its top."""


def _title(text: str, note: str) -> Iterator[Part]:
    yield 20, ""
    yield 18, f'<text x="0" y="{{y}}" class="b">{escape(text)}</text>'
    yield 12, f'<text x="0" y="{{y}}" class="s">{escape(note)}</text>'


def _rates(rows: Sequence[Facts]) -> Iterator[Part]:
    """Two bars a row: theirs and ours, of the same turns."""
    most = max((rate for row in rows for rate in (row["base_rate"], row["our_rate"])), default=1)
    for row in rows:
        yield _bar(row["base"], row["base_rate"] / most, f"{row['base_rate']:,.0f}", GREY)
        yield _bar("Postroom", row["our_rate"] / most, f"{row['our_rate']:,.0f}  ×{row['result']:.1f}", BLUE)
        yield 8, ""


def _ratios(rows: Sequence[Facts]) -> Iterator[Part]:
    """One bar a row, with the base as a line to reach."""
    most = max([1.0, *(row["result"] for row in rows)])
    top = LABEL + ROOM / most
    for row in rows:
        height, bar = _bar(_short(row["what"]), row["result"] / most, f"{row['result']:.2f}", BLUE)
        mark = f'<line x1="{top:.0f}" x2="{top:.0f}" y1="{{y}}" y2="{{low}}" stroke="{GREY}" stroke-dasharray="2 2"/>'
        yield height, bar + mark


def _bar(label: str, share: float, figure: str, colour: str) -> Part:
    long = max(1.0, ROOM * share)
    return STEP, (
        f'<text x="{LABEL - 8}" y="{{mid}}" text-anchor="end" class="s">{escape(label)}</text>'
        f'<rect x="{LABEL}" y="{{y}}" width="{long:.0f}" height="{BAR}" rx="2" fill="{colour}"/>'
        f'<text x="{LABEL + ROOM + 10}" y="{{mid}}" class="s">{escape(figure)}</text>'
    )


def _short(what: str) -> str:
    """Without the circumstances, but for the first of them."""
    name, _, rest = what.partition(" (")
    where = re.split("[,;-]", rest.rstrip(")"))[0]
    return f"{name} · {where}" if where else name


def _note(machine: Facts) -> str:
    return f"higher is better; {machine['cpus']} cores, Python {machine['python']}, both sides in turns on one server"


if __name__ == "__main__":
    sys.exit(main())
