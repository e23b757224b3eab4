"""What an inbox says in the log of a message that fails: the first time with the traceback, later in a line.

Each record of one message has its error's `code` and whether it is `business` as attributes, for handlers that write them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from postroom.contracts.transport import Delivery
from postroom.durations import format_duration
from postroom.inbox.handling import Again, Dead
from postroom.inbox.tasks import named
from postroom.text import one_line, user_part, without_trace

log = logging.getLogger("postroom.inbox")
ERROR_MAX = 200
"""How much of an error's words a line shows."""


def tell_of_failure(delivery: Delivery, failed: Again, *, most: int, first: bool) -> None:
    """A try failed, and there is another."""
    cause = failed.cause if first else None
    log.warning(
        "%s failed, try %d of %d, next try in %s: %s%s: %s",
        _capital(named([delivery])),
        failed.attempts,
        most,
        format_duration(failed.after),
        one_line(failed.code),
        _kind(failed),
        _line(failed.error),
        exc_info=cause and user_part(cause),
        extra=_facts(failed),
    )


def tell_of_death(delivery: Delivery, dead: Dead, *, first: bool) -> None:
    """It is given up."""
    log.error(
        "%s is dead: %s%s: %s",
        _capital(named([delivery])),
        one_line(dead.code),
        _kind(dead),
        _line(dead.error),
        exc_info=user_part(dead.cause) if first and dead.cause else None,
        extra=_facts(dead),
    )


def tell_of_batch(deliveries: Sequence[Delivery], error: str) -> None:
    """Many at once did not work, and are handled one by one."""
    log.warning("A batch failed, and is handled one by one (%s): %s", named(deliveries), _line(error))


def _kind(result: Again | Dead) -> str:
    """Of a business error, that it is one: another program must change, or a person decide. The others are technical."""
    return " (business)" if result.business else ""


def _facts(result: Again | Dead) -> dict[str, object]:
    return {"code": result.code, "business": result.business}


def _line(error: str) -> str:
    return one_line(without_trace(error), ERROR_MAX)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
