"""Fields that check themselves: a limit stands beside the field, and the error says it."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

from postroom.errors import ConfigError


def within(low: int | timedelta, high: int | timedelta) -> dict[str, Any]:
    """The metadata of a field that must be from *low* to *high*, both allowed."""
    return {"within": (low, high)}


def check_fields(config: Any) -> None:
    """Raise ConfigError, naming the field, its value and what is allowed, unless all are within their limits."""
    for each in fields(config):
        if within := each.metadata.get("within"):
            _check(each.name, getattr(config, each.name), *within)


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
