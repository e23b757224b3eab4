"""The thread that owns SQLite's connection: cancelled, kept waiting, closed, given a file that is none."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from postroom.config.values import TableNames
from postroom.contracts.inbox import KnownQuery
from postroom.contracts.ops import Query
from postroom.errors import PostroomError, StoreError, StoreUnavailable
from postroom.stores.sqlite import SQLiteStore, connections
from postroom.testing.contracts._case import a_message, a_relay, put
from postroom.testing.contracts.inbox import an_event


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "post.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(path) as store:
        await store.schema.migrate()
        yield store


# ── cancelled ──


async def test_a_caller_cancelled_in_its_transaction_wrote_nothing_and_the_store_goes_on(store: SQLiteStore) -> None:
    written = asyncio.Event()

    async def write() -> None:
        async with store.outbox.transaction() as handle:
            await handle.write([a_message()], TableNames())
            written.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.ops.find(Query()) == []
    await put(store, "a")
    assert len(await store.ops.find(Query())) == 1


async def test_a_caller_cancelled_while_the_thread_works_leaves_the_store_usable(store: SQLiteStore) -> None:
    """The thread cannot be stopped: its transaction ends as a whole, and the next one begins after it."""
    started, go_on = threading.Event(), threading.Event()

    def slow(tx: object) -> None:
        started.set()
        go_on.wait(30)

    task = asyncio.create_task(store._writer.run(slow))
    await asyncio.to_thread(started.wait, 30)
    task.cancel()
    next_one = asyncio.create_task(put(store, "a"))
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await next_one
    assert len(await store.ops.find(Query())) == 1


@pytest.mark.parametrize("step", ["begin", "write", "commit"])
async def test_a_caller_cancelled_at_any_hop_of_its_transaction_leaves_the_store_usable(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    started, go_on = threading.Event(), threading.Event()
    hops = {"begin": "BEGIN IMMEDIATE", "commit": "COMMIT"}

    def slowly(real: object) -> object:
        def work(*args: object) -> object:
            if step == "write" or hops[step] in args:
                started.set()
                go_on.wait(30)
            return real(*args)  # type: ignore[operator]

        return work

    names = {"begin": "_begin", "write": "_begun", "commit": "_end"}

    async def write() -> None:
        async with store.outbox.transaction() as handle:
            if step == "write":
                monkeypatch.setattr(store._writer, "_begun", slowly(store._writer._begun))
            await handle.write([a_message(key="a")], TableNames())

    if step != "write":
        monkeypatch.setattr(store._writer, names[step], slowly(getattr(store._writer, names[step])))
    task = asyncio.create_task(write())
    await asyncio.to_thread(started.wait, 30)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    monkeypatch.undo()
    await put(store, "b")
    keys = [record.message.key for record in await store.ops.find(Query())]
    assert keys[-1] == "b"
    assert keys[:-1] in ([], ["a"])
    if step != "commit":
        assert keys == ["b"]
    assert len(await (await a_relay(store)).drain()) == len(keys)


# ── two processes ──

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("INSERT INTO outbox (type, key) VALUES ('order.paid', 'theirs')")
print("held", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
print("done", flush=True)
"""


@contextmanager
def another_process_writing(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the write lock until it is told to commit."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


async def test_a_write_waits_for_another_process(store: SQLiteStore, path: Path) -> None:
    with another_process_writing(path) as process:
        waiting = asyncio.create_task(put(store, "ours"))
        async with SQLiteStore(path) as reader:
            assert await reader.ops.find(Query()) == []
        assert not waiting.done()
        await asyncio.to_thread(let_go, process)
        await waiting
    assert [record.message.key for record in await store.ops.find(Query())] == ["theirs", "ours"]


async def test_a_reader_waits_for_nobody(store: SQLiteStore, path: Path) -> None:
    await put(store, "a")
    with another_process_writing(path):
        assert len(await store.ops.find(Query())) == 1
        assert (await store.ops.counts()).by_status["pending"] == 1


async def test_a_lock_that_outlasts_the_patience_is_one_sentence_and_transient(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_SECONDS", 0.05)
    async with SQLiteStore(path) as store:
        await store.schema.migrate()
        with another_process_writing(path) as process:
            for attempt in (store.outbox.put([a_message()]), store.schema.migrate(), store.lanes.leave("nobody")):
                with pytest.raises(StoreUnavailable, match=r"is locked by another process .* left open\.") as caught:
                    await attempt
                assert caught.value.transient
                assert str(path) in str(caught.value)
                assert "\n" not in str(caught.value)
            await asyncio.to_thread(let_go, process)
        await put(store, "a")
        assert [record.message.key for record in await store.ops.find(Query())] == ["theirs", "a"]


# ── closed ──


async def test_closing_twice_is_once(store: SQLiteStore) -> None:
    await store.close()
    await store.close()


async def test_a_store_that_was_never_used_closes(path: Path) -> None:
    await SQLiteStore(path).close()
    assert not path.exists()  # noqa: ASYNC240 - it is the test that waits


async def test_a_closed_store_says_so(store: SQLiteStore) -> None:
    await store.close()
    for ask in (store.schema.check, store.lanes.all, lambda: store.outbox.put([a_message()])):
        with pytest.raises(PostroomError, match="closed"):
            await asyncio.wait_for(ask(), 10)


async def test_the_inbox_of_a_closed_store_says_so(store: SQLiteStore) -> None:
    await store.close()
    with pytest.raises(PostroomError, match="closed"):
        async with store.inbox.transaction():
            pytest.fail("it began")
    with pytest.raises(PostroomError, match="closed"), store.inbox.blocking():
        pytest.fail("it began")


@pytest.mark.parametrize("is_handled", [True, False])
async def test_a_handler_that_outlives_its_store_ends_as_it_would_and_leaves_no_connection_open(
    store: SQLiteStore, path: Path, is_handled: bool
) -> None:
    event = an_event()
    with suppress(ZeroDivisionError):
        async with store.inbox.transaction() as tx:
            await tx.remember("billing", [event])
            await store.close()
            if not is_handled:
                raise ZeroDivisionError
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        tx.handle.execute("SELECT 1")
    async with SQLiteStore(path) as another:
        assert len(await another.inbox.known(KnownQuery())) == is_handled


# ── files that will not do ──


async def test_a_file_that_is_no_database_is_one_sentence(path: Path) -> None:
    path.write_text("Dear diary, today I wrote no database.\n" * 100)  # noqa: ASYNC240 - it is the test that waits
    async with SQLiteStore(path) as store:
        for ask in (store.schema.migrate, store.schema.check):
            with pytest.raises(StoreError, match="is not a healthy SQLite database") as caught:
                await ask()
            assert "\n" not in str(caught.value)
            assert not caught.value.transient
    assert path.read_text().startswith("Dear diary")  # noqa: ASYNC240 - it is the test that waits


async def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "nowhere" / "post.db") as store:
        with pytest.raises(StoreUnavailable, match="check that its folder exists"):
            await store.schema.migrate()


async def test_a_file_that_goes_and_comes_is_opened_anew_by_the_next_call(tmp_path: Path) -> None:
    folder = tmp_path / "late"
    async with SQLiteStore(folder / "post.db") as store:
        with pytest.raises(StoreUnavailable):
            await store.schema.migrate()
        folder.mkdir()
        await store.schema.migrate()
        await put(store, "a")
