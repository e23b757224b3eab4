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
from postroom.cli.output import Column, printable, rough, write, write_json, write_table
from postroom.cli.session import Session
from postroom.clock import utcnow
from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import OPEN, SETTLED, Counts, Status
from postroom.message import rfc3339
from postroom.ops.health import has_live_owner
from postroom.relay.presence import gone_among

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
    gone: frozenset[str]
    """Owners whose process was on this machine, and is no more."""

    @property
    def owners(self) -> Counter[str]:
        """How many lanes each owner has."""
        return Counter(lane.owner for lane in self.lanes if lane.owner is not None)

    def alive(self, relay: RelayInfo) -> bool:
        """Was it heard of lately? With lanes, by its own lease; without, by ours. One that is gone is not alive at all."""
        if relay.seen_at is None or relay.owner in self.gone:
            return False
        if lanes := self.lanes_of(relay):
            return any(has_live_owner(lane, {relay.owner: relay.seen_at}, self.now) for lane in lanes)
        return self.now - relay.seen_at <= self.patience

    def state(self, relay: RelayInfo) -> str:
        """What it is, in a word."""
        return "gone" if relay.owner in self.gone else "alive" if self.alive(relay) else "silent"

    def lanes_of(self, relay: RelayInfo) -> Sequence[Lane]:
        return [lane for lane in self.lanes if lane.owner == relay.owner]

    def taken_over_in(self, relay: RelayInfo) -> timedelta | None:
        """When the last of its lanes can be taken over by anybody; None: it has none."""
        leases = [lane.lease_until for lane in self.lanes_of(relay) if lane.lease_until is not None]
        return max(max(leases) - self.now, timedelta(0)) if leases else None


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
    async with session.store(reading=True) as store:
        relays = await store.lanes.relays()
        return Seen(
            counts=await store.ops.counts(),
            lanes=await store.lanes.all(),
            relays=relays,
            now=utcnow(),
            patience=session.settings.relay.lease,
            gone=gone_among(relays),
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
        "state": seen.state(relay),
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
        for relay in seen.relays:
            # A sentence of its own: in the table it would leave no room for the relay's name.
            if sentence := _taken_over(relay, seen):
                write(sentence)


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
    state = seen.state(relay)
    return ago if state == "alive" else f"{ago}, {state}"


def _taken_over(relay: RelayInfo, seen: Seen) -> str | None:
    """When others take over the lanes of a relay that does not answer. None: it is alive, or it has no lanes."""
    state, left = seen.state(relay), seen.taken_over_in(relay)
    if state == "alive" or left is None:
        return None
    # Whoever sees that its process is gone, on its own machine, need not wait.
    when = "at once here, elsewhere " if state == "gone" and left else ""
    return (
        f"{printable(relay.name)} is {state}: its lanes are taken over {when}{f'in {rough(left)}' if left else 'now'}."
    )
