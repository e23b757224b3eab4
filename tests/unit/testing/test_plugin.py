"""The plugin of pytest, in test suites as users write them: each runs in a pytest of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from postroom.stores import open_store

pytest_plugins = ["pytester"]

SHOP = """
import sqlite3
import pytest
from postroom import Message, Outbox

@pytest.fixture
def shop():
    connection = sqlite3.connect("shop.db", isolation_level=None)
    connection.execute("BEGIN")
    yield connection
    connection.rollback()
    connection.close()

def pay(connection, order, amount=12):
    Outbox().put(connection, Message("order.paid", key=order, data={"amount": amount}))
"""
BOUND = """
@pytest.fixture
def postroom_store(shop):
    return shop
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with a shop's database, for a test suite."""

    async def migrate() -> None:
        async with open_store(f"sqlite:///{pytester.path / 'shop.db'}") as store:
            await store.schema.migrate()

    asyncio.run(migrate())
    return pytester


def run(suite: pytest.Pytester, code: str, *arguments: str, helpers: str = SHOP + BOUND) -> pytest.RunResult:
    suite.makepyfile(helpers + code)
    # Not by its entry point, and not twice either, whatever is installed.
    ours = ("-p", "no:postroom", "-p", "postroom.testing.plugin", "-p", "no:randomly")
    return suite.runpytest_subprocess(*ours, "-W", "error", *arguments)


def test_what_was_put_in_the_open_transaction_is_seen_and_gone_in_the_next_test(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
def test_one(shop, postroom_outbox):
    postroom_outbox.assert_nothing_put()
    pay(shop, "order-7"); pay(shop, "order-8", 13)
    assert [each.key for each in postroom_outbox.messages()] == ["order-7", "order-8"]
    assert [each.key for each in postroom_outbox.messages("order.*", key="order-8")] == ["order-8"]
    assert postroom_outbox.messages("basket.*") == []
    message = postroom_outbox.assert_put("order.paid", key="order-8", data={"amount": 13}, topic=None, times=1)
    assert message.data == {"amount": 13}
    postroom_outbox.assert_put("order.paid", times=2)
    postroom_outbox.assert_put("order.sent", times=0)
    postroom_outbox.assert_nothing_put("order.sent")

def test_two(postroom_outbox):
    postroom_outbox.assert_nothing_put()
""",
    )
    result.assert_outcomes(passed=2)


def test_a_failure_says_what_is_there_instead(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
def test_other_data(shop, postroom_outbox):
    pay(shop, "order-7")
    postroom_outbox.assert_put("order.paid", key="order-7", data={"amount": 13})

def test_other_key(shop, postroom_outbox):
    pay(shop, "order-7")
    postroom_outbox.assert_put("order.paid", key="order-8")

def test_too_many(shop, postroom_outbox):
    pay(shop, "order-7"); pay(shop, "order-7")
    postroom_outbox.assert_put("order.paid", times=1)

def test_none(postroom_outbox):
    postroom_outbox.assert_put("order.paid")

def test_not_nothing(shop, postroom_outbox):
    pay(shop, "order-7")
    postroom_outbox.assert_nothing_put("order.*")

def test_no_field(postroom_outbox):
    postroom_outbox.assert_put("order.paid", colour="red")
""",
    )
    result.assert_outcomes(failed=6)
    there = "E *  order.paid key='order-7' data={'amount': 12}"
    result.stdout.fnmatch_lines(
        [
            "E * AssertionError: No order.paid key='order-7' data={'amount': 13} was put. Of that type and key:", there,
            "E * AssertionError: No order.paid key='order-8' was put. In the outbox:", there,
            "E * AssertionError: order.paid was put 2 times, not 1. Of that type and key:", there,
            "E * AssertionError: No order.paid was put. In the outbox:", "E *  nothing",
            "E * AssertionError: No order.[*] should have been put, but there is:", there,
            "E * TypeError: A message has no colour; it has *",
        ]
    )  # fmt: skip
    # The failure stands in the test, not somewhere inside the plugin.
    result.stdout.no_fnmatch_line("*postroom/testing*")


