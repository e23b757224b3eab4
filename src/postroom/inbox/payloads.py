"""What a handler gets for a message: the message itself, or its data as the type that it is annotated with."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from postroom.errors import ConfigError, MissingDependency
from postroom.message import Message


class CorruptPayload(Exception):
    """The body does not fit."""


Reader = Callable[[Message], Any]


def reader_for(function: Callable[..., Any], *, batch: bool) -> Reader:
    """How to make the first argument of this handler, or one of its elements; ConfigError when it cannot be made."""
    kind = _annotation(function)
    if batch and kind is not None:
        kind = _element(kind, function)
    if kind in (None, Any, Message, inspect.Parameter.empty):
        return _itself
    if hasattr(kind, "model_validate_json"):
        return _guarded(kind.model_validate_json)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__"):
        return _by_msgspec(kind)
    raise ConfigError(
        f"The handler {_name(function)} takes a {kind!r}: annotate it with Message, or with a dataclass, "
        "a msgspec Struct or a pydantic model."
    )


def _annotation(function: Callable[..., Any]) -> Any:
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 2:
        raise ConfigError(
            f"The handler {_name(function)} takes {len(parameters)} arguments: it must take two, (message, tx)."
        )
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        # A name that is only there for type checkers: then it is no payload of ours.
        return None
    return hints.get(parameters[0].name)


def _element(kind: Any, function: Callable[..., Any]) -> Any:
    if typing.get_origin(kind) in (list, Sequence) and typing.get_args(kind):
        return typing.get_args(kind)[0]
    if kind in (list, Sequence):
        return None
    raise ConfigError(f"The handler {_name(function)} takes batches: annotate its messages as a list or a Sequence.")


def _by_msgspec(kind: Any) -> Reader:
    try:
        import msgspec
    except ImportError as exc:
        raise MissingDependency(
            f"To read messages as {kind.__name__}, msgspec is needed, which is not installed: "
            "run `pip install 'postroom[typed]'`.",
            extra="typed",
        ) from exc
    return _guarded(msgspec.json.Decoder(kind).decode)


def _guarded(read: Callable[[bytes], Any]) -> Reader:
    def payload(message: Message) -> Any:
        try:
            return read(message.body or b"")
        except (ValueError, TypeError) as exc:  # msgspec's and pydantic's errors are ValueErrors
            raise CorruptPayload(" ".join(str(exc).split())) from exc

    return payload


def _itself(message: Message) -> Message:
    return message


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
