"""What the user hands in: as it stands, from a file (`@file`), or from stdin (`-`); and messages from lines of JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

import click

from postroom import codec
from postroom.cli.options import parse_moment
from postroom.errors import ConfigError, InvalidMessage
from postroom.message import Message
from postroom.validation import BODY_MAX, Limits, check

READ_MAX = 8 * BODY_MAX
"""How much of a file or a line is read: JSON may spell a byte with six, and no body can be larger than `BODY_MAX`."""
TIMES: Final = ("not_before", "expires_at")
TEXTS: Final = (
    "type",
    "id",
    "topic",
    "aggregate",
    "correlation_id",
    "causation_id",
    "idempotency_key",
    "content_type",
)
NAMES: Final = ("type", "key", "data", "headers", *TEXTS[1:], *TIMES)


def read_bytes(value: str, option: str) -> bytes:
    """The bytes that the option's value names."""
    if value == "-" or value.startswith("@"):
        with opened(value.removeprefix("@"), option) as file:
            found = file.read(READ_MAX + 1)
        if len(found) > READ_MAX:
            raise click.BadParameter(f"{value} is larger than {READ_MAX:,} bytes.", param_hint=option)
        return found
    # The shell may hand over bytes that are not UTF-8; what reads them says so.
    return os.fsencode(value)


def read_json(value: str, option: str) -> object:
    """The JSON value that the option's value names, read strictly."""
    try:
        return codec.decode(read_bytes(value, option))
    except InvalidMessage as exc:
        raise InvalidMessage(f"{option}: {exc} {_hint(value)}") from None


def _hint(value: str) -> str:
    if value == "-" or value.startswith("@"):
        return "Give one JSON value."
    return """Quote it for the shell, as in --data '{"amount": 12}', or --data '"paid"' for a text."""


@contextmanager
def opened(name: str, option: str) -> Iterator[IO[bytes]]:
    """The file, or stdin for `-`, to read bytes from."""
    if name == "-":
        yield _stdin(option)
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below; only opening it is the user's mistake
    except OSError as exc:
        raise click.BadParameter(f"{name!r} cannot be read: {exc.strerror}.", param_hint=option) from exc
    with file:
        yield file


def _stdin(option: str) -> BinaryIO:
    if sys.stdin is None:
        raise click.BadParameter("there is no standard input.", param_hint=option)
    return sys.stdin.buffer


class Lines:
    """Reads messages from a file of lines, and remembers which ids and idempotency keys it has met."""

    def __init__(self, file: IO[bytes], *, name: str, now: datetime, limits: Limits) -> None:
        self._file = file
        self._name = name
        self._now = now
        self._limits = limits
        self._met: dict[tuple[str, str], int] = {}

    def __iter__(self) -> Iterator[Message]:
        """Yield the message of each line that is not blank. Raises InvalidMessage, with the line's number, for any other."""
        number = 0
        while line := self._file.readline(READ_MAX + 1):
            number += 1
            if line.isspace():
                continue
            try:
                yield self._message(line, number)
            except (InvalidMessage, ConfigError) as exc:
                raise InvalidMessage(f"{self._name}, line {number}: {exc} Nothing was written.", line=number) from None

    def _message(self, line: bytes, number: int) -> Message:
        if len(line) > READ_MAX:
            raise InvalidMessage(f"It is longer than {READ_MAX:,} bytes.")
        message = Message(**self._fields(codec.decode(line)))
        check(message, self._limits)
        self._refuse_twins(message, number)
        return message

    def _fields(self, found: Any) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise InvalidMessage(
                'It is not a JSON object; write one like {"type": "order.paid", "data": {"amount": 12}}.'
            )
        for name in found:
            if name not in NAMES:
                raise InvalidMessage(f"{name!r} is unknown; there are {', '.join(NAMES)}.")
        fields = {name: value for name, value in found.items() if value is not None or name == "data"}
        if "type" not in fields:
            raise InvalidMessage('It has no type; add one, like "type": "order.paid".')
        for name in fields.keys() & {*TEXTS, *TIMES}:
            if not isinstance(fields[name], str):
                raise InvalidMessage(f"{name} is {_kind(fields[name])}; give a text.")
        if not isinstance(fields.get("key", ""), str) and type(fields["key"]) is not int:
            raise InvalidMessage(f"key is {_kind(fields['key'])}; give a text or a whole number.")
        for name in fields.keys() & {*TIMES}:
            fields[name] = parse_moment(fields[name], now=self._now)
        return fields

    def _refuse_twins(self, message: Message, number: int) -> None:
        for what, value in (("id", str(message.id)), ("idempotency_key", message.idempotency_key)):
            if value is not None and (earlier := self._met.setdefault((what, value), number)) != number:
                raise InvalidMessage(f"Its {what} {value!r} is already on line {earlier}; keep one of them.")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "a text")
