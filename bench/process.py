"""A process of its own for each side of a comparison, that does what it is told and answers."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any, ParamSpec, Self, TypeVar

PATIENCE_SECONDS = 600
"""A benchmark that has not answered by then never will."""

Args = ParamSpec("Args")
Result = TypeVar("Result")


class Process:
    """Calls functions of a module, one after the other, in a fresh interpreter.

    Neither side shares an interpreter, its lock or its garbage with the other, or with who measures.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.join()

    @property
    def pid(self) -> int:
        """Its number, to look at it from outside."""
        return self._process.pid or 0

    def call(self, function: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
        """What the function answers over there; RuntimeError with its traceback when it raises."""
        self.begin(function, *args, **kwargs)
        answer: Result = self.answer()
        return answer

    def begin(self, function: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> None:
        """Start it over there, and do not wait."""
        self._pipe.send((function, args, kwargs))

    def answer(self) -> Any:
        """Wait for the answer of what was begun."""
        if not self._pipe.poll(PATIENCE_SECONDS):
            raise TimeoutError(f"a benchmark did not answer in {PATIENCE_SECONDS} s")
        done, answer = self._pipe.recv()
        if not done:
            raise RuntimeError(answer)
        return answer


def _serve(pipe: Pipe) -> None:
    while True:
        try:
            function, args, kwargs = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            pipe.send((True, function(*args, **kwargs)))
        except KeyboardInterrupt:
            return
        except Exception:
            pipe.send((False, traceback.format_exc()))
