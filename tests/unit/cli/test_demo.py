"""The demo tells the truth: its last table is computed from the stores, and what is planted there makes it fail."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from rich.console import Console
from tests.commands import POSTROOM, Popen
from tests.unit.cli.running import Desk
from tests.unit.cli.terminal import on_a_terminal, plain

from postroom.contracts.ops import Record, Status
from postroom.demo.books import PLANTS, Books, facts_of, plant, problems, read
from postroom.demo.database import Database
from postroom.demo.live import Banner, picture
from postroom.demo.shop import WRITES, CreditRefused, Order, Shop
from postroom.demo.stage import Line
from postroom.message import Message
from postroom.testing.waiting import until

PROOF = (
    "orders committed 12",
    "bills written 12",
    "parcels written 12",
    "lost 0",
    "handled twice 0",
    "traces of the order rolled back 0",
    "order kept per customer yes",
)
ORDERS = [Order(1, "ada", 120), Order(2, "grace", 80), Order(5, "ada", 60)]
PATIENCE_SECONDS = 60
MOMENT = datetime(2026, 11, 17, 12, tzinfo=UTC)


def words(text: str) -> str:
    return " ".join(text.split())


def assert_all_is_well(shown: str) -> None:
    for line in PROOF:
        assert line in words(shown)
    stopped = re.search(r"duplicates stopped by the inbox (\d+)", words(shown))
    assert stopped is not None
    # Two of the relay that was killed, two that the broker repeated; a slow machine may bring more.
    assert int(stopped[1]) >= 4


def tables_in(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type != 'index'")}


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


# ── the story ──


def test_the_demo_ends_by_itself_and_all_is_well(empty: Desk) -> None:
    done = empty("demo")
    assert (done.code, done.err) == (0, "")
    assert_all_is_well(done.out)
    for fault in ("ROLLBACK", "answers 503", "kill -9", "came again", "BAD_ADDRESS", "behind the dead", "requeue"):
        assert fault in done.out
    assert "WRONG" not in done.out
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert list(empty.folder.iterdir()) == []


def test_on_a_terminal_messages_are_seen_to_move_and_a_planted_loss_is_red(
    empty: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Desk, "environment", quickly(Desk.environment))
    with on_a_terminal(empty, "demo") as (process, read_all):
        shown = read_all("")
        assert process.wait(PATIENCE_SECONDS) == 1
    red = "\x1b[1;31m"
    assert f"{red}✗" in shown
    assert re.search(rf"{re.escape(red)} *11\x1b", shown)
    text = plain(shown)
    for stop in (
        "PUT ─ SENDING ─ PUBLISHED ─ HANDLED BY",
        "●────────── billing shipping",
        "its relay is dead",
        "its lease",
    ):
        assert stop in text
    assert "lost 1" in words(text)
    assert "error: That must never happen, please report it: bills written: 11; lost: 1" in words(text)


def quickly(environment: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    def planted(desk: Desk, store: str | None = None, **env: str) -> dict[str, str]:
        return environment(desk, store, **env, POSTROOM_DEMO_PLANT="loss", POSTROOM_DEMO_PACE="0.1")

    return planted


def test_the_same_story_plays_on_postgresql_over_kafka_and_leaves_nothing(
    empty: Desk, postgres_database: str, kafka_url: str, kafka_topic: str
) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        done = empty("demo", "--store", postgres_database, "--to", f"{kafka_url}/{kafka_topic}")
        assert done.code == 0, done
        assert_all_is_well(done.out)
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert rows == [("orders",)]


# ── the proof ──


def what_the_stores_say(file: Path, *plants: str) -> str:
    """The books of a shop where every order was handled as promised, after this was done to them."""

    async def told() -> str:
        async with Database(f"sqlite:///{file}") as database, database.tables():
            shop = Shop(database, "r1")
            for order in ORDERS:
                shop.take(order)
                with database.transaction() as connection:
                    for statement in WRITES.values():
                        connection.execute(database.sql(statement), order)
            with pytest.raises(CreditRefused):
                shop.take(Order(3, "edsger", 9_999))
            for what in plants:
                plant(database, what)
            return problems(facts_of(as_handled(await read(database, Counter()))))

    return asyncio.run(told())


def as_handled(books: Books) -> Books:
    """As if a relay and the inboxes had been at work: what they write is not what is asked here."""
    handled = {name: len(lines) for name, lines in books.effects.items()}
    return replace(books, records=[replace(each, status="published") for each in books.records], handled=handled)


def test_what_is_right_is_right(tmp_path: Path) -> None:
    assert what_the_stores_say(tmp_path / "shop.db") == ""


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("loss", "bills written: 2; lost: 1"),
        ("double", "parcels written: 4; handled twice: 1"),
        ("inversion", "order kept per customer: NO"),
        ("ghost", "bills written: 3; parcels written: 3; traces of the order rolled back: 3"),
    ],
)
def test_what_is_planted_in_the_tables_is_told(tmp_path: Path, what: str, told: str) -> None:
    assert what in PLANTS
    assert what_the_stores_say(tmp_path / "shop.db", what) == told


def test_a_message_that_is_not_published_and_an_inbox_that_differs_are_told() -> None:
    books = Books(orders=ORDERS, records=[], effects={"billing": ORDERS, "shipping": ORDERS},
                  handled={"billing": 3, "shipping": 2}, deliveries=Counter())  # fmt: skip
    assert problems(facts_of(books)) == "inbox rows match the effects: NO"


def test_a_duplicate_that_had_its_effect_again_was_not_stopped() -> None:
    def stopped(*billed: Order) -> str:
        came = Counter({("billing", "a"): 2, ("shipping", "a"): 3})
        books = Books(orders=[ORDERS[0]], records=[], effects={"billing": billed, "shipping": ORDERS[:1]},
                      handled={"billing": 1, "shipping": 1}, deliveries=came)  # fmt: skip
        return next(fact.value for fact in facts_of(books) if fact.name.startswith("duplicates"))

    assert stopped(ORDERS[0]) == "3"
    assert stopped(ORDERS[0], ORDERS[0]) == "2"


# ── the place ──


def test_in_a_database_that_is_in_use_nothing_but_its_own_tables_is_made_and_dropped(desk: Desk) -> None:
    desk.execute("CREATE TABLE orders (id INTEGER)")
    assert desk("put", "order.paid", "--key", "7").code == 0
    before = tables_in(desk.folder / "shop.db")
    done = desk("demo", "--store", "sqlite:///shop.db")
    assert done.code == 0, done
    assert done.err == "Dropped the tables postroom_demo… from sqlite:///shop.db.\n"
    assert tables_in(desk.folder / "shop.db") - {"sqlite_sequence"} == before - {"sqlite_sequence"}
    assert desk.count == 1


def test_what_a_killed_demo_left_is_refused_and_cleaned(empty: Desk) -> None:
    with start(empty, "--store", "sqlite:///shop.db") as process:
        relay = relay_of(process)
        process.kill()
        process.wait()
    # Nobody is left to stop the relay: it sees that by itself.
    until(lambda: has_ended(relay))
    empty("demo", "--store", "sqlite:///shop.db").refuses("postroom_demo…", "--clean", code=1)
    assert empty("demo", "--clean", "--store", "sqlite:///shop.db").code == 0
    assert tables_in(empty.folder / "shop.db") <= {"sqlite_sequence"}


def test_a_table_of_yours_that_is_called_like_ours_stays(desk: Desk) -> None:
    desk.execute("CREATE TABLE postroom_demo_orders (id INTEGER)")
    before = tables_in(desk.folder / "shop.db")
    desk("demo", "--store", "sqlite:///shop.db").refuses("cannot make its tables", "postroom_demo_orders", code=1)
    assert tables_in(desk.folder / "shop.db") == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ended_in_the_middle_it_leaves_no_process_and_no_table(empty: Desk, number: signal.Signals) -> None:
    with start(empty, "--store", "sqlite:///shop.db") as process:
        relay = relay_of(process)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert err.decode().splitlines() == ["Removed shop.db, which was not there before.", "interrupted"]
    assert has_ended(relay)
    assert list(empty.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--store", "mongodb://u:hidden@host/shop"], "cannot write to mongodb://"),
        (["--store", "memory://"], "cannot write to memory://"),
        (["--to", "redis://:hidden@host/orders"], "cannot play over redis://"),
        (["--to", "local://shop:send"], "cannot play over local://shop:send"),
        (["--clean"], "--clean needs --store"),
    ],
)
def test_where_it_cannot_play_it_says_so(empty: Desk, arguments: list[str], said: str) -> None:
    done = empty("demo", *arguments)
    done.refuses(said, code=2)
    assert "hidden" not in done.err


def test_a_database_that_is_away_is_said_in_a_sentence(empty: Desk) -> None:
    done = empty("demo", "--store", "postgresql://app:hidden@127.0.0.1:1/shop")
    done.refuses("127.0.0.1", code=1)
    assert "hidden" not in done.err


def start(desk: Desk, *arguments: str) -> subprocess.Popen[bytes]:
    return Popen(
        [*POSTROOM, "demo", *arguments],
        cwd=desk.folder,
        env=desk.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def relay_of(process: subprocess.Popen[bytes]) -> int:
    """The process id of the first relay, as soon as it runs."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(rb"relay-1 runs, process (\d+)", line):
            os.kill(pid := int(found[1]), 0)
            return pid
    raise AssertionError("no relay was started")


