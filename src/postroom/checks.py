"""Fields that check themselves: a limit stands beside the field, and the error says it."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

from postroom.errors import ConfigError


def within(low: int | timedelta, high: int | timedelta) -> dict[str, Any]:
    """The metadata of a field that must be from *low* to *high*, both allowed."""
    return {"within": (low, high)}


def one_of(*words: str) -> dict[str, Any]:
    """The metadata of a field that must be one of these words."""
    return {"one_of": words}


def check_fields(config: Any) -> None:
    """Raise ConfigError, naming the field, its value and what is allowed, unless all are within their limits.

    None is allowed where it is the default."""
    for each in fields(config):
        value = getattr(config, each.name)
        if value is None and each.default is None:
            continue
        if within := each.metadata.get("within"):
            _check(each.name, value, *within)
        if (words := each.metadata.get("one_of")) and value not in words:
            raise ConfigError(f"{each.name} is {value!r}; it must be {' or '.join(words)}.", **{each.name: value})


def _check(name: str, value: Any, low: Any, high: Any) -> None:
    # By exact type, because True is an int to Python and no count to anybody.
    if type(value) is not type(low) or not low <= value <= high:
        kind = "duration" if isinstance(low, timedelta) else "whole number"
        raise ConfigError(
            f"{name} is {_show(value)}; it must be a {kind} from {_show(low)} to {_show(high)}.",
            **{name: value},
        )


def _show(value: object) -> str:
    if isinstance(value, timedelta):
        from postroom.durations import format_duration

        return format_duration(value)
    return f"{value:,}" if type(value) is int else repr(value)
