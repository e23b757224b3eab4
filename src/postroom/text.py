"""Text from outside, made safe where it comes in: types and keys of strangers, and what errors say.

A newline forges a line of the log, ESC reaches the terminal, NUL and lone surrogates cannot be stored, and nobody wants
50 MB of it. Whoever writes such a text to a log, a terminal or a table asks here first.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

LINE_MAX = 512
"""How many characters of a text from outside a line shows."""
ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]
_HERE = str(Path(__file__).parent)
_CUT = "…"
_CONTROLS = r"\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
"""Characters that move the cursor, turn the direction of writing, end a line, or show nothing."""
_NOT_IN_A_LINE = re.compile(rf"[\x00-\x1f{_CONTROLS}\ud800-\udfff]")
_NOT_IN_A_TEXT = re.compile(rf"[\x00-\x08\x0b-\x1f{_CONTROLS}\ud800-\udfff]")
_NOT_STORABLE = re.compile(r"[\x00\ud800-\udfff]")


def one_line(text: str, limit: int = LINE_MAX) -> str:
    r"""Return the text as one line of at most *limit* characters, with what is not to be shown as an escape.

    >>> one_line("paid\n2026-11-18 ERROR all is lost")
    'paid\\n2026-11-18 ERROR all is lost'
    >>> one_line("\x1b[2J")
    '\\x1b[2J'
    >>> one_line("abcdef", limit=4)
    'abc…'
    """
    return _shorten(_NOT_IN_A_LINE.sub(_escape, text[: limit + 1]), limit)


def storable(text: str, limit: int = LINE_MAX) -> str:
    r"""Return the text as every database can keep it, of at most *limit* characters. Lines stay lines.

    >>> storable("first\nsecond\x00")
    'first\nsecond\\x00'
    """
    return _shorten(_NOT_IN_A_TEXT.sub(_escape, text[: limit + 1]), limit)


def is_storable(name: str) -> bool:
    r"""Can every database keep this name as it is? Not with NUL, nor with half of a surrogate pair.

    >>> is_storable("order.paid"), is_storable("order\x00"), is_storable("\udc80")
    (True, False, False)
    """
    if name.isascii():  # nearly always, and quickly seen
        return "\0" not in name
    return _NOT_STORABLE.search(name) is None


def describe(error: BaseException, limit: int = LINE_MAX) -> str:
    """Return the kind of an error and what it says, in one line. An error that cannot say anything is only named.

    >>> describe(KeyError("x"))
    "KeyError: 'x'"
    """
    kind, said = type(error).__name__, _said(error)
    return one_line(f"{kind}: {said}" if said else kind, limit)


def trace(error: BaseException, limit: int = LINE_MAX) -> str:
    """Return what an error says and the end of its traceback: where it was raised, which is what one looks for.

    The first line is what `describe` returns. Lines of the traceback are left out from its start until it fits."""
    head = describe(error, limit)
    try:
        lines = [storable(line.rstrip()) for line in traceback.format_tb(error.__traceback__)]
    except Exception:  # noqa: BLE001 - a stranger's frame may break the one that looks at it
        return head
    room, kept = limit - len(head), list[str]()
    for line in reversed(lines):
        if (room := room - len(line) - 1) < 0:
            break
        kept.insert(0, line)
    return "\n".join([head, *kept])


def without_trace(text: str) -> str:
    r"""Return what an error says, of a text that may have the end of a traceback below it.

    >>> without_trace("KeyError: 'x'\n  File \"shop.py\", line 7, in charge")
    "KeyError: 'x'"
    >>> without_trace("a\nb")
    'a\nb'
    """
    return text.partition('\n  File "')[0]


def user_part(error: BaseException) -> ExcInfo:
    """Return the error as `exc_info` takes it, with the frames that are the user's: from the first that is not ours on."""
    frame = error.__traceback__
    while frame is not None and _is_ours(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return type(error), error, frame or error.__traceback__


def _is_ours(file: str) -> bool:
    return file.startswith(_HERE) or file.endswith("contextlib.py")


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - a stranger's __str__ may raise anything
        return "(what it says could not be read)"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + _CUT


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if ord(character) > 0xFF:
        return f"\\u{ord(character):04x}"
    return character.encode("unicode_escape").decode()
