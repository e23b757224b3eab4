"""What to do about the code of an error: the remedies of `postroom.codes`, as sentences for a message or for a list of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from postroom.codes import CODES, WAITS

Failure: TypeAlias = tuple[str | None, str | None]
"""A code, and the text of the error that stands beside it."""
SPENT = "MAX_ATTEMPTS"
"""The code of a message that failed at every try. The text of its error begins with the code of the last try."""
REDIRECT = "HTTP_3"
REDIRECTED = "name the URL that it leads to: a redirect is not followed"


def remedy(code: str | None) -> str | None:
    """Return what to do about this code, to stand behind a colon. None: nothing is known, or there is nothing to do.

    >>> remedy("HTTP_404"), remedy("TIMEOUT"), remedy("E_OF_YOURS")
    ('fix the URL, or the receiver', None, None)
    """
    if code is None:
        return None
    if (known := CODES.get(code)) is not None:
        return known.remedy if known.remedy not in ("", WAITS) else None
    return REDIRECTED if code.startswith(REDIRECT) else None


def advice(code: str | None, error: str | None, *, waits: bool = False) -> Iterator[str]:
    """Yield a sentence for each code that has a remedy: of the last try, where that is the cause, and then of the message.

    *waits* says that the message goes again by itself: where that is all that its code asks for, a sentence says so.

    >>> for sentence in advice("MAX_ATTEMPTS", "HTTP_404: not found"):
    ...     print(sentence)
    What to do about HTTP_404: fix the URL, or the receiver.
    What to do about MAX_ATTEMPTS: fix the cause, then requeue.
    """
    if (cause := remedy(last_try := _cause(code, error))) is not None and last_try != code:
        yield f"What to do about {last_try}: {cause}."
    if (found := remedy(code)) is not None:
        yield f"What to do about {code}: {found}."
    elif waits and code in CODES and CODES[code].remedy == WAITS:
        yield f"There is nothing to do about {code}: {WAITS}."


def remedies(failures: Iterable[Failure], *, most: int) -> Iterator[Failure]:
    """Yield the codes of these failures that have a remedy, each with its remedy, the most frequent ones first.

    A message that failed at every try counts for the code of its last try.

    >>> list(remedies([("NO_TOPIC", ""), ("MAX_ATTEMPTS", "HTTP_404: no"), ("HTTP_404", "no"), ("MINE", "")], most=1))
    [('HTTP_404', 'fix the URL, or the receiver')]
    """
    counted = Counter(_cause(*failure) for failure in failures)
    told = [(code, found) for code, _ in counted.most_common() if (found := remedy(code)) is not None]
    yield from told[:most]


def _cause(code: str | None, error: str | None) -> str | None:
    """The code of the last try, where that one has a remedy; else the code itself."""
    last_try = (error or "").partition(":")[0]
    return last_try if code == SPENT and remedy(last_try) is not None else code
