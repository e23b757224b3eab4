"""The demo tells the truth: its last table is computed, and a planted loss makes it fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from rich.console import Console
from tests.unit.cli.running import Desk
from tests.unit.cli.terminal import on_a_terminal, plain

from postroom.cli.demo import demo
from postroom.cli.demo.live import LINES, picture
from postroom.cli.demo.proof import Proof, compare
from postroom.cli.demo.shop import ORDERS, CreditRefused, Order, Shop
from postroom.cli.demo.stage import Line, PlainStage
from postroom.cli.demo.story import play
from postroom.cli.demo.warehouse import Warehouse
from postroom.store import Query, Record
from postroom.stores import open_store
from postroom.transport import Envelope, Outcome, Sent

PLACED = [Order("ada", 1), Order("ada", 2), Order("grace", 3)]
SUMMARY = ("orders committed 6", "messages delivered 6", "lost 0", "ghosts 0", "order kept per customer yes")


def proof(*delivered: Order, published: int | None = None) -> Proof:
    return Proof(len(PLACED), PLACED, len(delivered) if published is None else published, delivered)


@pytest.mark.parametrize("options", [[], ["--plain"]])
def test_the_demo_ends_by_itself_and_all_is_well(empty: Desk, options: list[str]) -> None:
    done = empty("demo", *options)
    assert (done.code, done.err) == (0, "")
    said = " ".join(done.out.split())
    for line in SUMMARY:
        assert line in said
    for fault in ("ROLLBACK", "TIMEOUT", "UNKNOWN_CUSTOMER", "waits for the dead one"):
        assert fault in said
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_what_is_right_is_right() -> None:
    assert compare(proof(PLACED[2], *PLACED[:2])) == []


def test_a_planted_loss_ghost_or_inversion_is_told() -> None:
    assert compare(proof(*PLACED[:2])) == ["messages were lost"]
    assert compare(proof(*PLACED, Order("eve", 9))) == ["ghosts were delivered"]
    assert compare(proof(*PLACED, PLACED[0])) == ["ghosts were delivered", "the order was broken"]
    assert compare(proof(PLACED[1], PLACED[0], PLACED[2])) == ["the order was broken"]
    assert compare(proof(*PLACED, published=2)) == ["the outbox and the warehouse differ"]


def test_a_warehouse_that_loses_a_message_makes_the_demo_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault is in the world, not in the table: the demo finds it by comparing."""
    honest = Warehouse._take

    def forgetful(self: Warehouse, envelope: Envelope) -> Outcome:
        is_the_one = envelope.message.key == "ada" and envelope.message.data["amount"] == 60
        return Sent() if is_the_one else honest(self, envelope)

    monkeypatch.setattr(Warehouse, "_take", forgetful)
    with pytest.raises(click.ClickException, match="must never happen, please report it: messages were lost"):
        demo.main([], standalone_mode=False)


def test_what_was_rolled_back_never_existed(tmp_path: Path) -> None:
    class Watching(PlainStage):
        seen: Sequence[Record] = ()

        def outbox(self, records: Sequence[Record]) -> None:
            assert all(record.message.key != "edsger" for record in records)
            self.seen = records

    stage = Watching()
    told = asyncio.run(play(tmp_path / "shop.db", stage))
    assert len(stage.seen) == len(told.orders) == len(ORDERS) - 1


def test_the_shop_keeps_both_or_neither(tmp_path: Path) -> None:
    async def messages() -> int:
        async with open_store(f"sqlite:///{tmp_path / 'shop.db'}") as store:
            await store.migrate()
            shop = Shop(tmp_path / "shop.db")
            shop.take(Order("ada", 1))
            with pytest.raises(CreditRefused):
                shop.take(Order("ada", 9_999))
            assert shop.orders() == [Order("ada", 1)]
            shop.close()
            return len(await store.find(Query()))

    assert asyncio.run(messages()) == 1


@pytest.mark.parametrize("width", [80, 140])
def test_the_picture_fits_and_keeps_its_height(width: int) -> None:
    lines = [Line("warehouse", Order("barbara", 9_999), "UNKNOWN_CUSTOMER: refused, a dead letter")] * LINES
    heights = []
    for shown in ([], lines):
        console = Console(width=width, highlight=False)
        with console.capture() as capture:
            console.print(picture("A title", [], shown))
        drawn = capture.get().splitlines()
        assert max(len(line.rstrip()) for line in drawn) <= width
        heights.append(len(drawn))
    assert heights[0] == heights[1] <= 24


def test_on_a_terminal_messages_are_seen_to_move_and_the_summary_stays(empty: Desk) -> None:
    with on_a_terminal(empty, "demo") as (process, read):
        shown = plain(read(""))
        assert process.wait(60) == 0
    for stop in ("PUT ── SENDING ── PUBLISHED", "───────◌", "───────✗", "──────────────────●", "waits its turn"):
        assert stop in shown
    said = " ".join(shown.split())
    for line in SUMMARY:
        assert line in said
