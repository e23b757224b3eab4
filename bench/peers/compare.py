"""Draining no-op work on one server: ours to null://, beside pgqueuer and faststream-outbox.

Neither peer keeps order per key, and both delete what is done; ours keeps the order and the row. Each enqueues by its own
API, 300 bytes a message, and runs with the setting that had the highest median here, three rounds each (ours: bench/engine.py):

- pgqueuer: asyncpg, uvloop, batches of 1,000, of seven settings. All from batches of 100 on were within their spread; batches
  of 10 by five queue managers, the defaults of its own benchmark, gave half.
- faststream-outbox: uvloop, a delete per message, its default: batches of 100 and sixteen workers, of three settings. For
  information, too, with its opt-in batched deletes of 1,000, which its page on performance names as a lever: two workers
  and batches of 1,000, of five settings; about four times as fast.

Start-up is not counted, and of theirs the clock stops at the last handler's end, before the last deletes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench import backlog, engine
from bench.peers.environment import drain, python
from bench.postgres import Shop, shop
from bench.process import Process
from bench.table import Row, progress, ratio, take_turns


@dataclass(frozen=True, slots=True)
class Peer:
    """A library with its settings, and how many times as fast we want to be."""

    name: str
    script: str
    settings: tuple[int, ...]
    target: float | None
    number: int
    """How many it drains in a turn: enough for about two seconds."""


PEERS = (
    Peer("pgqueuer, 1 × 1,000", "run_pgqueuer.py", (1_000, 1), 4.0, 20_000),
    Peer("faststream-outbox, 16 × 100", "run_faststream.py", (100, 16, 1), 20.0, 4_000),
    Peer("faststream-outbox, 2 × 1,000, batched deletes", "run_faststream.py", (1_000, 2, 1_000), None, 15_000),
)


def run(*, quick: bool) -> Iterator[Row]:
    """A row per peer."""
    progress("the peers' virtual environment")
    python()
    with shop(durable=not quick) as place:
        for peer in PEERS:
            yield _row(place, peer, *((500, 500, 1) if quick else (peer.number, 100_000, 5)))


def _row(place: Shop, peer: Peer, theirs: int, ours: int, rounds: int) -> Row:
    what = f"drain no-op work ({place.server})"
    with Process() as process:

        def base() -> float:
            return drain(peer.script, place.url, theirs, *peer.settings)

        def relay() -> float:
            backlog.fill(place.url, ours)
            return ours / process.call(engine.drain, engine.Work(store=place.url, to="null://", published=ours))

        pairs = take_turns(f"{what}, {peer.name}", base, relay, rounds=rounds)
    name = f"relay, {engine.CONCURRENCY} × {engine.BATCH:,}"
    return Row(what=what, base=peer.name, ours=name, unit="msg/s", target=peer.target, **ratio(pairs))
