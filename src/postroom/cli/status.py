"""`postroom status`: how many messages are where, who sends them, and how late they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from postroom.cli.options import store_options
from postroom.cli.output import Column, printable, rough, write, write_json, write_table
from postroom.cli.session import Session
from postroom.contracts.lanes import RelayInfo
from postroom.contracts.ops import OPEN, SETTLED, Status
from postroom.message import rfc3339
from postroom.ops.status import RelayShare, RelayState, StatusSnapshot, look

MEANING: dict[Status, str] = {
    "pending": "to be sent",
    "sending": "in flight",
    "failed": "to be tried again",
    "published": "confirmed by the broker",
    "dead": "given up; may have been delivered, if an answer was lost",
    "expired": "too late to send",
    "discarded": "given up by a person",
}


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
    snapshot = asyncio.run(_look(session))
    if as_json:
        write_json(_as_json(snapshot))
    else:
        _show(snapshot)


async def _look(session: Session) -> StatusSnapshot:
    async with session.store(reading=True) as store:
        return await look(store, patience=session.settings.relay.lease)


def _as_json(snapshot: StatusSnapshot) -> dict[str, Any]:
    by_status: dict[str, Any] = {name: snapshot.counts.by_status.get(name, 0) for name in (*OPEN, *SETTLED)}
    owned = snapshot.owned
    lanes = {
        "total": len(snapshot.lanes),
        "owned": owned.total(),
        "free": len(snapshot.lanes) - owned.total(),
        "owners": dict(sorted(owned.items())),
    }
    return by_status | {
        "lag_seconds": round(snapshot.lag.total_seconds(), 3),
        "lanes": lanes,
        "relays": [_relay_as_json(share, share.relay) for share in snapshot.shares if share.relay is not None],
    }


def _relay_as_json(share: RelayShare, relay: RelayInfo) -> dict[str, Any]:
    return {
        "owner": relay.owner,
        "name": relay.name,
        "host": relay.host,
        "pid": relay.pid,
        "version": relay.version,
        "lanes": share.lanes,
        "alive": share.state == "alive",
        "state": share.state,
        "seen_at": None if relay.seen_at is None else rfc3339(relay.seen_at),
    }


def _show(snapshot: StatusSnapshot) -> None:
    counts: list[Sequence[str]] = [
        (name, f"{snapshot.counts.by_status.get(name, 0):,}", MEANING[name]) for name in (*OPEN, *SETTLED)
    ]
    lanes, owned, shares = len(snapshot.lanes), snapshot.owned.total(), snapshot.shares
    rest: list[Sequence[str]] = [
        ("", "", ""),
        ("lag", rough(snapshot.lag), "age of the oldest open message that is due"),
        ("lanes", f"{lanes:,}", f"{owned:,} owned, {lanes - owned:,} free"),
        ("relays", f"{sum(share.state == 'alive' for share in shares):,}", "alive"),
    ]
    columns = [Column("STATUS"), Column("COUNT", right=True), Column("", style="dim", flexible=True)]
    write_table(columns, counts + rest)
    if shares:
        write("")
        titles = [Column("RELAY", flexible=True), Column("LANES", right=True), Column("HOST", flexible=True)]
        rows = [_row(share, snapshot.now) for share in shares]
        write_table([*titles, Column("PID", right=True), Column("VERSION"), Column("SEEN")], rows)
        for share in shares:
            # A sentence of its own: in the table it would leave no room for the relay's name.
            if sentence := _taken_over(share):
                write(sentence)


def _row(share: RelayShare, now: datetime) -> Sequence[str]:
    if (relay := share.relay) is None:
        return share.owner, str(share.lanes), "", "", "", share.state
    return relay.name, str(share.lanes), relay.host, str(relay.pid), relay.version, _seen(relay, share.state, now)


def _seen(relay: RelayInfo, state: RelayState, now: datetime) -> str:
    if relay.seen_at is None:
        return "never"
    ago = f"{rough(max(now - relay.seen_at, timedelta(0)))} ago"
    return ago if state == "alive" else f"{ago}, {state}"


def _taken_over(share: RelayShare) -> str | None:
    """When others take over the lanes of a relay that does not answer. None: it is alive, or it has no lanes."""
    if share.relay is None or share.state == "alive" or share.free_in is None:
        return None
    # Whoever sees that its process is gone, on its own machine, need not wait.
    when = "at once here, elsewhere " if share.state == "gone" and share.free_in else ""
    left = f"in {rough(share.free_in)}" if share.free_in else "now"
    return f"{printable(share.relay.name)} is {share.state}: its lanes are taken over {when}{left}."