# ── the picture ──


def drawn(books: Books | None, *, width: int, height: int, title: str = "", lines: Sequence[Line] = ()) -> list[str]:
    console = Console(width=width, height=height, highlight=False)
    with console.capture() as capture:
        console.print(picture(title, Banner("x" * 200), books, lines, {"relay-1"}, width, height))
    return capture.get().splitlines()


def record(seq: int, key: str, status: Status, kind: str = "order.placed", **more: Any) -> Record:
    message = Message(f"demo.r1.{kind}", key=key, data={"order": seq, "amount": 10 * seq})
    settled = MOMENT if status in {"published", "dead"} else None
    facts: dict[str, Any] = {
        "attempts": 0,
        "lane": 1,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "settled_at": settled,
    }
    return Record(seq=seq, status=status, message=message, **(facts | more))


def test_the_picture_says_where_each_message_is_and_why() -> None:
    records = [
        record(1, "ada", "published"),
        record(2, "grace", "sending", owner="relay-1:ab12"),
        record(3, "eve", "failed", "order.told", attempts=2, last_error_code="HTTP_503"),
        record(4, "eve", "pending"),
        record(5, "barbara", "dead", last_error_code="BAD_ADDRESS", parked=True),
        record(6, "barbara", "pending", parked=True),
    ]
    id_ = records[0].message.id_text
    books = Books(
        orders=[],
        records=records,
        effects={"billing": [Order(1, "ada", 10)], "shipping": [Order(1, "ada", 10)]},
        handled={},
        deliveries=Counter({("billing", id_): 2, ("shipping", id_): 1}),
    )
    assert [line.rstrip() for line in drawn(books, width=80, height=24)[3:10]] == [
        " # CUSTOMER  EUR PUT ─ SENDING ─ PUBLISHED ─ HANDLED BY",
        " 1 ada        10 ────────────────●────────── billing shipping came twice: known",
        " 2 grace      20 ──────●                                      its relay is dead",
        " 3 eve      hook ──────◌                                      HTTP_503, try 3",
        " 4 eve        40 ●                                            waits its turn",
        " 5 barbara    50 ──────✗                                      BAD_ADDRESS",
        " 6 barbara    60 ●                                            behind the dead",
    ]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40), (60, 12)])
def test_the_picture_fits_and_keeps_its_height(width: int, height: int) -> None:
    lines = [Line("shipping", "handled: effect and inbox row, one COMMIT", Order(13, "barbara", 9_999))] * 20
    empty, full = (drawn(None, width=width, height=height, title="A title " * 20, lines=shown) for shown in ([], lines))
    assert max(len(line.rstrip()) for line in full) <= width
    assert len(empty) == len(full) < height
