"""Which messages a test means, and what to say where they are not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from postroom.message import UNSET, Message

SHOWN = 20
"""How many messages a failure names."""


@dataclass(frozen=True)
class Wanted:
    """Messages whose type fits a pattern; with this key and these fields, where they are given."""

    type: str = "*"
    key: object = UNSET
    fields: Mapping[str, Any] = field(default_factory=dict)

    def near(self, messages: Sequence[Message]) -> list[Message]:
        """Those of this type and key."""
        key = self.key if self.key is UNSET or self.key is None else str(self.key)
        return [each for each in messages if fnmatchcase(each.type, self.type) and (key is UNSET or each.key == key)]

    def among(self, messages: Sequence[Message]) -> list[Message]:
        """Those that are meant."""
        return [
            each for each in self.near(messages) if all(_value(each, name) == it for name, it in self.fields.items())
        ]

    def missed(self, messages: Sequence[Message], times: int | None) -> str:
        """What to say when they are not there, or not so many times: what is there instead."""
        said = (
            f"No {self} was put."
            if times is None
            else f"{self} was put {len(self.among(messages))} times, not {times}."
        )
        if near := self.near(messages):
            return f"{said} Of that type and key:\n{listed(near)}"
        return f"{said} In the outbox:\n{listed(messages)}"

    def __str__(self) -> str:
        parts = [self.type] if self.type != "*" else ["message"]
        parts += [] if self.key is UNSET else [f"key={self.key!r}"]
        return " ".join([*parts, *(f"{name}={value!r}" for name, value in self.fields.items())])


def listed(messages: Sequence[Message]) -> str:
    """A line for each message, up to so many."""
    lines = [f"  {each.type} key={each.key!r} data={_value(each, 'data')!r}" for each in messages[:SHOWN]]
    more = len(messages) - SHOWN
    return "\n".join([*lines, *([f"  and {more:,} more"] if more > 0 else [])]) or "  nothing"


def _value(message: Message, name: str) -> Any:
    """A field of the message; of its data, where they are no JSON, the bytes."""
    try:
        return getattr(message, name)
    except ValueError:
        return message.body
