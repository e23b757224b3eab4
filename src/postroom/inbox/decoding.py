"""What a handler gets for a message: the message itself, or its data as the type that it is annotated with."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from postroom.errors import ConfigError, InvalidMessage, MissingDependency
from postroom.message import KeyedMessage, Message


class CorruptPayload(Exception):
    """The body does not fit."""


Reader = Callable[[Message], Any]
ITSELF = (None, Any, Message, inspect.Parameter.empty)
PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def readers_for(function: Callable[..., Any], *, batch: bool) -> tuple[Reader, Reader | None]:
    """How to make the first argument of this handler, or one of its elements; and the third, the message itself, where it
    takes one. ConfigError when they cannot be made."""
    payload, *message = _annotations(function, batch=batch)
    return _payload(payload, function), _whole(message[0], function) if message else None


def _whole(kind: Any, function: Callable[..., Any]) -> Reader:
    if kind in ITSELF:
        return _itself
    if kind is KeyedMessage:
        return _keyed
    raise ConfigError(
        f"The handler {_name(function)} takes a {kind!r} as its third argument, which is the message: annotate it with "
        "Message or KeyedMessage."
    )


def _payload(kind: Any, function: Callable[..., Any]) -> Reader:
    if kind in ITSELF:
        return _itself
    if kind is KeyedMessage:
        return _keyed
    if hasattr(kind, "model_validate_json"):
        return _guarded(kind.model_validate_json)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__"):
        return _by_msgspec(kind)
    raise ConfigError(
        f"The handler {_name(function)} takes a {kind!r}: annotate it with Message, KeyedMessage, or with a dataclass, "
        "a msgspec Struct or a pydantic model."
    )


def _annotations(function: Callable[..., Any], *, batch: bool) -> list[Any]:
    """What the first argument is annotated with, and the third if there is one; None where it is not."""
    parameters = list(inspect.signature(function).parameters.values())
    third = parameters[2:]
    # A default is a value of the author's own, and not a place for the message.
    if len(parameters) not in (2, 3) or any(
        each.kind not in PLACES or each.default is not each.empty for each in third
    ):
        raise ConfigError(
            f"The handler {_name(function)} takes {len(parameters)} arguments: it must take two, (message, tx), or three, "
            "(data, tx, message)."
        )
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        # A name that is only there for type checkers: then it is no payload of ours.
        hints = {}
    kinds = [hints.get(each.name) for each in (parameters[0], *third)]
    return [_element(kind, function) if batch and kind is not None else kind for kind in kinds]


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


def _keyed(message: Message) -> KeyedMessage:
    try:
        return KeyedMessage.of(message)
    except InvalidMessage as exc:
        raise CorruptPayload(str(exc)) from exc


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
