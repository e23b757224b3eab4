"""JSON, strictly: what goes out can be read by everybody, and what cannot is refused with the reason."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.codec import DEPTH_MAX, decode, encode
from postroom.errors import InvalidMessage

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(json_values)
def test_every_json_value_comes_back_as_it_was(value: Any) -> None:
    assert decode(encode(value)) == value


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def test_the_deepest_allowed_nesting_passes() -> None:
    assert decode(encode(nested(DEPTH_MAX))) == nested(DEPTH_MAX)


def itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "NaN and infinity are not JSON numbers"),
        ({"a": [float("inf")]}, "NaN and infinity are not JSON numbers"),
        ({1, 2}, "a set has no spelling in JSON"),
        (b"bytes", "a bytes has no spelling in JSON"),
        (object(), "has no spelling in JSON"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        (nested(DEPTH_MAX + 1), "deeper than 64 levels"),
        (nested(100), "deeper than 64 levels"),
        (nested(100_000), "deeper than 64 levels"),
        (itself(), "deeper than 64 levels"),
        ({(1, 2): 3}, "keys must be"),
    ],
    ids=[
        "NaN",
        "infinity",
        "set",
        "bytes",
        "object",
        "surrogate",
        "surrogate name",
        "65",
        "100",
        "100000",
        "itself",
        "key",
    ],
)
def test_what_is_no_json_value_is_refused_with_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason) as refused:
        encode(value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"NaN", "NaN is not a JSON number"),
        (b"[Infinity]", "Infinity is not a JSON number"),
        (b'{"a": 1, "a": 2}', "'a' is given twice"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "deeper than 64 levels"),
        (b"[" * 65 + b"]" * 65, "deeper than 64 levels"),
        (b"1" * 5000, "not JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_json_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        decode(body)


def test_brackets_in_a_text_are_no_nesting() -> None:
    value = {"text": '["\\[{' * 200}
    assert decode(encode(value)) == value


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Order:
    id: UUID
    amount: Decimal
    paid: date
    at: datetime
    colour: Colour


def test_what_has_one_plain_spelling_is_spelled_out() -> None:
    order = Order(UUID(int=7), Decimal("12.50"), date(2026, 11, 15), datetime(2026, 11, 15, tzinfo=UTC), Colour.RED)
    assert decode(encode(order)) == {
        "id": "00000000-0000-0000-0000-000000000007",
        "amount": "12.50",
        "paid": "2026-11-15",
        "at": "2026-11-15T00:00:00+00:00",
        "colour": "red",
    }


def test_a_model_with_model_dump_is_taken_at_its_word() -> None:
    class Model:
        def model_dump(self, *, mode: str) -> dict[str, str]:
            return {"mode": mode}

    assert encode(Model()) == b'{"mode":"json"}'
