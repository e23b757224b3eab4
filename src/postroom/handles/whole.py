"""All of a `put_many` or nothing: where several statements or rows are written, a savepoint is around them.

On PostgreSQL any error fails the whole transaction, and MongoDB aborts it, so neither needs this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain, islice
from typing import Any, TypeVar

Item = TypeVar("Item")

SAVE = "SAVEPOINT postroom_put"
UNDO = "ROLLBACK TO SAVEPOINT postroom_put"
RELEASE = "RELEASE SAVEPOINT postroom_put"


@contextmanager
def whole(run: Callable[[str], Any], *, several: bool) -> Iterator[None]:
    """Undo what was written inside when an error comes out of it. With a single write the database does that itself."""
    if not several:
        yield
        return
    run(SAVE)
    try:
        yield
    except Exception:
        # After some errors the database has rolled back everything itself: then there is no savepoint to go back to.
        with suppress(Exception):
            run(UNDO)
            run(RELEASE)
        raise
    run(RELEASE)


@asynccontextmanager
async def whole_async(run: Callable[[str], Awaitable[Any]], *, several: bool) -> AsyncIterator[None]:
    """The same, awaited."""
    if not several:
        yield
        return
    await run(SAVE)
    try:
        yield
    except Exception:
        with suppress(Exception):
            await run(UNDO)
            await run(RELEASE)
        raise
    await run(RELEASE)


def are_several(items: Iterable[Item]) -> tuple[bool, Iterable[Item]]:
    """Whether there is more than one; and all of them. They may be large: no more than two are held at once."""
    rest = iter(items)
    first = list(islice(rest, 2))
    return len(first) > 1, chain(first, rest)
