"""Text from outside: what may be shown in a line, kept in a table, and said of an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.text import describe, is_storable, one_line, storable, trace

ANY = st.text(st.characters(exclude_categories=[]))
"""With controls, and halves of surrogate pairs."""


@given(ANY)
def test_a_line_is_one_line_that_can_be_printed_and_stored(text: str) -> None:
    line = one_line(text)

    assert len(line) <= 512
    assert len(line.splitlines()) <= 1
    line.encode()
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in line)


@given(ANY)
def test_a_stored_text_keeps_its_lines_and_nothing_that_no_database_takes(text: str) -> None:
    kept = storable(text, limit=10_000)

    kept.encode()
    assert is_storable(kept)
    assert kept.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("order.paid", "order.paid"),
        ("Zahlung für Müller 支払", "Zahlung für Müller 支払"),
        ("a\r\nb", "a\\r\\nb"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\u202eevil", "\\u202eevil"),
        ("\udc80", "\\udc80"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_what_is_not_to_be_shown_becomes_an_escape(text: str, line: str) -> None:
    assert one_line(text) == line


def test_fifty_megabytes_are_cut() -> None:
    assert len(one_line("x" * 50_000_000)) == 512


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def test_an_error_that_cannot_speak_is_named() -> None:
    assert describe(Mute()) == "Mute: (what it says could not be read)"


def test_an_error_without_words_is_its_name() -> None:
    assert describe(ValueError()) == "ValueError"


def _raise(depth: int) -> None:
    if depth:
        _raise(depth - 1)
    raise ValueError("no stock\nleft")


def test_a_trace_says_what_was_wrong_first_and_keeps_the_place_where_it_was_raised() -> None:
    with pytest.raises(ValueError, match="stock") as raised:
        _raise(50)

    said = trace(raised.value)

    assert said.splitlines()[0] == "ValueError: no stock\\nleft"
    assert len(said) <= 512
    assert 'raise ValueError("no stock' in said.splitlines()[-1]
