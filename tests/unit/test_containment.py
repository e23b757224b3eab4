"""Whatever a stranger's code raises is a result; what we asked for ourselves is not."""

from __future__ import annotations

import asyncio
import threading

import pytest

from postroom.containment import Escaped, contained


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), Odd("odd"), KeyboardInterrupt()])
def test_what_is_no_exception_comes_out_as_one(error: BaseException) -> None:
    with pytest.raises(Escaped) as escaped, contained():
        raise error

    assert escaped.value.__cause__ is error


def test_an_exception_comes_out_as_it_is() -> None:
    with pytest.raises(ValueError, match="mine"), contained():
        raise ValueError("mine")


def test_a_cancellation_from_inside_is_a_result() -> None:
    async def awaits_what_somebody_cancels() -> None:
        other = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(other.cancel)
        with contained():
            await other

    with pytest.raises(Escaped, match="other code cancelled"):
        asyncio.run(awaits_what_somebody_cancels())


def test_a_cancellation_that_we_asked_for_is_one() -> None:
    async def works() -> None:
        with contained():
            await asyncio.sleep(60)

    async def cancels() -> None:
        task = asyncio.ensure_future(works())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancels())


def test_a_time_out_of_ours_around_it_is_a_time_out() -> None:
    async def works() -> None:
        async with asyncio.timeout(0.01):
            with contained():
                await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        asyncio.run(works())


def test_ctrl_c_ends_what_runs_in_the_loop() -> None:
    async def works() -> None:
        with contained():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(works())


def test_in_a_thread_nobody_presses_ctrl_c() -> None:
    seen: list[BaseException] = []

    def works() -> None:
        try:
            with contained():
                raise KeyboardInterrupt
        except Exception as exc:
            seen.append(exc)

    thread = threading.Thread(target=works)
    thread.start()
    thread.join()

    assert isinstance(seen[0], Escaped)