def test_relaying_delivers_in_order_once_and_in_the_thread_of_the_test(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
def test_sync(shop, postroom_outbox):
    pay(shop, "order-7"); pay(shop, "order-8")
    got = []
    def bill(message):
        shop.execute("SELECT 1")  # refused by sqlite3 in any other thread
        got.append(message.key)
        return "billed"
    sent = postroom_outbox.relay(to=bill)
    assert got == ["order-7", "order-8"]
    assert [(each.message.key, each.is_sent, each.outcome.result) for each in sent] == [
        ("order-7", True, "billed"), ("order-8", True, "billed")]
    assert postroom_outbox.relay(to=bill) == []
    pay(shop, "order-9")
    assert [each.message.key for each in postroom_outbox.relay(to=bill)] == ["order-9"]

def test_an_async_function_and_a_transport(shop, postroom_outbox):
    pay(shop, "order-7")
    got = []
    async def bill(message):
        got.append(message.key)
    assert postroom_outbox.relay(bill)[0].is_sent
    assert got == ["order-7"]
    pay(shop, "order-8")
    assert [each.message.key for each in postroom_outbox.relay("null://")] == ["order-8"]

def test_clear_looks_away(shop, postroom_outbox):
    pay(shop, "order-7")
    postroom_outbox.clear()
    postroom_outbox.assert_nothing_put()
    assert postroom_outbox.relay("null://") == []
    pay(shop, "order-8")
    assert [each.key for each in postroom_outbox.messages()] == ["order-8"]
    assert shop.execute("SELECT count(*) FROM outbox").fetchone() == (2,)
""",
    )
    result.assert_outcomes(passed=3)


def test_what_a_function_raises_is_raised_or_an_outcome_and_stops_its_key(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
def refuse(message):
    if message.key == "order-7":
        raise LookupError("no such order")

def test_raised(shop, postroom_outbox):
    pay(shop, "order-7")
    with pytest.raises(LookupError, match="no such order"):
        postroom_outbox.relay(refuse)

def test_an_outcome(shop, postroom_outbox):
    pay(shop, "order-7"); pay(shop, "order-7"); pay(shop, "order-8")
    failed, behind, other = postroom_outbox.relay(refuse, check=False)
    assert (failed.outcome.code, failed.outcome.error) == ("HANDLER_ERROR", "LookupError: no such order")
    assert behind.outcome.code == "KEY_STOPPED"
    assert other.is_sent
    assert [each.message.key for each in postroom_outbox.relay(print)] == ["order-7", "order-7"]

def test_a_transport_that_fails(shop, postroom_outbox):
    pay(shop, "order-7")
    with pytest.raises(AssertionError, match="order.paid with the key 'order-7' was not sent: .*HANDLER_ERROR"):
        postroom_outbox.relay("local://operator:truediv")
""",
    )
    result.assert_outcomes(passed=3)


ASYNC = """
@pytest.fixture
def anyio_backend():
    return "asyncio"

pytestmark = pytest.mark.anyio
"""


def test_in_an_async_test_every_answer_is_awaited(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        ASYNC
        + """
import aiosqlite

async def test_async(postroom_outbox):
    async with aiosqlite.connect("shop.db", isolation_level=None) as connection:
        await connection.execute("BEGIN")
        await Outbox().put(connection, Message("order.paid", key="order-7"))
        outbox = postroom_outbox(connection)
        await outbox.assert_put("order.paid", key="order-7")
        got = []
        async def bill(message):
            got.append(message.key)
        assert [each.is_sent for each in await outbox.relay(bill)] == [True]
        assert got == ["order-7"]
        await connection.rollback()
        await outbox.assert_nothing_put()

async def test_a_sync_connection_in_an_async_test(shop, postroom_outbox):
    pay(shop, "order-7")
    await postroom_outbox.assert_put("order.paid")
    assert len(await postroom_outbox.relay("null://")) == 1

async def test_fails(postroom_outbox):
    await postroom_outbox.assert_put("order.paid")

async def test_forgotten(postroom_outbox):
    postroom_outbox.assert_put("order.paid")
""",
    )
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*postroom_outbox: assert_put was not awaited*"])


def test_by_its_url_what_is_committed_is_seen(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        ASYNC.replace("pytestmark = pytest.mark.anyio", "")
        + """
@pytest.fixture
def postroom_store():
    return "sqlite:///shop.db"

def test_sync(shop, postroom_outbox):
    pay(shop, "order-7")
    postroom_outbox.assert_nothing_put()
    shop.execute("COMMIT")
    postroom_outbox.assert_put("order.paid", key="order-7")
    assert len(postroom_outbox.relay(print)) == 1

@pytest.mark.anyio
async def test_async(postroom_outbox):
    await postroom_outbox.assert_put("order.paid", key="order-7")
    shop = sqlite3.connect("shop.db")
    shop.execute("UPDATE outbox SET outcome = 'published', settled_at = 1")
    shop.commit()
    shop.close()
    assert await postroom_outbox.relay(print) == []  # a relay was there before

def test_no_such_file(postroom_outbox):
    with pytest.raises(Exception, match="postroom init --store sqlite:///shopp.db"):
        postroom_outbox("sqlite:///shopp.db").messages()
""",
        helpers=SHOP,
    )
    result.assert_outcomes(passed=3)


def test_without_a_store_it_says_what_to_do_whatever_the_environment_says(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_STORE", "sqlite:///shop.db")
    result = run(suite, "def test_one(postroom_outbox):\n    postroom_outbox.messages()\n", helpers="")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*override the fixture postroom_store*"])


def test_workers_of_xdist_each_have_their_own(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
@pytest.mark.parametrize("number", range(6))
def test_one(number, shop, postroom_outbox):
    pay(shop, number)
    postroom_outbox.assert_put("order.paid", key=number, times=1)
""",
        "-n", "2",
    )  # fmt: skip
    result.assert_outcomes(passed=6)


def test_the_plugin_is_light_and_needs_no_anyio() -> None:
    code = "import sys, pytest; had = set(sys.modules); import postroom.testing.plugin; print(*set(sys.modules) - had)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    names = set(loaded.split())
    assert "postroom.testing.plugin" in names
    assert not names & {
        "asyncio",
        "anyio",
        "sqlite3",
        "postroom.testing.outbox",
        "postroom.contracts.outbox",
        "postroom.relay",
    }
