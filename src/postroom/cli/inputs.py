"""What the user hands in: as it stands, from a file (`@file`), or from stdin (`-`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import click

from postroom import codec
from postroom.errors import InvalidMessage
from postroom.validation import BODY_MAX

READ_MAX = 8 * BODY_MAX
"""How much of a file or a line is read: JSON may spell a byte with six, and no body can be larger than `BODY_MAX`."""


def read_bytes(value: str, option: str) -> bytes:
    """The bytes that the option's value names."""
    if value == "-" or value.startswith("@"):
        with opened(value.removeprefix("@"), option) as file:
            found = file.read(READ_MAX + 1)
        if len(found) > READ_MAX:
            raise click.BadParameter(f"{value} is larger than {READ_MAX:,} bytes.", param_hint=option)
        return found
    # The shell may hand over bytes that are no UTF-8; whoever reads them says so.
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
