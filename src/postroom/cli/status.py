"""`postroom status`: how many messages are where, who sends them, and how late they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click

from postroom.cli.options import store_options
from postroom.cli.output import Column, rough, write, write_json, write_table
from postroom.cli.session import Session
from postroom.clock import utcnow
from postroom.message import rfc3339
from postroom.ops.health import has_live_owner
from postroom.store import OPEN, SETTLED, Counts, Lane, RelayInfo, Status

MEANING: dict[Status, str] = {
    "pending": "to be sent",
    "sending": "in flight",
    "failed": "to be tried again",
    "published": "confirmed by the broker",
    "dead": "given up; may have been delivered, if an answer was lost",
    "expired": "too late to send",
    "discarded": "given up by a person",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the store answered, and when."""

    counts: Counts
    lanes: Sequence[Lane]
    relays: Sequence[RelayInfo]
    now: datetime
    patience: timedelta
    """A relay without lanes that was silent for longer is not alive."""

    @property
    def owners(self) -> Counter[str]:
        """How many lanes each owner has."""
        return Counter(lane.owner for lane in self.lanes if lane.owner is not None)

    def alive(self, relay: RelayInfo) -> bool:
        """Was it heard of lately? With lanes, by its own lease; without, by ours."""
        if relay.seen_at is None:
            return False
        if lanes := [lane for lane in self.lanes if lane.owner == relay.owner]:
            return any(has_live_owner(lane, {relay.owner: relay.seen_at}, self.now) for lane in lanes)
        return self.now - relay.seen_at <= self.patience


@click.command(short_help="Show counts, lag, lanes and relays.")
@store_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(session: Session, as_json: bool) -> None:
    """Show how many messages are in each status, the lag, the lanes and the relays. The lag is the age of the oldest
    open message that is due.

    \b
    Examples:
      postroom status --store sqlite:///shop.db
      postroom status --json | jq .lag_seconds
    """
    seen = asyncio.run(_look(session))
    if as_json:
        write_json(_as_json(seen))
    else:
        _show(seen)


async def _look(session: Session) -> Seen:
    async with session.store() as store:
        return Seen(
            counts=await store.counts(),
            lanes=await store.lanes(),
            relays=await store.relays(),
            now=utcnow(),
            patience=session.settings.relay.lease,
        )


def _as_json(seen: Seen) -> dict[str, Any]:
    by_status: dict[str, Any] = {name: seen.counts.by_status.get(name, 0) for name in (*OPEN, *SETTLED)}
    owned = seen.owners.total()
    lanes = {
        "total": len(seen.lanes),
        "owned": owned,
        "free": len(seen.lanes) - owned,
        "owners": dict(sorted(seen.owners.items())),
    }
    return by_status | {
        "lag_seconds": round(seen.counts.lag.total_seconds(), 3),
        "lanes": lanes,
        "relays": [_relay_as_json(relay, seen) for relay in seen.relays],
    }


def _relay_as_json(relay: RelayInfo, seen: Seen) -> dict[str, Any]:
    return {
        "owner": relay.owner,
        "name": relay.name,
        "host": relay.host,
        "pid": relay.pid,
        "version": relay.version,
        "lanes": seen.owners[relay.owner],
        "alive": seen.alive(relay),
        "seen_at": None if relay.seen_at is None else rfc3339(relay.seen_at),
    }


def _show(seen: Seen) -> None:
    counts: list[Sequence[str]] = [
        (name, f"{seen.counts.by_status.get(name, 0):,}", MEANING[name]) for name in (*OPEN, *SETTLED)
    ]
    owned = seen.owners.total()
    rest: list[Sequence[str]] = [
        ("", "", ""),
        ("lag", rough(seen.counts.lag), "age of the oldest open message that is due"),
        ("lanes", f"{len(seen.lanes):,}", f"{owned:,} owned, {len(seen.lanes) - owned:,} free"),
        ("relays", f"{sum(map(seen.alive, seen.relays)):,}", "alive"),
    ]
    columns = [Column("STATUS"), Column("COUNT", right=True), Column("", style="dim", flexible=True)]
    write_table(columns, counts + rest)
    if rows := _relay_rows(seen):
        write("")
        titles = [Column("RELAY", flexible=True), Column("LANES", right=True), Column("HOST", flexible=True)]
        write_table([*titles, Column("PID", right=True), Column("VERSION"), Column("SEEN")], rows)


def _relay_rows(seen: Seen) -> list[Sequence[str]]:
    owners = seen.owners
    rows: list[Sequence[str]] = [
        (relay.name, str(owners.pop(relay.owner, 0)), relay.host, str(relay.pid), relay.version, _when(relay, seen))
        for relay in seen.relays
    ]
    # An owner that is on no record died, and its lanes wait for their leases to end.
    return rows + [(owner, str(count), "", "", "", "gone") for owner, count in sorted(owners.items())]


def _when(relay: RelayInfo, seen: Seen) -> str:
    if relay.seen_at is None:
        return "never"
    ago = f"{rough(max(seen.now - relay.seen_at, timedelta(0)))} ago"
    return ago if seen.alive(relay) else f"{ago}, silent"
