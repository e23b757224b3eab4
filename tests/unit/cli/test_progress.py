"""What a relay shows: the numbers are right, a log is not flooded, a terminal is left in order."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console
from tests.unit.cli.running import Desk
from tests.unit.cli.terminal import on_a_terminal, plain

from postroom.cli import progress
from postroom.cli.live import ASK_SHARE, LiveView, Seen, draw
from postroom.cli.progress import COUNTED_MIN, DEAD_LETTERS_MAX, LogView, Meter, Tally, view_of
from postroom.contracts.lanes import Lane
from postroom.contracts.ops import Counts
from postroom.errors import StoreUnavailable
from postroom.events import (
    BatchSettled,
    Event,
    LanesLost,
    LanesTaken,
    Listeners,
    MessageBuried,
    MessageRetried,
    RoutePaused,
    RouteResumed,
)
from postroom.ops.status import StatusSnapshot
from postroom.stores.memory import MemoryStore
from postroom.stores.memory.outbox import MemoryOutbox
from postroom.testing.contracts._case import NOON

ID = UUID("018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11")
SECOND = timedelta(seconds=1)
DEATH = MessageBuried(id=ID, type="order.paid", attempts=6, code="MAX_ATTEMPTS", error="TIMEOUT: no answer")
AWAY = RoutePaused(route="orders", code="CONNECT_FAILED", delay=SECOND)
LANES = [Lane(number, 0, None, None) for number in range(64)]
BACK = RouteResumed(route="orders", seconds=1.0)


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def settled(**numbers: int) -> BatchSettled:
    return BatchSettled(seconds=0.01, **numbers)


# ── the numbers ──


def test_the_numbers_are_added_up_by_the_clock_and_said_in_a_line() -> None:
    clock = Clock()
    tally = Tally(clock=clock)
    clock.now += 10
    tally(settled(published=300, failed=1))
    clock.now += 5
    tally(settled(dead=1, expired=4))
    assert (tally.seconds, tally.rates) == (15, (60, 20))
    assert tally.summary() == "300 published (20/s), 1 failed try, 1 dead, 4 expired"


def test_the_state_says_what_matters_most() -> None:
    tally = Tally(draining=True)
    assert (tally.state, Tally().state) == ("draining", "running")
    tally(AWAY)
    assert tally.state == "paused: broker away"
    tally(BACK)
    assert tally.state == "draining"
    tally(AWAY)
    tally.stopping = True
    assert tally.state == "stopping"


def test_one_broker_of_two_that_is_away_does_not_pause_the_relay() -> None:
    tally = Tally(brokers=2)
    tally(AWAY)
    assert tally.state == "running"
    tally(RoutePaused(route="mail", code="CONNECT_FAILED", delay=SECOND))
    assert tally.state == "paused: broker away"


def test_a_relay_whose_routes_are_all_shut_says_so() -> None:
    tally = Tally()
    tally(RoutePaused(route="orders", code="ENDPOINT_GONE", delay=None))
    assert tally.state == "shut: a person must act"
    assert tally.shut == ["route orders is shut (ENDPOINT_GONE): fix it, or take it out, and restart the relay."]


# ── in a log ──


def log(*events: Event, view: LogView | None = None, capsys: pytest.CaptureFixture[str]) -> list[str]:
    tally = Tally()
    listeners = Listeners(tally, view or LogView(tally))
    for event in events:
        listeners(event)
    return capsys.readouterr().out.splitlines()


@pytest.mark.requirement("C3")
def test_what_a_person_must_know_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    taken, lost = LanesTaken(owner="a", lanes=(1, 2)), LanesLost(owner="a", lanes=(2,))
    assert log(taken, lost, AWAY, AWAY, BACK, DEATH, capsys=capsys) == [
        "took 2 lanes: 2 now",
        "lost 1 lane: 1 now",
        "route orders is paused: the broker is away (CONNECT_FAILED); no message spends an attempt",
        "route orders goes on: the broker is back",
        f"dead letter: order.paid {ID}: MAX_ATTEMPTS: TIMEOUT: no answer",
    ]


def test_what_goes_well_and_what_is_tried_again_is_told_with_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    retried = MessageRetried(id=ID, type="order.paid", attempts=1, code="TIMEOUT", delay=SECOND)
    assert log(settled(published=5), retried, capsys=capsys) == []


def test_a_long_error_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = log(MessageBuried(id=ID, type="a", attempts=1, code="X", error="y" * 10_000), capsys=capsys)
    assert line.endswith("…")
    assert len(line) < 200


def test_a_broker_that_goes_away_twice_is_told_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(log(AWAY, BACK, AWAY, capsys=capsys)) == 3


def test_a_terminals_orders_in_a_type_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = log(MessageBuried(id=ID, type="a\x1b[2J", attempts=1, code="X"), capsys=capsys)
    assert r"a\x1b[2J" in line


async def _logged(tally: Tally, view: LogView, happens: Callable[[], None], until: Callable[[], bool]) -> None:
    running = asyncio.create_task(view.run())
    happens()
    async with asyncio.timeout(20):
        while not until():
            await asyncio.sleep(0.005)
    running.cancel()


def test_the_numbers_are_told_only_when_they_changed(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    view, lines = LogView(tally, every=0.01), list[str]()

    def told(times: int) -> bool:
        lines.extend(capsys.readouterr().out.splitlines())
        return len(lines) >= times

    asyncio.run(_logged(tally, view, lambda: tally(settled(published=5)), lambda: told(1)))
    assert lines[0].startswith("5 published (")
    rounds = iter(range(10))
    asyncio.run(_logged(tally, view, lambda: None, lambda: next(rounds, None) is None))
    assert not told(2), lines


def test_a_flood_of_dead_letters_is_no_flood_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    view = LogView(tally, every=0.01)
    assert len(log(*[DEATH] * 1_000, view=view, capsys=capsys)) == DEAD_LETTERS_MAX
    lines: list[str] = []

    def told() -> bool:
        lines.extend(capsys.readouterr().out.splitlines())
        return bool(lines)

    asyncio.run(_logged(tally, view, lambda: None, told))
    assert lines == ["… and 980 more dead letters"]
    assert len(log(DEATH, view=view, capsys=capsys)) == 1


def test_without_a_terminal_the_view_is_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(view_of(Tally(), MemoryStore()), LogView)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(view_of(Tally(), MemoryStore()), LiveView)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(view_of(Tally(), MemoryStore()), LogView)


# ── on a terminal ──


def drawn(tally: Tally, seen: Seen, width: int = 80) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(draw(tally, seen))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


def test_the_view_shows_all_that_is_known() -> None:
    clock = Clock()
    tally = Tally(draining=True, clock=clock)
    clock.now += 60
    tally(LanesTaken(owner="a", lanes=tuple(range(32))))
    tally(settled(published=1_200, failed=2, dead=1, expired=3))
    tally(DEATH)
    counts = Counts(by_status={"pending": 10, "failed": 2, "published": 99}, lag=3.2 * SECOND, parked=4)
    assert drawn(tally, Seen(StatusSnapshot(counts=counts, lanes=LANES, relays=[], now=NOON))) == [
        "● draining   32 of 64 lanes   1m 0s",
        "published     1,200  240/s now, 20/s overall",
        "failed tries      2  last: MAX_ATTEMPTS, order.paid",
        "dead              1  see `postroom list --status dead`",
        "expired           3  their time was over",
        "open             12  the oldest has been waiting for 3.2s, 4 behind a dead one",
    ]


def test_a_broker_or_a_store_that_is_away_is_shown() -> None:
    tally = Tally()
    tally(AWAY)
    head, *_, last = drawn(tally, Seen(away=True))
    assert head.startswith("● paused: broker away (orders is away: CONNECT_FAILED)   0 lanes")
    assert last.endswith("the store does not answer")


@pytest.mark.parametrize("width", [20, 40, 80, 140])
def test_the_view_fits_any_terminal(width: int) -> None:
    tally = Tally()
    for name in ("orders", "a route with a very long name, longer than any terminal is wide"):
        tally(RoutePaused(route=name, code="CONNECT_FAILED", delay=SECOND))
    tally(MessageBuried(id=ID, type="x" * 200, attempts=1, code="[red]not markup[/red]"))
    assert len(drawn(tally, Seen(), width)) == 5


class Slow(MemoryOutbox):
    """Takes its time to count, by a clock of its own."""

    asked = 0

    async def counts(self, **options: Any) -> Counts:
        self.asked += 1
        if self.asked == 2:
            raise StoreUnavailable("gone.")
        return await super().counts(**options)


def test_a_store_that_is_slow_is_asked_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    ticks = iter([0.0, 0.01, 1.0, 3.0, 4.0, 4.5])

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr("postroom.cli.live.monotonic", lambda: next(ticks))
    monkeypatch.setattr("postroom.cli.live.asyncio.sleep", pause)
    store = MemoryStore(Slow())
    view = LiveView(Tally(), store)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(view._ask())
    assert pauses == [1.0, 2.0 * ASK_SHARE, 0.5 * ASK_SHARE]
    assert not view._seen.away
    assert view._seen.snapshot is not None
    assert len(view._seen.snapshot.lanes) == 64


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_in_order_with_one_last_line(desk: Desk, number: signal.Signals) -> None:
    desk("put", "order.paid", "--key", "a")
    with on_a_terminal(desk, "relay", "--to", "memory://") as (process, read):
        read("● ")
        read("64 of 64 lanes")
        read("\x1b[32m1\x1b[0m")  # published, in green
        process.send_signal(number)
        shown = read("")
        assert process.wait(60) == 0
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is back"
    last = plain(shown).splitlines()[-1]
    assert re.fullmatch(r"1 published \(\d+/s\), 0 failed tries, 0 dead", last)
    assert "Traceback" not in shown


def test_a_log_has_no_escapes(desk: Desk) -> None:
    desk("put", "order.paid", "--key", "a")
    done = desk("relay", "--to", "memory://", "--drain", TERM="xterm", FORCE_COLOR="1")
    assert done.code == 0
    assert "\x1b" not in done.out
    _, taken, handed, last = done.out.splitlines()
    assert (taken, handed) == ("took 64 lanes: 64 now", "handed over 64 lanes: 0 now")
    assert last.startswith("1 published (")


# ── a long count ──


@pytest.mark.parametrize(
    ("is_terminal", "patience", "shown"),
    [(True, 0, "Read 1,000 messages"), (True, 60, None), (False, 0, None)],
)
def test_a_count_shows_on_a_terminal_when_it_lasts(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, patience: float, shown: str | None
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    with Meter("Read") as meter:
        assert list(meter.counted(range(2 * COUNTED_MIN))) == list(range(2 * COUNTED_MIN))
    assert (meter._status and meter._status.status) == shown
