"""The local transport keeps the contract, with sync and async functions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.contracts.transport import NOT_STARTED, Envelope, Failed, Outcome, Sent, Unavailable
from postroom.errors import ConfigError
from postroom.message import Message
from postroom.testing.contracts import PublisherContract
from postroom.testing.contracts._case import a_message
from postroom.testing.contracts.publisher import Broker, Rig
from postroom.transports import open_publisher
from postroom.transports.local import STUCK_MAX, LocalPublisher, load


class Handled:
    """What the functions were called with."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.cancels = False

    def sync(self, message: Message) -> str:
        if len(message.body or b"") > 1000:
            raise ValueError("too much for me")
        if self.cancels:
            raise asyncio.CancelledError
        self.messages.append(message)
        return "done"

    async def awaited(self, message: Message) -> str:
        await asyncio.sleep(0)
        if self.cancels:
            somebody_elses = asyncio.ensure_future(asyncio.Event().wait())
            asyncio.get_running_loop().call_soon(somebody_elses.cancel)
            await somebody_elses
        return self.sync(message)

    async def received(self) -> Sequence[Message]:
        return self.messages

    async def go_away(self) -> None:
        pytest.skip("a function cannot be away")

    async def come_back(self) -> None:
        self.cancels = False

    async def cancel_inside(self) -> None:
        self.cancels = True


class LocalContract(PublisherContract):
    @pytest.fixture
    def broker(self) -> Handled:
        return Handled()

    def handler(self, broker: Handled) -> Callable[[Message], Any]:
        raise NotImplementedError

    @pytest.fixture
    async def rig(self, broker: Handled) -> AsyncIterator[Rig]:
        publisher = LocalPublisher(self.handler(broker))
        await publisher.open()
        yield Rig(publisher=publisher, topic="any", can_be_cancelled=True)
        await publisher.close()

    async def test_a_handler_that_raises_fails_and_stops_its_key_alone(self, rig: Rig, broker: Broker) -> None:
        large = a_message(key="a", body=b"x" * 1001)
        behind, other = a_message(key="a"), a_message(key="b")
        outcomes = await self.publish(rig, large, behind, other)
        assert isinstance(outcomes[0], Failed)
        said, _, trace = outcomes[0].error.partition("\n")
        assert (outcomes[0].code, said) == ("HANDLER_ERROR", "ValueError: too much for me")
        assert 'raise ValueError("too much for me")' in trace, "the end of the traceback"
        assert [isinstance(outcome, Sent) for outcome in outcomes] == [False, False, True]
        assert [arrived.id for arrived in await broker.received()] == [other.id]

    async def test_the_answer_of_the_handler_is_the_result(self, rig: Rig, broker: Broker) -> None:
        assert await self.publish(rig, a_message()) == [Sent("done")]


class TestSync(LocalContract):
    def handler(self, broker: Handled) -> Callable[[Message], Any]:
        return broker.sync


class TestAsync(LocalContract):
    def handler(self, broker: Handled) -> Callable[[Message], Any]:
        return broker.awaited


def test_it_keeps_the_order_and_what_it_took_dies_with_it() -> None:
    said = LocalPublisher(print).capabilities
    assert (said.name, said.ordered, said.durable, said.batches) == ("local", True, False, False)


async def test_a_handler_that_cancels_its_own_task_takes_no_other_message_with_it() -> None:
    handled: list[str | None] = []

    async def handler(message: Message) -> None:
        if message.key == "a":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(0.01)
        handled.append(message.key)

    publisher = LocalPublisher(handler)
    await publisher.open()
    batch = [Envelope(a_message(key=key)) for key in ("a", "a", "b")]
    cancelled, behind, other = await publisher.publish(batch, timeout=timedelta(seconds=5))
    assert isinstance(cancelled, Failed)
    assert cancelled.unknown
    assert isinstance(behind, Unavailable)
    assert isinstance(other, Sent)
    assert handled == ["b"]
    await publisher.close()


async def hang(message: Message) -> None:
    await asyncio.sleep(30)


@pytest.mark.parametrize("handler", [lambda _: time.sleep(0.3), hang], ids=["sync", "async"])
async def test_a_handler_that_hangs_is_a_failure_with_unknown_effect(handler: Callable[[Message], Any]) -> None:
    publisher = LocalPublisher(handler)
    await publisher.open()
    (outcome,) = await publisher.publish([Envelope(a_message())], timeout=timedelta(milliseconds=50))
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.unknown) == ("TIMEOUT", True)
    await publisher.close()


async def test_closing_waits_for_the_function_and_calls_it_no_more() -> None:
    may_end, called = asyncio.Event(), asyncio.Event()

    async def handler(_: Message) -> str:
        called.set()
        await may_end.wait()
        return "done"

    publisher = LocalPublisher(handler)
    await publisher.open()
    batch = [Envelope(a_message(key="a"))]
    publishing = asyncio.ensure_future(publisher.publish(batch, timeout=timedelta(seconds=20)))
    await called.wait()
    closing = asyncio.ensure_future(publisher.close())
    await asyncio.sleep(0)
    assert not closing.done()
    may_end.set()
    await closing
    assert publishing.done()
    assert await publishing == [Sent("done")]
    (refused,) = await publisher.publish(batch, timeout=timedelta(seconds=20))
    assert refused == Unavailable("CLOSED", "the publisher is not open")


