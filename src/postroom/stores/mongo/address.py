"""What a MongoDB URL says: where, and which database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from postroom.errors import ConfigError
from postroom.tables import TableNames
from postroom.urls import redact

PATIENCE: dict[str, int] = {
    "serverSelectionTimeoutMS": 10_000,
    "connectTimeoutMS": 10_000,
    "socketTimeoutMS": 30_000,
}
"""A server that vanished without a word is noticed within half a minute; the URL may say otherwise."""


@dataclass(frozen=True, slots=True)
class Address:
    """A URL, taken apart."""

    url: str
    """For the driver."""
    shown: str
    database: str
    patience: dict[str, Any]


def address(url: str, tables: TableNames) -> Address:
    """Take the URL apart, or raise ConfigError with how to write it.

    >>> address("mongodb://db/shop?replicaSet=rs0", TableNames()).database
    'shop'
    """
    head, _, query = url.partition("?")
    _, slash, path = head.partition("://")[2].rpartition("@")[2].partition("/")
    database = tables.schema or unquote(path)
    if not database or (not slash and not tables.schema):
        raise ConfigError(
            f"{redact(url)} names no database: write mongodb://host:27017/shop?replicaSet=rs0.", url=redact(url)
        )
    given = {option.partition("=")[0].lower() for option in query.split("&")}
    return Address(
        url=url,
        shown=redact(url),
        database=database,
        patience={name: value for name, value in PATIENCE.items() if name.lower() not in given},
    )
