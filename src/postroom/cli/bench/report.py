"""What `postroom bench` found, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from postroom.cli.output import Column, write, write_table
from postroom.config.values import RelayConfig
from postroom.ops.measure import Latency, Load, Rate

COLUMNS = (
    Column("PHASE"),
    Column("MESSAGES", right=True),
    Column("TIME", right=True),
    Column("RATE", right=True),
    Column("", style="dim", flexible=True),
)


@dataclass(slots=True, kw_only=True)
class Report:
    """Where, with what, and what came out. A phase that was left out is None."""

    store: str
    to: str
    load: Load
    config: RelayConfig
    fill: Rate | None = None
    drain: Rate | None = None
    latency: Latency | None = None

    def as_json(self) -> dict[str, Any]:
        """One object, its phases by name."""
        return {
            "store": self.store,
            "to": self.to,
            "messages": self.load.messages,
            "keys": self.load.keys,
            "size": self.load.size,
            "batch": self.config.first_batch,
            "batch_max": self.config.largest_batch,
            "concurrency": self.config.concurrency,
            "fill": _rate_as_json(self.fill),
            "drain": _rate_as_json(self.drain),
            "latency": _latency_as_json(self.latency),
        }


def write_report(report: Report) -> None:
    """The table."""
    load = report.load
    write(f"{report.store} to {report.to}: {load.size:,} bytes a message, {load.keys:,} keys")
    write_table(COLUMNS, list(_rows(report)))


def _rows(report: Report) -> Iterator[Sequence[str]]:
    if report.fill:
        yield _row("fill", report.fill, "a thousand in a transaction")
    if report.drain:
        yield _row("drain", report.drain, f"{report.config.concurrency} batches of {_size(report.config)} at once")
    if (latency := report.latency) is not None:
        p50, p99, most = (f"{1000 * each:.1f} ms" for each in _figures(latency))
        said = f"p50 {p50}, p99 {p99}, longest {most}, from the commit to the answer"
        yield _row("latency", Rate(len(latency.took), latency.seconds), said)


def _size(config: RelayConfig) -> str:
    first, largest = config.first_batch, config.largest_batch
    return f"{first:,}" if first == largest else f"{first:,} to {largest:,}"


def _row(phase: str, rate: Rate, said: str) -> Sequence[str]:
    return (phase, f"{rate.messages:,}", f"{rate.seconds:.2f} s", f"{rate.per_second:,.0f}/s", said)


def _figures(latency: Latency) -> tuple[float, float, float]:
    return latency.percentile(50), latency.percentile(99), latency.took[-1]


def _rate_as_json(rate: Rate | None) -> dict[str, Any] | None:
    if rate is None:
        return None
    return {"messages": rate.messages, "seconds": round(rate.seconds, 6), "per_second": round(rate.per_second, 1)}


def _latency_as_json(latency: Latency | None) -> dict[str, Any] | None:
    if latency is None:
        return None
    p50, p99, most = (round(1000 * each, 3) for each in _figures(latency))
    return {"messages": len(latency.took), "p50_ms": p50, "p99_ms": p99, "max_ms": most}
