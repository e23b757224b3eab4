"""```python project=pytest: the tests of docs/how-to/test-your-code.md, run by pytest beside the code of a small shop.

What the page shows of a failure is what pytest says when the first of them fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.blocks import all_blocks, all_of
from tests.docs.projects import files_of, lay_out, swapped
from tests.docs.running import CHARGES, ORDERS, a_shop, command, environment, messages

SHOP = """
import sqlite3
from postroom import Message, Outbox

db, outbox = sqlite3.connect("shop.db", isolation_level=None), Outbox()


def pay(session, order, amount):
    outbox.put(session, Message("order.paid", key=order, data={"amount": amount}))


def order(session, name, amount):
    if amount < 1_000:
        session.execute("INSERT INTO orders VALUES (?, ?)", [name, amount])
        outbox.put(session, Message("order.placed", key=name, data={"amount": amount}))


def charge(message):
    if message.data["amount"] < 0:
        raise ValueError("nobody is charged less than nothing")
    db.execute("INSERT INTO charges VALUES (?, ?)", [message.key, message.data["amount"]])


def charges(session):
    return session.execute("SELECT * FROM charges").fetchall()
"""
SESSION = """
import pytest
from shop import db


@pytest.fixture
def session():
    db.execute("BEGIN")
    yield db
    db.execute("ROLLBACK")
"""
"""What the reader has: a test is wrapped in a transaction, and rolled back."""


def said_by_pytest(folder: Path, tests: str, conftest: str = "") -> str:
    folder.mkdir(exist_ok=True)
    url = a_shop(folder, ORDERS, CHARGES)
    lay_out({"shop.py": SHOP, "conftest.py": SESSION + conftest, "test_shop.py": tests}, folder)
    said = command(folder, environment(), "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", "--color=no").stdout
    assert messages(url) == [], "nothing has to be committed"
    return said


def test_every_test_of_the_page_passes(tmp_path: Path) -> None:
    files = files_of("file of pytest")
    assert set(files) == {"conftest.py", "test_shop.py"}
    said = said_by_pytest(tmp_path, files["test_shop.py"], files["conftest.py"])
    assert f"= {files['test_shop.py'].count('def test_')} passed" in said, said


def test_the_first_needs_nothing_in_the_conftest_and_fails_as_it_is_shown(tmp_path: Path) -> None:
    first, *_ = all_of("file of pytest")
    said = said_by_pytest(tmp_path / "right", first.code)
    assert "= 1 passed" in said, said

    (shown,) = (block for block in all_blocks() if block.page == first.page and block.language == "text")
    wrong = swapped(first.code, {'data={"amount": 12}': 'data={"amount": 13}'})
    said = said_by_pytest(tmp_path / "wrong", wrong)
    lines = [line.removeprefix("E").strip() for line in said.splitlines()]
    assert {line.strip() for line in shown.code.splitlines()} <= set(lines), said


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('("order-7", 12)]', '("order-7", 13)]'),
        ("assert_nothing_put(", "assert_nothing_putt("),
        ("return session", "return sesion"),
    ],
)
def test_a_test_that_is_wrong_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    files = files_of("file of pytest")
    (name,) = (name for name, code in files.items() if right in code)
    files[name] = swapped(files[name], {right: wrong})
    said = said_by_pytest(tmp_path, files["test_shop.py"], files["conftest.py"])
    assert " failed" in said or " error" in said, said