async def test_a_long_line_is_answered_in_time_and_what_was_handled_is_sent() -> None:
    """Else the relay cuts it off, and what was handled counts as failed."""
    publisher = LocalPublisher(lambda _: time.sleep(0.05))
    await publisher.open()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    batch = [Envelope(a_message(key="a")) for _ in range(20)]
    outcomes = await publisher.publish(batch, timeout=timedelta(milliseconds=400))
    assert loop.time() - begin < 0.4
    sent = sum(isinstance(outcome, Sent) for outcome in outcomes)
    assert sent > 0
    assert list(outcomes[sent:]) == [NOT_STARTED] * (20 - sent)
    await publisher.close()


def _exit(message: Message) -> None:
    sys.exit(3)


async def _exit_async(message: Message) -> None:
    sys.exit(3)


@pytest.mark.parametrize("handler", [_exit, _exit_async], ids=["sync", "async"])
async def test_a_handler_that_asks_to_exit_fails_and_the_relay_goes_on(handler: Callable[[Message], Any]) -> None:
    publisher = LocalPublisher(handler)
    await publisher.open()
    (outcome,) = await publisher.publish([Envelope(a_message())], timeout=timedelta(seconds=20))
    assert outcome == Failed("HANDLER_ERROR", "SystemExit: 3")
    await publisher.close()


async def test_handlers_that_never_return_take_no_place_from_the_others() -> None:
    """One bad message never stops another key, however often it hangs. Beyond a limit the route pauses, aloud."""
    over = threading.Event()
    publisher = LocalPublisher(lambda message: message.key == "good" or over.wait(60), concurrency=2)
    await publisher.open()

    async def handle(key: str, timeout: timedelta) -> Outcome:
        (outcome,) = await publisher.publish([Envelope(a_message(key=key))], timeout=timeout)
        return outcome

    stuck = 0
    while stuck < STUCK_MAX:
        outcome = await handle("bad", timedelta(milliseconds=20))
        stuck += isinstance(outcome, Failed)  # else it had no time to begin
        assert outcome == NOT_STARTED or isinstance(outcome, Failed)
        if stuck < STUCK_MAX:
            assert isinstance(await handle("good", timedelta(seconds=20)), Sent)
    assert isinstance(refused := await handle("good", timedelta(seconds=20)), Unavailable)
    assert refused.code == "HANDLERS_STUCK"
    over.set()
    async with asyncio.timeout(20):
        while not isinstance(await handle("good", timedelta(seconds=20)), Sent):
            await asyncio.sleep(0.01)
    await publisher.close()


def test_a_handler_that_never_returns_does_not_keep_the_process() -> None:
    code = """if True:
        import asyncio, time
        from datetime import timedelta
        from postroom.message import Message
        from postroom.contracts.transport import Envelope
        from postroom.transports.local import LocalPublisher

        async def main():
            publisher = LocalPublisher(lambda _: time.sleep(3_600))
            await publisher.open()
            print(await publisher.publish([Envelope(Message("a.b"))], timeout=timedelta(milliseconds=10)))
            await publisher.close()

        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "TIMEOUT" in done.stdout


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", "names nothing: write local://module:object"),
        (":object", "names nothing: write local://module:object"),
        ("no_such_module_here:send", "cannot be loaded"),
        ("json:no_such_function", "cannot be loaded"),
        ("json:decoder", "cannot be called"),
    ],
)
def test_a_name_that_is_no_function_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        open_publisher(f"local://{name}")


def test_a_module_that_breaks_while_it_is_loaded_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks_at_once.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="cannot be loaded: ZeroDivisionError: division by zero; fix that module"):
        open_publisher("local://breaks_at_once:send")


def test_a_name_with_dots_reaches_into_the_module() -> None:
    assert load("json:JSONEncoder.encode").__qualname__ == "JSONEncoder.encode"


async def test_what_an_async_function_behind_a_plain_one_does_is_waited_for() -> None:
    """A decorator that knows nothing of async hides it: that the call returned would mean nothing."""
    told: list[object] = []

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        if message.key == "bad":
            raise ValueError("no")
        told.append(message.key)

    def plain(message: Message) -> object:
        return handle(message)

    publisher = LocalPublisher(plain)
    await publisher.open()
    batch = [Envelope(Message("order.paid", key=key)) for key in ("good", "bad")]
    good, bad = await publisher.publish(batch, timeout=timedelta(seconds=30))
    await publisher.close()
    assert (type(good), told) == (Sent, ["good"])
    assert isinstance(bad, Failed)


async def test_an_error_without_words_is_a_failed_try() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def handler(_: Message) -> None:
        raise Mute

    publisher = LocalPublisher(handler)
    await publisher.open()
    (outcome,) = await publisher.publish([Envelope(a_message())], timeout=timedelta(seconds=5))
    await publisher.close()
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("Mute")
